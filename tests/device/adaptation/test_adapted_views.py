"""What is kept: bounded, versioned, own and shared views apart."""

import random
from dataclasses import replace

from nearsight.device.adaptation.adapted_view import view_to_bytes
from nearsight.device.adaptation.learning import AdaptedViews, Refusal
from support.adaptation import RULES, learned, noisy, plain
from support.gallery import exhibit_model


def views(**changes: int) -> AdaptedViews:
    return AdaptedViews(replace(RULES, **changes), random.Random(1))


def test_own_views_are_few_and_the_latest() -> None:
    kept, model = views(), exhibit_model(1)
    taught = [noisy(plain(1), 30, seed) for seed in range(5)]
    assert all(kept.add_own(view, model) for view in taught)
    assert kept.own(model) == tuple(taught[-RULES.own_views :])
    assert kept.size_bytes == sum(view.size_bytes for view in taught[-RULES.own_views :])


def test_what_adds_nothing_is_not_kept() -> None:
    kept, model = views(), exhibit_model(1)
    assert not kept.add_own(plain(1), model)
    assert kept.refused == {Refusal.NOTHING_NEW: 1}
    assert len(kept) == 0


def test_a_flood_of_shared_views_leaves_own_ones_alone_and_is_bounded() -> None:
    kept, model = views(), exhibit_model(1)
    own = noisy(plain(1), 30, 1000)
    kept.add_own(own, model)
    flood = [view_to_bytes(noisy(plain(1, 30), 30, seed)) for seed in range(1, 400)]
    assert kept.take_shared(flood, model)
    assert kept.own(model) == (own,)
    assert len(kept) == 1 + RULES.shared_views
    assert not kept.take_shared(flood, model), "the places are taken"


def test_of_a_flood_of_rubbish_only_some_items_are_looked_at() -> None:
    kept = views()
    kept.take_shared([f"rubbish {number}".encode() for number in range(1000)], exhibit_model(1))
    assert sum(kept.refused.values()) == RULES.max_items
    assert len(kept) == 0


def test_rubbish_before_a_view_does_not_hide_it() -> None:
    good = view_to_bytes(noisy(plain(1), 30))
    items = [b"\x00" * 10, b"", b"\xff" * 100_000, good, view_to_bytes(learned(2))]
    kept = views()
    assert kept.take_shared(items, exhibit_model(1))
    assert [view_to_bytes(view) for view in kept.shared(exhibit_model(1))] == [good]
    assert set(kept.refused) <= {Refusal.MALFORMED, Refusal.OTHER_OBJECT, Refusal.WRONG_SIZE}


def test_every_shared_view_is_checked_against_the_vouched_model() -> None:
    kept, model = views(), exhibit_model(1)
    mixed = learned(1).descriptors.copy()
    mixed[3] = exhibit_model(2).views[0].descriptors[3]
    bad = {
        view_to_bytes(replace(learned(1), descriptors=mixed)): Refusal.NOT_SIMILAR,
        view_to_bytes(replace(learned(1), version=7)): Refusal.OUTDATED,
        view_to_bytes(replace(learned(2), object_id="exhibit-1")): Refusal.NOT_SIMILAR,
        view_to_bytes(replace(plain(1), view=4)): Refusal.NO_SUCH_FEATURE,
        view_to_bytes(plain(1, 3)): Refusal.WRONG_SIZE,
        view_to_bytes(noisy(plain(1), RULES.max_bits + 1)): Refusal.NOT_SIMILAR,
    }
    assert not kept.take_shared(list(bad), model)
    assert sum(kept.refused.values()) == len(bad)
    assert set(kept.refused) == set(bad.values())


def test_views_that_are_no_longer_listed_are_forgotten() -> None:
    kept, model = views(), exhibit_model(1)
    first, second, third = (view_to_bytes(noisy(plain(1), 30, seed)) for seed in range(3))
    kept.take_shared([first, second], model)
    assert kept.take_shared([second, third], model)
    assert {view_to_bytes(view) for view in kept.shared(model)} == {second, third}
    assert kept.take_shared([], model)
    assert kept.shared(model) == ()


def test_an_own_view_that_comes_back_from_the_list_is_not_kept_twice() -> None:
    kept, model = views(), exhibit_model(1)
    own = noisy(plain(1), 30)
    kept.add_own(own, model)
    assert not kept.take_shared([view_to_bytes(own)], model)
    assert len(kept) == 1


def test_a_new_version_of_the_model_begins_without_views() -> None:
    kept, model = views(), exhibit_model(1)
    kept.add_own(noisy(plain(1), 30), model)
    later = replace(model, version=2)
    assert kept.own(later) == ()
    assert not kept.take_shared([view_to_bytes(noisy(plain(1), 30))], later)
    assert kept.refused == {Refusal.OUTDATED: 1}
    assert len(kept) == 0


def test_objects_unused_for_longest_are_forgotten() -> None:
    kept = views(objects=2)
    for seed in (1, 2, 3):
        kept.add_own(noisy(plain(seed), 30), exhibit_model(seed))
    assert [len(kept.own(exhibit_model(seed))) for seed in (1, 2, 3)] == [0, 1, 1]
    kept.forget(["exhibit-2", "unknown"])
    assert [len(kept.own(exhibit_model(seed))) for seed in (2, 3)] == [0, 1]
