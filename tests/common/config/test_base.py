"""Settings: precedence of sources, origins of values, and errors."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from nearsight.common.command_line.options import flag_overrides
from nearsight.common.config.base import Loaded, RpcDaemonSettings, load_settings
from nearsight.common.errors import ConfigurationError
from nearsight.common.settings import SettingsGroup


@dataclass(frozen=True)
class Limits:
    max_bytes: int = 1000
    max_pixels: int = 2000


class Group(SettingsGroup):
    """A nested group."""

    workers: Annotated[int, Field(ge=1, le=64)] = 2
    """Threads that compute."""
    limits: Limits = Limits()


class Foreign(BaseModel):
    """A group of another package, without our base class."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    ratio: float = 0.8


class ExampleSettings(RpcDaemonSettings):
    """Every kind of setting."""

    name: str = "example"
    tags: tuple[str, ...] = ()
    weights: dict[str, float] = Field(default_factory=dict)
    group: Group = Group()
    foreign: Foreign | None = Foreign()
    special: Group = Group(workers=7, limits=Limits(max_bytes=77))
    bounds: Limits = Limits(max_bytes=7)


@pytest.fixture(autouse=True)
def _nothing_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run in a folder without a settings file, with an empty home folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


def load(text: str | None = None, **overrides: object) -> Loaded[ExampleSettings]:
    if text is not None:
        Path("nearsight.toml").write_text(text)
    return load_settings(ExampleSettings, "edge", None, overrides)


