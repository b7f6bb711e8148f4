"""Groups of settings: errors of invalid values."""

from collections.abc import Callable

import pytest
from pydantic import Field, ValidationError

from nearsight.common.errors import ConfigurationError
from nearsight.common.settings import SettingsGroup


class Inner(SettingsGroup):
    """A group."""

    timeout_s: float = Field(default=1.0, gt=0)
    """How long to wait."""


class Outer(SettingsGroup):
    """A group in a group."""

    inner: Inner = Inner()
    """Nested."""
    name: str = "museum"
    """Name."""


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Inner(timeout_s=-1), r"Inner\.timeout_s: input should be greater than 0 \(given: -1\)"),
        (lambda: Inner(timeout_s=float("nan")), r"Inner\.timeout_s: .*given: nan"),
        (lambda: Inner(timeout=3), r"Inner\.timeout: .*not permitted \(given: 3\); it has timeout_s$"),
        (lambda: Outer(inner={"timeout_s": 0}), r"Outer\.inner\.timeout_s: .*see help\(Outer\)$"),
        (lambda: Outer(inner=3, name=5), r"Outer\.inner: .*, and 1 more; see"),
    ],
)
def test_an_invalid_group_is_a_configuration_error_of_one_line(
    build: Callable[[], object], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as raised:
        build()
    assert "\n" not in str(raised.value)


def test_a_validation_error_in_a_file_has_the_path_of_the_setting() -> None:
    with pytest.raises(ValidationError) as raised:
        Outer.model_validate({"inner": {"timeout_s": -1}})
    assert raised.value.errors()[0]["loc"] == ("inner", "timeout_s")
