"""Figure 6.4's visitors with photos that have the keys of clips, and the targets."""

from pathlib import Path

from nearsight.experiments.studies.approximate_keys.visits_figure import Figure, configured, filmed
from nearsight.experiments.studies.cachier.scale.configurations import EDGE, FULL
from nearsight.experiments.traces.plan import PlannedPhoto
from nearsight.experiments.twin.cost_model import Hardware
from nearsight.experiments.twin.photos import TwinPhoto
from nearsight.experiments.twin.session import TwinVisitor


def _visitor(name: str, *looks: str) -> TwinVisitor:
    plan = [
        (PlannedPhoto(float(second), shown, Path("x")), TwinPhoto(shown, 30_000, 200.0, True))
        for second, shown in enumerate(looks)
    ]
    return TwinVisitor(name, plan)


def test_photos_of_one_stay_share_keys() -> None:
    looked = filmed(_visitor("ann", *["0002"] * 6, *["0005"] * 6), 1, 7)
    first, second = ([{*photo.keys} for _, photo in looked.plan[at : at + 6]] for at in (0, 6))
    assert sum(bool(one & another) for one in first for another in first) > 2 * 6
    assert not any(one & another for one in first for another in second)
    assert [photo.object_id for _, photo in looked.plan] == ["0002"] * 6 + ["0005"] * 6


def test_photos_of_another_clip_have_other_keys() -> None:
    ann, bob = (filmed(_visitor("v", *["0002"] * 4), 1, clip) for clip in (1, 2))
    assert [photo.keys for _, photo in ann.plan] != [photo.keys for _, photo in bob.plan]


def test_slower_and_wrong_answers_with_the_cache_miss_the_targets() -> None:
    rows = [
        {
            "views": "views of clips",
            "tiers": tiers,
            "result_cache": where,
            "visitors": "5",
            "run": "1",
            "requests": "100",
            "failed": "0",
            "wrong": "3" if where == "device" else "0",
            "served": "0",
            "p50_ms": "20.0",
            "p95_ms": "40.0" if where == "edge" else "30.0",
        }
        for tiers, where in (
            ("load-balanced", "off"),
            ("load-balanced", "edge"),
            ("prefetching-adaptive", "off"),
            ("prefetching-adaptive", "edge"),
            ("prefetching-adaptive", "device"),
        )
    ]
    missed = [target.text for target in Figure().targets(Figure().metrics(rows)) if not target.reached]
    assert len(missed) == 3
    assert sum("p95" in text for text in missed) == 2
    assert sum("wrong" in text for text in missed) == 1


def test_edges_have_as_many_workers_as_in_figure_6_4() -> None:
    for tiers, where in ((EDGE, "off"), (FULL, "edge"), (FULL, "device")):
        played = configured(tiers, where, Hardware(edge=7))
        assert played.edge is not None
        assert played.edge.server.workers == 7
        enabled = {"edge": played.edge.result_cache.enabled, "device": played.device.result_cache.enabled}
        assert [place for place, on in enabled.items() if on] == ([] if where == "off" else [where])
