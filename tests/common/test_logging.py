"""Log lines in both formats, and the logs of applications that use the SDK."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nearsight.common.logging import LogFormat, configure_logging, get_logger


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


def test_a_line_is_one_json_object_with_its_context(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(log_format="json", daemon="edge")
    get_logger("optimizer").info("cache changed", k=7)
    (line,) = lines(capsys)
    assert line.pop("timestamp")
    assert line == {
        "event": "cache changed",
        "component": "optimizer",
        "daemon": "edge",
        "k": 7,
        "level": "info",
    }


def test_lines_of_other_threads_carry_the_context_too(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(log_format="json", daemon="edge")
    thread = threading.Thread(target=lambda: get_logger("worker").info("hello"))
    thread.start()
    thread.join()
    assert lines(capsys)[0]["daemon"] == "edge"


def test_lines_below_the_level_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(level="WARNING", log_format="json")
    get_logger("worker").info("quiet")
    get_logger("worker").warning("loud")
    assert [line["event"] for line in lines(capsys)] == ["loud"]


def test_a_traceback_stays_within_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(log_format="json")
    try:
        raise KeyError("x")
    except KeyError:
        get_logger("worker").exception("failed")
    (line,) = lines(capsys)
    assert "KeyError: 'x'" in str(line["exception"])


def output_of(code: str) -> subprocess.CompletedProcess[str]:
    """The output of a separate program without any logging configuration."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_the_sdk_prints_nothing_by_itself_and_leaves_an_unconfigured_structlog_as_it_is() -> None:
    shown = output_of(
        "import structlog; from nearsight.common.logging import get_logger; "
        "get_logger('sdk').error('loud'); structlog.get_logger().info('mine')"
    )
    assert "mine" in shown.stdout
    assert "loud" not in shown.stdout
    assert shown.stderr == ""


def test_log_lines_appear_under_nearsight_in_a_program_that_configures_logging() -> None:
    shown = output_of(
        "import logging; from nearsight.common.logging import get_logger; log = get_logger('device.tier')\n"
        "logging.basicConfig(level='INFO', format='%(name)s|%(levelname)s|%(funcName)s|%(message)s')\n"
        "def ask():\n"
        "    log.debug('quiet'); log.info('asked 100 %', tier='edge', label='a\\x1b[2J')\n"
        "    try: 1 / 0\n"
        "    except ZeroDivisionError: log.bind(frame=3).exception('a callback raised')\n"
        "ask()\n"
    )
    first, second, *traceback = shown.stderr.splitlines()
    assert first == "nearsight.device.tier|INFO|ask|asked 100 % (tier='edge', label='a\\x1b[2J')"
    assert second == "nearsight.device.tier|ERROR|ask|a callback raised (frame=3)"
    assert traceback[-1] == "ZeroDivisionError: division by zero"
    assert shown.stdout == ""


def test_the_structlog_configuration_of_a_program_is_kept() -> None:
    code = (
        "import structlog; structlog.configure(processors=[structlog.processors.JSONRenderer()]); "
        "from nearsight.common.logging import get_logger; get_logger('sdk').info('mine')"
    )
    assert json.loads(output_of(code).stdout) == {"component": "sdk", "event": "mine"}


def test_a_log_line_that_cannot_be_written_raises_no_error() -> None:
    code = (
        "from nearsight.common.logging import *; configure_logging(); get_logger('x').info('y'); print('on')"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=full, check=False)
    assert done.stdout == b"on\n"


def test_the_console_format_is_readable_text(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(log_format="console", daemon="edge")
    get_logger("worker").info("ready", endpoint="tcp://127.0.0.1:1")
    text = capsys.readouterr().err
    assert "ready" in text
    assert "endpoint=tcp://127.0.0.1:1" in text


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_control_characters_in_a_log_line_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str], log_format: LogFormat
) -> None:
    configure_logging(log_format=log_format)
    hostile = "\x1b[2Jx\x9b\u202e\nforged\x07"
    try:
        raise ValueError(hostile)
    except ValueError:
        get_logger("rpc").warning(f"event {hostile}", client=hostile, trace_id=[hostile], exc_info=True)
    shown = capsys.readouterr().err
    assert not set(shown) & set("\x1b\x9b\u202e\x07")
    assert shown.count("forged") == 4
    first = shown.splitlines()[0]
    assert first.count("forged") >= 3, "a value begins no line of its own"
