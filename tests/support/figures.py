"""Draws an experiment's picture as a run does."""

import io
from collections.abc import Sequence

from matplotlib import rc_context

from nearsight.experiments.framework.drawing import STYLE
from nearsight.experiments.framework.experiment import Experiment, Results, StoredRow


def png_size(experiment: Experiment, rows: Sequence[StoredRow]) -> int:
    """Size of the picture of these rows in bytes; an empty picture is small."""
    file = io.BytesIO()
    with rc_context({**STYLE, **experiment.style}):
        experiment.draw(Results(rows, experiment.metrics(rows))).savefig(file, dpi=160)
    return file.tell()
