"""Networks of these tests are not measured: `tests/common/inference` and `test_processes.py` do that."""

from pathlib import Path

import pytest

from nearsight.common.inference import measurement_queue
from nearsight.common.inference.measurement import Cycle, Measurement
from support.networks import runtime_version


@pytest.fixture(autouse=True)
def _measured_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(path: Path, name: str, **limits: object) -> tuple[Measurement, list[Cycle]]:
        return Measurement(path.stat().st_size + 10_000, 5.0, 1.0, 0.5, runtime_version()), []

    monkeypatch.setattr(measurement_queue, "measure", measure)
