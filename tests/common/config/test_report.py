"""The table of `config show` and the file of `config init`."""

import tomllib
from pathlib import Path

import pytest
from pydantic import Field

from nearsight.__main__ import SETTINGS_CLASSES
from nearsight.common.config.base import RpcDaemonSettings, import_settings_classes, load_settings
from nearsight.common.config.report import settings_file, settings_in_force, short_settings_file, toml_value
from nearsight.common.config.schema import setting_keys
from nearsight.common.settings import SettingsGroup


class Inner(SettingsGroup):
    """A group."""

    count: int = 3
    """How many."""


class ExampleSettings(RpcDaemonSettings):
    """Settings with a group and an absent one."""

    inner: Inner = Inner()
    absent: Inner | None = None
    name: str = 'a "quoted" näme'
    tags: tuple[str, ...] = ("a", "b")
    weights: dict[str, float] = Field(default={"x.y": 0.5})


def test_every_setting_in_force_is_listed_with_its_origin(tmp_path: Path) -> None:
    config = tmp_path / "n.toml"
    config.write_text("[edge.inner]\ncount = 5\n")
    rows = {key: rest for key, *rest in settings_in_force(load_settings(ExampleSettings, "edge", config))}
    assert rows["inner.count"] == [5, f"{config}:2"]
    assert rows["absent.count"] == [None, "default"]
    assert rows["tags"][0] == ["a", "b"]


def test_the_written_file_changes_no_setting(tmp_path: Path) -> None:
    path = tmp_path / "nearsight.toml"
    path.write_text(settings_file({"cloud": ExampleSettings, "edge": ExampleSettings}))
    loaded = load_settings(ExampleSettings, "edge", path)
    assert loaded.settings == ExampleSettings()
    assert set(loaded.origins.values()) == {"default"}


def test_the_written_file_without_comment_marks_contains_the_defaults(tmp_path: Path) -> None:
    lines = settings_file({"edge": ExampleSettings}).splitlines()
    names = {key.rpartition(".")[2] for key in load_settings(ExampleSettings, "edge").origins}
    active = [
        line.removeprefix("# ")
        for line in lines
        if line.startswith("[")
        or (line.startswith("# ") and line.split()[1] in names and not line.endswith("="))
    ]
    path = tmp_path / "nearsight.toml"
    path.write_text("\n".join(line for line in active if "absent" not in line))
    assert (
        load_settings(ExampleSettings, "edge", path).settings.model_copy(update={"absent": None})
        == ExampleSettings()
    )


def test_the_short_file_has_a_line_of_comment_for_each_setting_and_at_most_40_lines() -> None:
    classes = import_settings_classes(SETTINGS_CLASSES)
    lines = short_settings_file(classes).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    for place, line in enumerate(lines):
        assert (" = " not in line) or lines[place - 1].startswith("# ")
    assert tomllib.loads("\n".join(lines)).keys() == classes.keys()


@pytest.mark.parametrize("section", SETTINGS_CLASSES)
def test_the_short_file_is_read_by_each_daemon(section: str, tmp_path: Path) -> None:
    classes = import_settings_classes(SETTINGS_CLASSES)
    path = tmp_path / "nearsight.toml"
    path.write_text(short_settings_file(classes))
    loaded = load_settings(classes[section], section, path)
    given = {key for key, origin in loaded.origins.items() if origin != "default"}
    assert given == set(classes[section].changed_first)


def test_descriptions_are_above_their_setting() -> None:
    lines = settings_file({"edge": ExampleSettings}).splitlines()
    assert lines[lines.index("# count = 3") - 1] == "# How many."


def test_every_setting_has_a_description() -> None:
    for settings_class in import_settings_classes(SETTINGS_CLASSES).values():
        assert [key for key, text in setting_keys(settings_class).items() if not text] == []


def test_values_are_written_so_that_toml_reads_them_back() -> None:
    values = [True, 7, -0.25, 1e300, 'a "b" \\ ü', ["x", ["y"]], {"a b": {"c": [1]}}, {}, []]
    for value in values:
        assert tomllib.loads(f"v = {toml_value(value)}")["v"] == value
