"""A PDF that came from a peer is checked."""

import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.next_objects import NextObjects


def test_what_is_cut_off_joins_what_remains() -> None:
    first = NextObjects(("a", "b"), np.array([0.5, 0.3]), 0.2).top(1)
    assert (first.object_ids, first.remaining) == (("a",), 0.5)


@pytest.mark.parametrize(
    ("object_ids", "probabilities", "remaining"),
    [
        (("a",), [0.5, 0.5], 0.0),
        (("a", "a"), [0.5, 0.5], 0.0),
        (("a", "b"), [0.3, 0.7], 0.0),
        (("a",), [-0.5], 1.5),
        (("a",), [np.nan], 0.5),
        (("a",), [0.7], 0.7),
        (("a",), [1.5], -0.5),
        (("a",), [0.5], np.nan),
    ],
)
def test_what_is_no_distribution_is_refused(
    object_ids: tuple[str, ...], probabilities: list[float], remaining: float
) -> None:
    with pytest.raises(InvalidArgument):
        NextObjects(object_ids, np.array(probabilities), remaining)
