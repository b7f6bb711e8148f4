"""The benchmark of the twin."""

import pytest

from nearsight.experiments.bench.twin import Size, run
from nearsight.experiments.twin.session import ADAPTIVE


@pytest.mark.system
def test_a_run_of_the_requested_size_is_measured() -> None:
    (row,) = run(lambda _: None, (Size(ADAPTIVE, 4, 2, 5.0),)).rows
    assert (row["devices"], row["edges"], row["seconds"]) == (4, 2, 5.0)
    assert 4 * 3 <= row["requests"] <= 4 * 5
    assert row["warming_s"] > 0
    assert row["device_seconds_per_s"] > 0
    assert row["memory_mib"] > 10
