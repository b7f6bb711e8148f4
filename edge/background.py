"""The edge's background thread: see `nearsight.common.background`."""

from nearsight.common.background import BackgroundWorker, Job

__all__ = ["BackgroundWorker", "Job"]
