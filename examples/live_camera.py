"""Recognise the objects in a camera's view: print a line whenever the answer changes, and draw outlines.

Requires an edge that serves the catalogue. SOURCE is the number of a camera, or a clip. The frames are shown
in a window if there is a display, or written to a video with --out::

    python examples/live_camera.py --edge tcp://127.0.0.1:7100 --out seen.avi 0
"""
# ruff: noqa: T201  prints for the user

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import cv2
import numpy as np

from nearsight import LiveStream, Recognizer, StreamAnswer

_GREEN = (60, 220, 60)
_FRAMES_PER_S = 30.0

Show = Callable[[np.ndarray], None]
"""Receives a frame with the drawn answer."""


def frames_of(source: str) -> Iterator[np.ndarray]:
    """The frames of a camera in real time, or of a file at its own frame rate."""
    video = cv2.VideoCapture(int(source) if source.isdigit() else source)
    if not video.isOpened():
        raise SystemExit(f"{source} is neither the number of a camera nor a clip that can be read")
    pause_s = 0.0 if source.isdigit() else 1 / (video.get(cv2.CAP_PROP_FPS) or _FRAMES_PER_S)
    due_s = time.monotonic()
    while (read := video.read())[0]:
        yield read[1]
        due_s += pause_s
        time.sleep(max(0.0, due_s - time.monotonic()))


def in_words(answer: StreamAnswer) -> str:
    """Text of an answer for the user."""
    if answer.recognition is None:
        return f"no answer: {answer.error}" if answer.error else "waiting for an answer"
    found = answer.recognition
    if not found.known:
        return "not in the catalogue"
    # Characters that are not printable could control the terminal.
    return "".join(one for one in found.label or found.object_id or "" if one.isprintable())


def drawn(frame: np.ndarray, answer: StreamAnswer) -> np.ndarray:
    """A copy of the frame with outline and text of the answer."""
    picture = frame.copy()
    if answer.outline is not None:
        corners = np.rint(answer.outline).astype(np.int32)
        cv2.polylines(picture, [corners], isClosed=True, color=_GREEN, thickness=3, lineType=cv2.LINE_AA)
    cv2.putText(picture, in_words(answer), (20, 50), cv2.FONT_HERSHEY_SIMPLEX, 1.0, _GREEN, 2, cv2.LINE_AA)
    return picture


def watch(stream: LiveStream, frames: Iterable[np.ndarray], show: Show | None) -> Iterator[str]:
    """Yield a line whenever the answer changes."""
    last = ""
    for frame in frames:
        answer = stream.push(frame)
        if show is not None:
            show(drawn(frame, answer))
        if (words := in_words(answer)) != last:
            last = words
            yield f"frame {answer.number}: {words}"


def video_file(path: str) -> Show:
    """Write the frames to a video file, which is closed with the last reference to the returned function."""
    video = cv2.VideoWriter()

    def show(frame: np.ndarray) -> None:
        if not video.isOpened():
            video.open(path, cv2.VideoWriter.fourcc(*"MJPG"), _FRAMES_PER_S, (frame.shape[1], frame.shape[0]))
        video.write(frame)

    return show


def window() -> Show | None:
    """Show the frames in a window; None without a display. Closing the window has the effect of Ctrl-C."""
    try:
        import tkinter  # noqa: PLC0415  not part of every Python; OpenCV's headless build has no windows
    except ImportError:
        return None
    try:
        label = tkinter.Label()
    except tkinter.TclError:
        return None
    image = tkinter.PhotoImage()
    label.configure(image=image)
    label.pack()

    def show(frame: np.ndarray) -> None:
        try:
            image.configure(data=cv2.imencode(".ppm", frame)[1].tobytes())
            label.update()
        except tkinter.TclError:
            raise KeyboardInterrupt from None

    return show


def main() -> None:
    """Run until the clip ends, or Ctrl-C."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--edge", default="tcp://127.0.0.1:7100")
    parser.add_argument("--catalogue", default="museum")
    parser.add_argument("--out", default="", help="write a video instead of showing a window")
    parser.add_argument("source")
    arguments = parser.parse_args()
    show = video_file(arguments.out) if arguments.out else window()
    with (
        suppress(KeyboardInterrupt),
        Recognizer(arguments.edge, None, arguments.catalogue) as recognizer,
        recognizer.stream() as stream,
    ):
        for line in watch(stream, frames_of(arguments.source), show):
            print(line, flush=True)


if __name__ == "__main__":
    main()
