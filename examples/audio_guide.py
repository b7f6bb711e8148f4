"""An audio guide: it speaks when the camera shows another exhibit.

The columns of the catalogue's objects.csv contain what it plays: ``audio`` is a file in --sounds, ``text`` is
read aloud. Without both, the guide speaks the exhibit's name. It prints what no installed program can play.
SOURCE is the number of a camera, or a clip::

    python examples/audio_guide.py --edge tcp://127.0.0.1:7100 --sounds sounds 0
"""
# ruff: noqa: T201  prints for the user

from __future__ import annotations

import argparse
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import cv2

from nearsight import Recognition, Recognizer, StreamAnswer

PLAYERS = (["mpv", "--no-video"], ["ffplay", "-nodisp", "-autoexit"], ["paplay"], ["aplay"])
READERS = (["espeak-ng"], ["spd-say", "--wait"])


def printable(text: str) -> str:
    """Remove characters that a terminal would interpret from a text of the catalogue."""
    return "".join(one for one in text if one.isprintable())


class Guide:
    """Speaks about the exhibit in a stream; another exhibit stops the current speech.

    Parameters
    ----------
    sounds : Path
        Folder of the files that the metadata name.
    """

    def __init__(self, sounds: Path) -> None:
        self._sounds = sounds
        self._last = self._problem = ""
        self._playing: subprocess.Popen[bytes] | None = None

    def receive(self, answer: StreamAnswer) -> None:
        """Process the answer to one frame; a stream keeps an answer as long as its picture is visible."""
        if (problem := str(answer.error or "")) != self._problem:
            self._problem = problem
            print(f"no answer: {problem}" if problem else "answers again", flush=True)
        found = answer.recognition
        if found is None or found.object_id is None or found.object_id == self._last:
            return
        self._last = found.object_id
        self.stop()
        self._speak(found)

    def _speak(self, found: Recognition) -> None:
        name, text = printable(found.label or self._last), printable(found.metadata.get("text", ""))
        # Only the file name is used, because metadata must not refer to files outside the folder.
        sound = self._sounds / Path(found.metadata.get("audio", "")).name
        programs, content = (READERS, text or name)
        if sound.is_file():
            programs, content, text = (PLAYERS, str(sound.absolute()), sound.name)
        print(f"{name}: {printable(text)}" if text else name, flush=True)
        if program := next((one for one in programs if shutil.which(one[0])), None):
            silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            self._playing = subprocess.Popen([*program, "--", content], **silent)

    def stop(self) -> None:
        """Stop the current playback."""
        if self._playing is not None:
            self._playing.terminate()
            self._playing.wait()
            self._playing = None


def main() -> None:
    """Run until the clip ends, or Ctrl-C."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--edge", default="tcp://127.0.0.1:7100")
    parser.add_argument("--catalogue", default="museum")
    parser.add_argument("--sounds", type=Path, default=Path("sounds"))
    parser.add_argument("source")
    arguments = parser.parse_args()
    camera = cv2.VideoCapture(int(arguments.source) if arguments.source.isdigit() else arguments.source)
    if not camera.isOpened():
        raise SystemExit(f"{arguments.source} is neither the number of a camera nor a clip that can be read")
    # A clip can be read faster than it was recorded.
    pause_s = 0.0 if arguments.source.isdigit() else 1 / (camera.get(cv2.CAP_PROP_FPS) or 30.0)
    guide = Guide(arguments.sounds)
    with (
        suppress(KeyboardInterrupt),
        Recognizer(arguments.edge, None, arguments.catalogue) as recognizer,
        recognizer.stream() as stream,
    ):
        while (read := camera.read())[0]:
            guide.receive(stream.push(read[1]))
            time.sleep(pause_s)
    guide.stop()


if __name__ == "__main__":
    main()
