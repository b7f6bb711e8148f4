"""All classifier backends by name."""

from __future__ import annotations

from collections.abc import Sequence

from nearsight.common.errors import ConfigurationError
from nearsight.common.recognition.classifiers.base import Classifier, VotingRule
from nearsight.common.recognition.classifiers.exact import ExactClassifier
from nearsight.common.recognition.classifiers.multihash import MultiHashClassifier
from nearsight.common.recognition.models import ObjectModel

AUTO = "auto"


def backend_names() -> tuple[str, ...]:
    """Names that `build_classifier` knows."""
    return (AUTO, "exact", "multihash")


def build_classifier(name: str, models: Sequence[ObjectModel], rule: VotingRule | None = None) -> Classifier:
    """Build the index of a backend over the models.

    Raises
    ------
    ConfigurationError
        If there is no backend of that name.
    MissingDependency
        If the backend's library is not installed.
    """
    chosen = rule or VotingRule()
    if name in (AUTO, "multihash"):
        return MultiHashClassifier(models, chosen)
    if name == "exact":
        return ExactClassifier(models, chosen)
    raise ConfigurationError(
        f"there is no classifier backend {name!r}", advice=f"choose one of {', '.join(backend_names())}"
    )
