"""Propagation of regions through windows and graphs, against brute force over every cell."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument
from nearsight.common.video.propagation import Node, Pair, RegionGraph, Window
from nearsight.common.video.regions import Rectangle
from support.regions import bounds, mask_of, rectangles

Mask = NDArray[np.bool_]

pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
windows = st.one_of(
    st.builds(
        Window,
        kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
        stride=pairs,
        pads=st.tuples(*[st.integers(0, 2)] * 4),
        dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
        ceil=st.booleans(),
        repeats=st.tuples(st.integers(1, 2), st.integers(1, 2)),
        spread=st.just(False),
    ),
    st.builds(
        partial(Window, spread=True),  # hypothesis would draw the missing fields of a named tuple
        kernel=st.tuples(st.integers(3, 5), st.integers(3, 5)),
        pads=st.tuples(*[st.integers(2, 4)] * 4),
        repeats=pairs,
    ),
)
shapes = st.tuples(st.integers(3, 12), st.integers(3, 12))


def taps(window: Window, output: int, axis: int) -> range:
    """The inputs that the window of an output spans, before it is cut off at the map."""
    start = output * window.stride[axis] - window.pads[axis]
    span = window.dilation[axis] * (window.kernel[axis] - 1) + 1
    repeats = window.repeats[axis]
    if window.spread:  # every second cell is zero
        return range(-(-start // repeats), (start + span - 1) // repeats + 1)
    return range(start // repeats, (start + span - 1) // repeats + 1)


def any_in_window(window: Window, mask: Mask, beyond: bool = False) -> Mask:
    """For each output, whether its window covers a true cell; cells outside of the map are ``beyond``.

    A mask (..., rows, columns) may have further axes in front, for several masks.
    """
    shape = mask.shape[-2], mask.shape[-1]
    spans = [np.zeros((length, shape[axis] + 80)) for axis, length in enumerate(window.shape_out(shape))]
    for axis, span in enumerate(spans):
        for output, covered in enumerate(span):
            inputs = taps(window, output, axis)
            covered[inputs.start + 40 : inputs.stop + 40] = 1
    around = np.pad(mask, [(0, 0)] * (mask.ndim - 2) + [(40, 40)] * 2, constant_values=beyond)
    covered_cells: NDArray[np.float64] = spans[0] @ around @ spans[1].T
    return covered_cells > 0


def cells_read(graph: RegionGraph, wanted: Rectangle) -> Rectangle:
    """Cells of the source that these cells of the target depend on."""
    top, left, bottom, right = wanted
    rows, columns = graph.rows, graph.columns
    return Rectangle(rows.low[top], columns.low[left], rows.high[bottom], columns.high[right])


def test_the_example_of_the_paper_is_reproduced() -> None:
    window = Window(kernel=(11, 11), stride=(2, 2), pads=(5, 5, 5, 5))
    assert window.filled(0, 100, 140) == (53, 53 + 15)
    assert window.filled(1, 100, 200) == (53, 53 + 45)


@given(st.data(), windows, shapes)
def test_a_window_touches_and_reads_exactly_what_brute_force_finds(
    data: st.DataObject, window: Window, shape: Pair
) -> None:
    shape_out = window.shape_out(shape)
    assume(min(shape_out) > 0)
    graph = RegionGraph([Node(window, ("a",), "b")], "a", "b", shape)
    changed = data.draw(rectangles(shape))
    found = bounds(any_in_window(window, mask_of(shape, changed)))
    assert graph.changed([changed]) == (() if found is None else (found,))
    wanted = data.draw(rectangles(shape_out))
    rows = [row for output in range(wanted.top, wanted.bottom) for row in taps(window, output, 0)]
    columns = [column for output in range(wanted.left, wanted.right) for column in taps(window, output, 1)]
    read = Rectangle(min(rows), min(columns), max(rows) + 1, max(columns) + 1)
    inside = read.intersection(Rectangle(0, 0, *shape))
    needed = cells_read(graph, wanted)
    assert needed == inside or not (needed.area or inside.area)


@given(st.data(), windows, shapes)
def test_reusable_outputs_depend_on_nothing_but_the_rectangle(
    data: st.DataObject, window: Window, shape: Pair
) -> None:
    assume(min(window.shape_out(shape)) > 0)
    kept = data.draw(rectangles(shape))
    depends = ~any_in_window(window, ~mask_of(shape, kept), beyond=True)
    (top, bottom), (left, right) = window.filled(0, *kept[::2]), window.filled(1, *kept[1::2])
    found = Rectangle(top, left, bottom, right).intersection(Rectangle(0, 0, *depends.shape))
    assert (found if found.area else None) == bounds(depends)


def test_an_empty_change_changes_no_output() -> None:
    graph = RegionGraph([Node(Window(kernel=(3, 3)), ("a",), "b")], "a", "b", (12, 12))
    assert graph.changed([Rectangle(4, 4, 4, 9)]) == ()


def test_a_stride_beyond_the_kernel_skips_cells() -> None:
    graph = RegionGraph([Node(Window(kernel=(1, 1), stride=(2, 2)), ("a",), "b")], "a", "b", (9, 9))
    assert graph.changed([Rectangle(3, 3, 4, 4)]) == ()
    assert graph.changed([Rectangle(3, 3, 5, 4)]) == ()
    assert graph.changed([Rectangle(3, 3, 5, 5)]) == (Rectangle(2, 2, 3, 3),)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Node], Pair]:
    """Windows in a row; some have a branch beside them that is joined again."""
    shape, nodes, last = draw(shapes), list[Node](), "map 0"
    size = shape
    for number in range(1, draw(st.integers(1, 4)) + 1):
        kernel, strides = draw(st.tuples(st.integers(1, 2), st.integers(1, 2))), draw(pairs)
        one = Window((2 * kernel[0] + 1, 2 * kernel[1] + 1), strides, (kernel[0], kernel[1]) * 2)
        nodes.append(Node(one, (last,), f"left {number}"))
        joined: tuple[str, ...] = (f"left {number}",)
        if draw(st.booleans()):
            other = draw(st.sampled_from([Window(stride=strides), Window((3, 3), strides, (1, 1, 1, 1))]))
            nodes.append(Node(other, (last,), f"right {number}"))
            joined = (*joined, f"right {number}")
        last, size = f"map {number}", one.shape_out(size)
        repeats = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
        nodes.append(Node(Window(repeats=repeats), joined, last))
    return nodes, shape


def through(nodes: list[Node], mask: Mask, beyond: bool = False) -> Mask:
    masks = {"map 0": mask}
    for node in nodes:
        united = np.logical_or.reduce([masks[name] for name in node.inputs])
        masks[node.output] = any_in_window(node.operator, united, beyond)
    return masks[nodes[-1].output]


@settings(max_examples=60)
@given(st.data(), graphs())
def test_outputs_of_a_graph_outside_of_the_changed_set_depend_on_no_changed_cell(
    data: st.DataObject, drawn: tuple[list[Node], Pair]
) -> None:
    nodes, shape = drawn
    changed = data.draw(rectangles(shape))
    graph = RegionGraph(nodes, "map 0", nodes[-1].output, shape)
    truth = through(nodes, mask_of(shape, changed))
    assert graph.shapes[nodes[-1].output] == truth.shape
    reported = mask_of((truth.shape[0], truth.shape[1]), *graph.changed([changed]))
    assert not (truth & ~reported).any()
    # For a change that no window reads, the tables per axis may still report a rectangle.
    if truth.any() and all(len(node.inputs) == 1 for node in nodes):
        assert bounds(truth) == bounds(reported)


@settings(max_examples=25)
@given(st.data(), graphs())
def test_a_graph_needs_exactly_the_cells_that_reach_the_wanted_outputs(
    data: st.DataObject, drawn: tuple[list[Node], Pair]
) -> None:
    nodes, shape = drawn
    graph = RegionGraph(nodes, "map 0", nodes[-1].output, shape)
    shape_out = graph.shapes[nodes[-1].output]
    assume(min(shape_out) > 0)
    wanted = mask_of(shape_out, data.draw(rectangles(shape_out)))
    each_cell = np.eye(shape[0] * shape[1], dtype=bool).reshape(-1, *shape)
    reaching = (through(nodes, each_cell) & wanted).any(axis=(1, 2)).reshape(shape)
    found = bounds(wanted)
    assert found is not None
    needed = cells_read(graph, found)
    assert (needed if needed.area else None) == bounds(reaching)


@settings(max_examples=60)
@given(st.data(), graphs())
def test_at_an_offset_only_cells_that_read_no_padding_in_either_place_are_kept(
    data: st.DataObject, drawn: tuple[list[Node], Pair]
) -> None:
    nodes, shape = drawn
    graph = RegionGraph(nodes, "map 0", nodes[-1].output, shape)
    steps = data.draw(st.tuples(st.integers(-2, 2), st.integers(-2, 2)))
    assume(steps != (0, 0))
    offset = steps[0] * graph.stride[0], steps[1] * graph.stride[1]
    padded = through(nodes, np.zeros(shape, bool), beyond=True)
    moved = [int(one / reduction) for one, reduction in zip(offset, graph.reduction, strict=True)]
    there = np.pad(padded, 200, constant_values=True)
    rows, columns = padded.shape
    there = there[200 + moved[0] : 200 + moved[0] + rows, 200 + moved[1] : 200 + moved[1] + columns]
    reported = mask_of((rows, columns), *graph.changed([], offset))
    assert (reported == (padded | there)).all()


def test_an_offset_that_is_no_multiple_of_the_stride_is_refused() -> None:
    nodes = [Node(Window((3, 3), (2, 2)), ("a",), "b"), Node(Window((3, 3), (2, 2)), ("b",), "c")]
    graph = RegionGraph(nodes, "a", "c", (32, 32))
    assert graph.stride == (4, 4)
    with pytest.raises(InvalidArgument, match="offset of 2 cells is not a multiple of the stride 4"):
        graph.changed([], (2, 0))


def test_upsampling_keeps_the_stride_of_the_maps_before_it() -> None:
    nodes = [
        Node(Window((3, 3), (4, 4), (1, 1, 1, 1)), ("a",), "b"),
        Node(Window(repeats=(2, 2)), ("b",), "c"),
    ]
    graph = RegionGraph(nodes, "a", "c", (32, 32))
    assert graph.stride == (4, 4)
    assert graph.reduction == (2, 2)
    assert graph.shapes["c"] == (16, 16)


def test_a_target_that_depends_on_another_input_is_refused() -> None:
    nodes = [Node(Window(), ("a", "gate"), "b")]
    with pytest.raises(InvalidArgument, match="'b' cannot be computed from 'a': it depends on gate"):
        RegionGraph(nodes, "a", "b", (8, 8))


def test_maps_of_different_strides_cannot_be_joined() -> None:
    nodes = [
        Node(Window((1, 1), (2, 2)), ("a",), "b"),
        Node(Window((5, 5)), ("a",), "c"),
        Node(Window(), ("b", "c"), "d"),
    ]
    with pytest.raises(InvalidArgument, match="'d' combines maps of different sizes or strides"):
        RegionGraph(nodes, "a", "d", (8, 8))
