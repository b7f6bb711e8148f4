"""Partial executions give the answers of whole executions, for any changes and motion."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nearsight.common.errors import InternalError, InvalidArgument
from nearsight.common.inference import region_reuse, segmented_network
from nearsight.common.inference.region_reuse import PartialNetwork
from nearsight.common.inference.reuse_cost import Costs, SegmentCost
from nearsight.common.inference.runtime import Network, Runtime
from nearsight.common.video.regions import Rectangle
from support.networks import ALWAYS
from support.regions import moved, rectangles
from support.videos import SIDE, convolutional_network

Frame = NDArray[np.float32]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convolutional_network(tmp_path_factory.mktemp("network") / "small.onnx")


@pytest.fixture(scope="module")
def plain(runtime: Runtime, path: Path) -> Iterator[Network]:
    network = runtime.load(path, "small")
    yield network
    network.close()


@pytest.fixture(scope="module")
def partial(runtime: Runtime, path: Path) -> Iterator[PartialNetwork]:
    """Reuses all it can, even if that takes longer."""
    network = PartialNetwork(runtime, path, "small", path.with_suffix(".segments"), least_saved_ms=ALWAYS)
    segmented = network._segmented
    assert not network.why_whole, network.why_whole
    segmented.costs = Costs.preferring_crops(len(segmented.loaded))
    yield network
    network.close()


def test_two_networks_that_need_the_same_segments_create_them_once(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut, cuts = PartialNetwork._cut, list[Path]()

    def counted(network: PartialNetwork, aside: Path) -> dict[str, Any]:
        cuts.append(aside)
        return cut(network, aside)

    def open_one(_: int) -> str:
        runtime = Runtime()
        network = PartialNetwork(runtime, path, "small", tmp_path / "segments", least_saved_ms=ALWAYS)
        network.close()
        runtime.close()
        return network.why_whole

    monkeypatch.setattr(PartialNetwork, "_cut", counted)
    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(open_one, range(2))] == ["", ""]
    assert len(cuts) == 1


def noise(seed: int, side: int = SIDE) -> Frame:
    return np.random.default_rng(seed).uniform(-1, 1, (1, 3, side, side)).astype(np.float32)


@settings(max_examples=30)
@given(
    changes=st.lists(st.lists(rectangles((SIDE, SIDE)), max_size=3), min_size=1, max_size=4),
    steps=st.tuples(st.integers(-1, 1), st.integers(-1, 1)),
)
def test_answers_are_those_of_whole_executions(
    partial: PartialNetwork, plain: Network, changes: list[list[Rectangle]], steps: tuple[int, int]
) -> None:
    offset = steps[0] * partial.stride[0], steps[1] * partial.stride[1]
    partial.reset()
    frame = noise(0)
    partial.run(frame)
    for number, changed in enumerate(changes, 1):
        frame, revealed = moved(frame, noise(number), offset)
        for one in changed:
            inside = np.s_[:, :, one.top : one.bottom, one.left : one.right]
            frame[inside] = noise(100 + number)[inside]
        found = partial.run(frame, [*changed, *revealed], offset)["logits"]
        np.testing.assert_allclose(found, plain.run({"": frame})["logits"], rtol=1e-4, atol=1e-5)


def test_a_small_change_executes_a_small_part_and_no_change_executes_nothing(partial: PartialNetwork) -> None:
    partial.reset()
    frame = noise(0)
    partial.run(frame)
    patch = Rectangle(0, 0, 8, 8)
    assert partial.would_reuse([patch])
    partial.run(frame, [patch])
    first = partial.explain()[0]
    assert first.done == "regions"
    assert first.share < 0.3
    answer = partial.run(frame)
    assert (partial.run(frame, [])["logits"] == answer["logits"]).all()
    assert {one.done for one in partial.explain()} == {"kept"}
    partial.run(1.0 - frame)
    assert (partial.unchanged()["logits"] != answer["logits"]).any()
    assert {one.done for one in partial.explain()} == {"kept"}
    partial.reset()
    assert partial.unchanged() == {}


@pytest.mark.parametrize("one_call", [True, False], ids=["uncut", "in segments"])
def test_a_frame_whose_maps_are_not_stored_has_the_outputs_of_a_whole_execution(
    partial: PartialNetwork, plain: Network, monkeypatch: pytest.MonkeyPatch, one_call: bool
) -> None:
    if not one_call:  # a long tail exists only once
        monkeypatch.setattr(partial._segmented, "_uncut", None)
    partial.reset()
    partial.run(noise(0))
    frame, patch = noise(1), [Rectangle(0, 0, 8, 8)]
    answer = partial.run_whole(frame)["logits"]
    np.testing.assert_allclose(answer, plain.run({"": frame})["logits"], rtol=1e-4, atol=1e-5)
    assert not answer.flags.writeable
    assert {one.done for one in partial.explain()} == {"whole"}
    assert not partial.would_reuse(patch)
    assert (partial.unchanged()["logits"] == answer).all()
    partial.run(frame)
    assert not partial.would_reuse(patch), "maps are stored again only when they would have paid"
    with pytest.raises(InvalidArgument, match="shape"):
        partial.run_whole(noise(0, SIDE // 2))


@pytest.fixture
def tolerant(partial: PartialNetwork) -> Iterator[PartialNetwork]:
    """The same network, which keeps values that differ by less than half of a standard deviation."""
    segmented = partial._segmented
    costs, segmented.costs = segmented.costs, segmented.costs._replace(tail_ms=10.0)
    partial.reset()
    partial.tolerance = 0.5
    yield partial
    partial.tolerance, segmented.costs = 0.0, costs


def test_a_change_that_ends_inside_the_network_gives_the_last_answer(tolerant: PartialNetwork) -> None:
    frame, patch = noise(0), Rectangle(8, 8, 24, 24)
    answer = tolerant.run(frame)["logits"]
    changed = frame.copy()
    changed[:, :, 8:24, 8:24] += 0.01
    assert tolerant.run(changed, [patch])["logits"] is answer
    first, *others = tolerant.explain()
    assert first.done == "regions"
    assert {one.done for one in others} == {"kept"}
    tolerant.tolerance = 0.0
    assert (tolerant.run(changed, [patch])["logits"] != answer).any()


def test_small_changes_are_recomputed_before_their_sum_exceeds_the_tolerance(
    tolerant: PartialNetwork, plain: Network
) -> None:
    tolerant.tolerance = 0.25  # applies once per segment, and their number depends on measured times
    patch = Rectangle(8, 8, 24, 24)
    frame, other = noise(0), noise(1)
    answers = [tolerant.run(frame)["logits"]]
    for step in range(1, 41):
        shown = frame.copy()
        shown[:, :, 8:24, 8:24] += step / 40 * (other - frame)[:, :, 8:24, 8:24]
        answers.append(tolerant.run(shown, [patch])["logits"])
    wanted, first = plain.run({"": shown})["logits"], answers[0]
    assert any(answer is before for answer, before in zip(answers[1:], answers, strict=False))
    assert np.linalg.norm(answers[-1] - wanted) < 0.5 * np.linalg.norm(first - wanted)


def test_small_changes_do_not_add_up_if_a_segment_runs_whole_in_between(
    runtime: Runtime, path: Path, plain: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole execution also replaces the cells that were kept within the tolerance."""
    monkeypatch.setattr(region_reuse, "choose_cuts", lambda cuts, *_: [cut.position for cut in cuts])
    network = PartialNetwork(runtime, path, "small", tmp_path / "segments", least_saved_ms=ALWAYS)
    segmented = network._segmented
    costs = Costs.preferring_crops(len(segmented.loaded))
    first, *others = costs.segments
    segmented.costs = costs._replace(
        segments=(first._replace(whole_ms=10.0, area_ms=20.0), *others), tail_ms=10.0
    )
    network.tolerance = 0.25
    patch, far = Rectangle(8, 8, 24, 24), Rectangle(0, SIDE // 2, SIDE, SIDE)
    frame, other = noise(0), noise(1)
    before = network.run(frame)["logits"]
    for step in range(1, 41):
        shown = frame.copy()
        shown[:, :, 8:24, 8:24] += step / 40 * (other - frame)[:, :, 8:24, 8:24]
        network.run(shown, [patch])
        found = network.run(shown.copy(), [far])["logits"]  # the pixels are equal
        assert network.explain()[0].done == "whole"
    wanted = plain.run({"": shown})["logits"]
    network.close()
    assert np.linalg.norm(found - wanted) < 0.5 * np.linalg.norm(before - wanted)


def test_large_changes_are_recomputed_exactly_despite_a_tolerance(
    tolerant: PartialNetwork, plain: Network
) -> None:
    tolerant.tolerance = 1e-6
    frame, rng = noise(0), np.random.default_rng(0)
    tolerant.run(frame.copy())
    for number in range(1, 40):
        top, left, height, width = (int(one) for one in rng.integers(1, SIDE // 2, 4))
        changed = Rectangle(top, left, top + height, left + width)
        inside = np.s_[:, :, changed.top : changed.bottom, changed.left : changed.right]
        frame[inside] = noise(100 + number)[inside]
        found = tolerant.run(frame.copy(), [changed])["logits"]
        np.testing.assert_allclose(found, plain.run({"": frame})["logits"], rtol=1e-4, atol=1e-4)


def test_frames_without_a_tolerance_do_not_change_what_frames_with_one_have_learnt(
    tolerant: PartialNetwork,
) -> None:
    segmented = tolerant._segmented
    frame, patch = noise(0), Rectangle(8, 8, 24, 24)
    tolerant.run(frame)
    for _ in range(10):  # the patch is recomputed, and nothing differs
        tolerant.run(frame.copy(), [patch])
    learnt = [*segmented._differing]
    assert learnt[0] < 0.2
    tolerant.tolerance = 0.0
    for number in range(1, 4):
        tolerant.run(noise(number), [patch])
        assert tolerant.explain()[0].done == "regions"
    assert segmented._differing == learnt


def test_nothing_is_compared_where_little_time_follows(tolerant: PartialNetwork) -> None:
    segmented = tolerant._segmented
    count = len(segmented.loaded)  # depends on measured times
    segmented.costs = Costs.preferring_crops(count)._replace(rests_ms=(math.inf, *[0.0] * count))
    frame, patch = noise(0), Rectangle(8, 8, 24, 24)
    answer = tolerant.run(frame)["logits"]
    changed = frame.copy()
    changed[:, :, 8:24, 8:24] += 0.01
    assert tolerant.run(changed, [patch])["logits"] is not answer


@pytest.mark.parametrize(("slower", "reuses"), [("everything", True), ("crops", False)])
def test_reuse_ends_if_crops_become_slower_but_not_if_everything_does(
    runtime: Runtime, path: Path, slower: str, reuses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = PartialNetwork(runtime, path, "small", path.with_suffix(".segments"), least_saved_ms=ALWAYS)
    segmented = network._segmented
    count, now_ms = len(segmented.loaded), [0.0]
    rests_ms = tuple(10.0 * (count - number) for number in range(count + 1))
    segmented.costs = Costs((SegmentCost(10.0, 1.0, 10.0),) * count, rests_ms, 10.0)
    segmented.reset()

    def taking(run: Callable[..., Any], ms: float) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            now_ms[0] += ms
            return run(*given)

        return timed

    factor = 6.0 if slower == "everything" else 1.0
    for one, rest, rest_ms in zip(segmented.loaded, segmented.rests, rests_ms[:-1], strict=True):
        monkeypatch.setattr(one, "run_whole", taking(one.run_whole, factor * 10.0))
        monkeypatch.setattr(one, "run_crop", taking(one.run_crop, 6.0 * 2.0))
        monkeypatch.setattr(rest, "run_whole", taking(rest.run_whole, factor * rest_ms))
    monkeypatch.setattr(segmented, "run_tail", taking(segmented.run_tail, factor * 10.0))
    clock = SimpleNamespace(thread_time=lambda: now_ms[0] / 1e3)
    monkeypatch.setattr(segmented_network, "time", clock)
    monkeypatch.setattr(segmented, "_uncut", None)
    frame, patch = noise(0), Rectangle(0, 0, 8, 8)
    for _ in range(12):
        network.run(frame.copy())
        network.run(frame.copy(), [patch])
    assert network.would_reuse([patch]) is reuses
    monkeypatch.undo()
    network.close()


def test_the_largest_reusable_change_depends_on_the_required_saving(
    runtime: Runtime, path: Path, partial: PartialNetwork, tmp_path: Path
) -> None:
    easy = PartialNetwork(runtime, path, "small", tmp_path / "s", least_saved_ms=ALWAYS)
    assert easy.most_changed == 0.9
    assert partial.most_changed <= 0.9
    easy.close()


def test_prepared_segments_are_used_again(runtime: Runtime, path: Path, partial: PartialNetwork) -> None:
    folder = path.with_suffix(".segments")
    before = {one: one.stat().st_mtime_ns for one in folder.rglob("*")}
    PartialNetwork(runtime, path, "small", folder, least_saved_ms=ALWAYS).close()
    assert {one: one.stat().st_mtime_ns for one in folder.rglob("*")} == before
    assert partial.why_whole == ""


def test_segments_of_an_earlier_format_are_prepared_again(
    runtime: Runtime, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepared() -> float:
        PartialNetwork(runtime, path, "small", tmp_path / "s", least_saved_ms=ALWAYS).close()
        return next(tmp_path.glob("s/*/segments.json")).stat().st_ino

    with monkeypatch.context() as earlier:
        earlier.setattr(region_reuse, "_FORMAT", 0)
        before = prepared()
    assert prepared() != before


def test_the_reason_names_segments_that_the_library_cannot_execute(
    runtime: Runtime, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise InternalError("execution of small failed")

    monkeypatch.setattr(Network, "bind", fail)
    network = PartialNetwork(runtime, path, "small", tmp_path / "s", least_saved_ms=ALWAYS)
    assert network.why_whole == "its segments cannot be executed: execution of small failed"
    network.close()


def test_the_reason_names_outputs_whose_number_of_elements_differs(
    runtime: Runtime, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A detector may find another number of objects if the last bits of its maps differ."""
    run_tail = segmented_network.SegmentedNetwork.run_tail
    monkeypatch.setattr(
        segmented_network.SegmentedNetwork,
        "run_tail",
        lambda self: {name: values[:, 1:] for name, values in run_tail(self).items()},
    )
    monkeypatch.setattr(segmented_network, "_SHORT_TAIL_BYTES", -1)
    network = PartialNetwork(runtime, path, "small", tmp_path / "s", least_saved_ms=ALWAYS)
    assert network.why_whole == "the output 'logits' of its segments differs"
    network.close()


def test_frames_of_another_shape_are_refused_by_a_network_of_fixed_size(partial: PartialNetwork) -> None:
    with pytest.raises(InvalidArgument, match="has shape"):
        partial.run(noise(0, 32))


def test_a_network_of_open_size_is_segmented_again_for_another_size(runtime: Runtime, tmp_path: Path) -> None:
    path = convolutional_network(tmp_path / "open.onnx", side=None)
    network, plain = (
        PartialNetwork(runtime, path, "open", tmp_path / "s", size=(48, 40), least_saved_ms=ALWAYS),
        runtime.load(path, "o"),
    )
    assert network.unchanged() == {}, "executions before the first frame leave no outputs"
    for side in (48, 64):
        frame = noise(0, side)
        expected = plain.run({"": frame})["logits"]
        np.testing.assert_allclose(network.run(frame)["logits"], expected, rtol=1e-4, atol=1e-5)
    network.close()
    plain.close()


def test_a_network_whose_sides_must_be_equal_runs_whole_if_they_are_not(
    runtime: Runtime, tmp_path: Path
) -> None:
    path = convolutional_network(tmp_path / "equal.onnx", side="side")
    network = PartialNetwork(runtime, path, "equal", tmp_path / "s", size=(48, 40), least_saved_ms=ALWAYS)
    assert "the axis 'side' of equal cannot have the sizes 48 and 40" in network.why_whole
    frame = np.ascontiguousarray(noise(0, 48)[..., :40])
    assert network.run(frame, [Rectangle(0, 0, 48, 40)])["logits"].shape == (1, 3)
    network.close()


def test_a_network_without_spatial_reuse_runs_whole_and_gives_the_reason(
    runtime: Runtime, tmp_path: Path
) -> None:
    path = convolutional_network(tmp_path / "mean.onnx", spatial=False)
    network = PartialNetwork(runtime, path, "mean", tmp_path / "segments")
    assert network.why_whole
    assert not network.would_reuse([Rectangle(0, 0, 4, 4)])
    assert network.run(noise(0), [Rectangle(0, 0, 4, 4)])["logits"].shape == (1, 3)
    assert network.explain() == ()
    network.close()


def test_only_unchanged_frames_are_reused_if_regions_save_too_little(
    runtime: Runtime, path: Path, plain: Network, tmp_path: Path
) -> None:
    network = PartialNetwork(runtime, path, "small", tmp_path / "s", least_saved_ms=math.inf)
    assert "less than matching takes" in network.why_whole
    assert network.most_changed == 0.0
    assert network.unchanged() == {}
    first, second = noise(0), noise(1)
    answer = network.run(first)["logits"]
    assert (network.run(second, [])["logits"] == answer).all()
    assert not answer.flags.writeable
    expected = plain.run({"": second})["logits"]
    assert (network.run(second, [Rectangle(0, 0, 4, 4)])["logits"] == expected).all()
    assert (network.run(first, [], (4, 0))["logits"] == answer).all()
    network.reset()
    assert (network.run(second, [])["logits"] == expected).all()
    network.close()
