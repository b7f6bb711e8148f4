import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from nearsight.common.video.regions import Rectangle, covering, largest_rectangles

SHAPES = st.tuples(st.integers(1, 12), st.integers(1, 12))


@st.composite
def masks(draw: st.DrawFn) -> NDArray[np.bool_]:
    rows, columns = draw(SHAPES)
    lines = draw(st.lists(st.integers(0, 2**columns - 1), min_size=rows, max_size=rows))
    return np.array([[bits >> column & 1 for column in range(columns)] for bits in lines], bool)


def drawn(*lines: str) -> NDArray[np.bool_]:
    return np.array([[cell == "#" for cell in line] for line in lines])


def count(boxes: tuple[Rectangle, ...], shape: tuple[int, ...]) -> NDArray[np.int_]:
    """How many rectangles hold each cell."""
    held = np.zeros(shape, int)
    for box in boxes:
        assert box.area
        held[box.top : box.bottom, box.left : box.right] += 1
    return held


def largest_area(mask: NDArray[np.bool_]) -> int:
    rows, columns = mask.shape
    return max(
        (bottom - top) * (right - left)
        for top in range(rows + 1)
        for bottom in range(top, rows + 1)
        for left in range(columns + 1)
        for right in range(left, columns + 1)
        if mask[top:bottom, left:right].all()
    )


def test_intersection_and_union_of_rectangles() -> None:
    one, other, far = Rectangle(0, 0, 4, 4), Rectangle(2, 3, 6, 8), Rectangle(5, 5, 9, 9)
    assert one.intersection(other) == (2, 3, 4, 4)
    assert one.union(other) == (0, 0, 6, 8)
    assert one.intersection(far).area == 0
    assert one.union(one.intersection(far)) == one.intersection(far).union(one) == one
    assert (other.height, other.width, other.area) == (4, 5, 20)


@given(masks())
def test_largest_rectangles_contain_exactly_the_true_cells_once(mask: NDArray[np.bool_]) -> None:
    boxes = largest_rectangles(mask)
    assert np.array_equal(count(boxes, mask.shape), mask)


@given(masks())
def test_each_rectangle_is_the_largest_of_the_remaining_cells(mask: NDArray[np.bool_]) -> None:
    left = mask[:6, :6].copy()
    for box in largest_rectangles(left):
        assert box.area == largest_area(left)
        left[box.top : box.bottom, box.left : box.right] = False


@given(masks(), st.integers(1, 9))
def test_a_covering_is_disjoint_and_contains_every_true_cell(mask: NDArray[np.bool_], most: int) -> None:
    boxes = covering(mask, most)
    held = count(boxes, mask.shape)
    assert len(boxes) <= most
    assert held.max() <= 1
    assert held[mask].all()
    assert all(mask[box.top : box.bottom, box.left : box.right].any() for box in boxes)


@given(masks(), st.integers(1, 9))
def test_one_rectangle_is_the_bounding_box_and_more_have_no_larger_area(
    mask: NDArray[np.bool_], most: int
) -> None:
    (*ends,) = covering(mask, 1)
    if not mask.any():
        assert not ends
        return
    rows, columns = np.nonzero(mask)
    assert ends == [(rows.min(), columns.min(), rows.max() + 1, columns.max() + 1)]
    assert sum(box.area for box in covering(mask, most)) <= ends[0].area


def test_a_ring_is_covered_by_its_four_sides() -> None:
    mask = np.ones((23, 23), bool)
    mask[1:-1, 1:-1] = False
    assert sum(box.area for box in covering(mask, 4)) == mask.sum()


def test_separate_blobs_have_separate_rectangles() -> None:
    mask = drawn("##....", "##....", "......", "....#.", "....##")
    assert covering(mask, 2) == ((0, 0, 2, 2), (3, 4, 5, 6))


def test_a_cell_beside_a_blob_is_separated_by_columns() -> None:
    mask = drawn("###...", "###...", "###..#")
    assert covering(mask, 2) == ((0, 0, 3, 3), (2, 5, 3, 6))