def mistake(text: str | None = None, overrides: dict[str, object] | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(text, **(overrides or {}))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_any_source_the_defaults_apply() -> None:
    loaded = load()
    assert loaded.settings == ExampleSettings()
    assert set(loaded.origins.values()) == {"default"}
    assert {"log_level", "group.workers", "group.limits.max_bytes", "foreign.ratio", "weights"} <= set(
        loaded.origins
    )


def test_flags_win_over_environment_over_file_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "[edge]\nname = 'file'\nlog_level = 'DEBUG'\n[edge.group]\nworkers = 3\n"
    monkeypatch.setenv("NEARSIGHT_EDGE__NAME", "environment")
    monkeypatch.setenv("NEARSIGHT_EDGE__GROUP__WORKERS", "4")
    loaded = load(text, **{"group.workers": 5})
    assert (loaded.settings.log_format, loaded.origins["log_format"]) == ("console", "default")
    assert (loaded.settings.log_level, loaded.origins["log_level"]) == ("DEBUG", "nearsight.toml:3")
    assert (loaded.settings.name, loaded.origins["name"]) == ("environment", "NEARSIGHT_EDGE__NAME")
    assert (loaded.settings.group.workers, loaded.origins["group.workers"]) == (5, "command line")


def test_one_member_of_a_group_can_be_set_without_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARSIGHT_EDGE__GROUP__LIMITS__MAX_PIXELS", "7")
    loaded = load("[edge.group.limits]\nmax_bytes = 5\n")
    assert loaded.settings.group.limits == Limits(max_bytes=5, max_pixels=7)
    assert loaded.settings.group.workers == 2


def test_setting_one_member_keeps_the_defaults_of_the_others() -> None:
    loaded = load(**{"special.limits.max_pixels": 9, "bounds.max_pixels": "8"})
    assert loaded.settings.special == Group(workers=7, limits=Limits(max_bytes=77, max_pixels=9))
    assert loaded.settings.bounds == Limits(max_bytes=7, max_pixels=8)
    assert loaded.origins["special.workers"] == "default"


def test_building_the_class_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAME", "stray")
    monkeypatch.setenv("NEARSIGHT_EDGE__NAME", "environment")
    assert ExampleSettings().name == "example"


def test_a_variable_of_another_daemon_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARSIGHT_CLOUD__NAME", "cloud")
    assert load().settings.name == "example"


def test_lists_and_mappings_come_from_every_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARSIGHT_EDGE__TAGS", '["a", "b"]')
    loaded = load("[edge.weights]\nx = 1\ny = 0.5\n")
    assert loaded.settings.tags == ("a", "b")
    assert loaded.settings.weights == {"x": 1.0, "y": 0.5}
    assert loaded.origins["weights"] == "nearsight.toml:1"
    assert load(**{"tags": '["c"]'}).settings.tags == ("c",)


def test_a_text_that_looks_like_a_number_stays_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARSIGHT_EDGE__NAME", "7")
    assert load().settings.name == "7"
    assert load(name="8").settings.name == "8"


def test_an_empty_variable_is_an_empty_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEARSIGHT_EDGE__METRICS_LISTEN", "")
    assert load().settings.metrics_listen == ""


def test_a_tilde_is_replaced_by_the_home_folder() -> None:
    key = load(**{"security.secret_key_file": "~/edge.key"}).settings.security.secret_key_file
    assert key == Path("home/edge.key").absolute()


def test_the_file_of_the_user_is_read_if_the_folder_has_none() -> None:
    own = Path("home/.config/nearsight/nearsight.toml")
    own.parent.mkdir(parents=True)
    own.write_text("[edge]\nname = 'own'\n")
    loaded = load()
    assert loaded.settings.name == "own"
    assert loaded.origins["name"].endswith(".config/nearsight/nearsight.toml:2")
    assert load("[edge]\nname = 'here'\n").settings.name == "here"


def test_a_given_file_is_the_only_one_read() -> None:
    Path("nearsight.toml").write_text("[edge]\nname = 'here'\n")
    Path("other.toml").write_text("[cloud]\n")
    assert load_settings(ExampleSettings, "edge", Path("other.toml")).settings.name == "example"


def test_a_file_with_byte_order_mark_and_windows_line_ends_is_read() -> None:
    Path("nearsight.toml").write_bytes(b"\xef\xbb\xbf[edge]\r\nlog_level = 'DEBUG'\r\n")
    assert load().settings.log_level == "DEBUG"


def test_settings_cannot_be_changed_once_loaded() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load().settings.name = "other"


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "[edge]\nnmae = 1\n": "nearsight.toml:2: unknown setting 'nmae'; did you mean 'name'?",
        "[edge]\n\nworkers = 1\n": "toml:3: unknown setting 'workers'; did you mean 'group.workers'?",
        "[edge]\ntier.group.workers = 1\n": "'tier.group.workers'; did you mean 'group.workers'?",
        "[edge]\ntier.group = 1\n": "'tier.group'; did you mean 'group.workers'?",
        "[edge.group]\nlimits.max_byte = 1\n": "nearsight.toml:2: unknown setting 'group.limits.max_byte'",
        "[edge.nonsense]\n": "nearsight.toml:1: unknown setting 'nonsense'",
        "[edge]\ngroup = 3\n": "nearsight.toml:2: group is a group of settings",
        "[edge]\ngruop.workres = 1\n": "unknown setting 'gruop.workres'; did you mean 'group.workers'?",
        "[egde]\nname = 'x'\n": "nearsight.toml:1: unknown table [egde]; did you mean 'edge'?",
        "edge = 1\n": "nearsight.toml:1: edge must be a table",
        "[edge]\nname = \n": "nearsight.toml is not valid TOML: Invalid value (at line 2",
        "[edge]\nname = 5\n": "nearsight.toml:2: name: input should be a valid string (given: 5)",
        "[edge]\nlog_level = 'LOUD'\n": "nearsight.toml:2: log_level: input should be 'DEBUG', 'INFO'",
        "[edge.group]\nworkers = 0\n": "nearsight.toml:2: group.workers: input should be greater",
        "[edge.group]\nworkers = true\n": "toml:2: group.workers: input should be a number (given: True)",
        "[edge]\nstop_grace_s = false\n": "stop_grace_s: input should be a number (given: False)",
        "[edge]\ntags = [1]\n": "nearsight.toml:2: tags: input should be a valid string",
        "[edge]\nname = 5\nlog_level = 1\n": ", and 1 more",
    }.items(),
)
def test_a_mistake_in_the_file_is_one_line_with_its_position(text: str, expected: str) -> None:
    assert expected in mistake(text)


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("GROUP__WORKRES", "1", "GROUP__WORKRES: unknown setting 'group.workres'"),
        ("GROUP", "{}", "group is a group of settings; set its members, such as group.workers"),
        ("GROUP__WORKERS", "many", "GROUP__WORKERS: group.workers: input should be"),
        ("SERVER__WORKERS", "100000", "SERVER__WORKERS: server.workers: input should be less than or"),
        ("TAGS", "a,b", "TAGS: tags: 'a,b' is not JSON"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(
    variable: str, value: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"NEARSIGHT_EDGE__{variable}", value)
    assert expected in mistake()


def test_a_mistake_in_a_flag_names_the_command_line() -> None:
    assert "command line: unknown setting 'nmae'" in mistake(overrides={"nmae": "x"})
    assert "command line: unknown setting 'nmae'" in mistake(overrides={"nmae": 5})


def test_a_list_of_clients_without_a_key_is_refused() -> None:
    text = mistake("[edge.security]\nallowed_clients = 'clients'\n")
    assert "security: allowed_clients needs secret_key_file as well" in text


def test_the_error_for_a_missing_file_names_the_next_step() -> None:
    with pytest.raises(ConfigurationError, match=r"none\.toml does not exist; .*config init"):
        load_settings(ExampleSettings, "edge", Path("none.toml"))


def test_the_null_device_is_an_empty_file_and_a_folder_is_none() -> None:
    assert load_settings(ExampleSettings, "edge", Path(os.devnull)).settings == ExampleSettings()
    with pytest.raises(ConfigurationError, match=r"^\. cannot be read: Is a directory"):
        load_settings(ExampleSettings, "edge", Path())


def test_a_file_that_is_not_text_is_refused() -> None:
    Path("nearsight.toml").write_bytes(b"\xff\xfe\x00")
    assert "is not valid TOML" in mistake()


@given(st.binary(max_size=200))
def test_any_file_gives_settings_or_an_error_of_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.toml"
    path.write_bytes(b"[edge]\n" + data)
    try:
        load_settings(ExampleSettings, "edge", path)
    except ConfigurationError as error:
        assert "\n" not in str(error)


def test_named_flags_override_set_if_they_are_given() -> None:
    overrides = flag_overrides(["name = a", "group.workers=3"], {"group.workers": 4, "name": None})
    assert overrides == {"name": "a", "group.workers": 4}
    assert flag_overrides(None) == {}


@pytest.mark.parametrize("assignment", ["name", "=x", " = x"])
def test_a_set_option_without_a_key_or_value_is_refused(assignment: str) -> None:
    with pytest.raises(ConfigurationError, match="key=value"):
        flag_overrides([assignment])
