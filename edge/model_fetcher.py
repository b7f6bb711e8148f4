"""The edge's model fetcher: see `nearsight.common.model_fetcher`."""

from nearsight.common.model_fetcher import ModelFetcher

__all__ = ["ModelFetcher"]
