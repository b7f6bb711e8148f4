"""Applications that fork after they made a recognizer, such as web servers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nearsight.experiments.rig.peer_group import free_udp_port
from support.pictures import picture_jpeg
from support.videos import convolutional_network

pytestmark = pytest.mark.system  # each test starts an application, which takes seconds

ASKED_IN_A_CHILD = """
import asyncio, os, signal, sys
import cv2, numpy as np
from nearsight import LocalRecognizer, PeerSettings, Recognizer, RecognizerSettings

folder, kind, port, *asked = sys.argv[1:]
photo = open(folder + "/0.jpg", "rb").read()
peers = RecognizerSettings(peers=PeerSettings(enabled=kind == "sharing", beacon_port=int(port)))


def made():
    if kind == "local":
        return LocalRecognizer(folder)
    return Recognizer("tcp://127.0.0.1:9", None, "museum", settings=peers)


def told(call):
    try:
        return call()
    except RuntimeError as error:
        return error


recognizer = made()
store = recognizer.store if kind == "sharing" else None
stream = recognizer.stream()
recognizer.recognize(photo, lambda outcome: None).cancel()  # all threads have begun
questions = {
    "blocking": lambda: recognizer.recognize_blocking(photo),
    "callback": lambda: recognizer.recognize(photo, print),
    "async": lambda: asyncio.run(recognizer.recognize_async(photo)),
    "infer": lambda: recognizer.infer(np.zeros((1, 3, 8, 8), np.float32)),
    "stream": lambda: stream.push(cv2.imread(folder + "/0.jpg")),
    "store": lambda: recognizer.store,
    "kept store": lambda: store.put("key", b"value").result(),
    "close": lambda: (stream.close(), recognizer.close(), "closed")[-1],
    "another": lambda: (made().close(), "closed")[-1],
}
for question in asked:
    child = os.fork()
    if not child:
        signal.alarm(100)  # ends a process that waits for ever
        print(told(questions[question]), flush=True)
        sys.exit(7)  # as an application ends, handlers of the interpreter included
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
recognizer.close()
"""


@pytest.fixture(scope="module")
def museum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("museum")
    (folder / "0.jpg").write_bytes(picture_jpeg(0))
    return folder


SESSION_IN_A_CHILD = """
import os, signal, sys
from pathlib import Path
import numpy as np
from nearsight import VideoSession, VideoSettings
from nearsight.common.inference.region_reuse import PartialNetwork
from nearsight.common.inference.runtime import Runtime

path, threads, kind = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
frame = np.zeros((32, 32, 3), np.uint8)
runtime = Runtime(threads)


def made():
    if kind == "given":
        return VideoSession(PartialNetwork(runtime, path, "small", path.with_suffix(".segments")))
    return VideoSession(path, settings=VideoSettings(threads=threads))


def is_idle(task):
    return (task / "stat").read_text().rpartition(")")[2].split()[0] == "S"


with made() as session:
    session.run(frame)
    while sum(map(is_idle, Path("/proc/self/task").iterdir())) < threads - 1:
        pass  # a thread that still looks for work ends at once, and is not waited for
    child = os.fork()
    if not child:
        signal.alarm(100)  # ends a process that waits for ever
        try:
            print(session.run(frame).number, flush=True)
        except RuntimeError as error:
            print(error, flush=True)
        with made() as another:
            print(another.run(frame).number, flush=True)
        sys.exit(7)  # closes the session, and ends as an application does
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status))
"""


def in_children(museum: Path, kind: str, *questions: str) -> list[str]:
    """The output and the exit code of forked processes, one per question."""
    return printed_by(ASKED_IN_A_CHILD, museum, kind, str(free_udp_port()), *questions)


def printed_by(program: str, *arguments: str | Path) -> list[str]:
    asked = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert (asked.returncode, asked.stderr) == (0, "")
    return asked.stdout.splitlines()


@pytest.mark.parametrize(
    ("kind", "questions"),
    [
        ("local", ("blocking", "callback", "async", "stream")),
        ("remote", ("blocking", "callback", "async", "infer")),
        ("sharing", ("blocking", "store", "kept store")),
    ],
)
def test_a_forked_process_is_asked_to_make_another_recognizer_and_may_close_the_inherited_one(
    museum: Path, kind: str, questions: tuple[str, ...]
) -> None:
    said = in_children(museum, kind, *questions, "close", "another")
    assert said[1::2] == ["7"] * (len(questions) + 2)
    *errors, closed, another = said[::2]
    assert all("make one in each process, after the fork" in line for line in errors), said
    assert (closed, another) == ("closed", "closed")


@pytest.mark.parametrize("kind", ["own", "given"])
@pytest.mark.parametrize(("threads", "says"), [(1, "1"), (2, "make one in each process, after the fork")])
def test_after_a_fork_a_video_session_with_threads_is_not_used_but_may_be_closed_and_replaced(
    tmp_path: Path, threads: int, says: str, kind: str
) -> None:
    path = convolutional_network(tmp_path / "small.onnx")
    said, number, code = printed_by(SESSION_IN_A_CHILD, path, str(threads), kind)
    assert says in said
    assert number == "0"
    assert code == "7"
