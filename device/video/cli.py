"""``nearsight video``: runs a network over a video file, and reports its answers and the time saved."""

from __future__ import annotations

import csv
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from nearsight.common.command_line.options import JsonOption
from nearsight.common.command_line.terminal import print_error, print_json, print_line, progress_bar
from nearsight.common.errors import InvalidArgument, InvalidImage, NotFound
from nearsight.common.files import write_atomically
from nearsight.common.text import percent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nearsight.common.inference.manifest import Pixels
    from nearsight.device.video.result import VideoResult
    from nearsight.device.video.session import VideoSession

app = typer.Typer(add_completion=False)

COLUMNS = (
    *("frame", "time_s", "class", "label", "confidence", "matched", "recomputed"),
    *("rows_px", "columns_px", "ms", "whole"),
)
"""Columns of the CSV. ``matched`` and ``recomputed`` are shares in [0, 1]. ``rows_px`` and ``columns_px`` are
the motion in pixels of the network's input. ``whole`` is the reason for a whole execution."""
_SAMPLE = 10
"""Number of frames that are executed whole at the end, to compare times and answers."""

_DAMAGED = "check the file, or convert it to another format"


@app.command()
def video(  # noqa: PLR0917  typer calls it by name
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A video in a format that OpenCV reads.")],
    model: Annotated[
        str,
        typer.Option(
            "--model", metavar="NETWORK.onnx", help="File of the network, or its name with --models."
        ),
    ],
    models: Annotated[
        Path | None,
        typer.Option("--models", metavar="FOLDER", help="Folder of networks, see `nearsight models`."),
    ] = None,
    pixels: Annotated[
        str | None,
        typer.Option(
            "--pixels",
            metavar="RANGE",
            help="Range of the network's input: 0..255, 0..1, -1..1, imagenet or caffe.",
        ),
    ] = None,
    threshold_db: Annotated[
        float,
        typer.Option(
            "--threshold",
            metavar="DB",
            help="Blocks below this PSNR are recomputed. Adjusted to the measured deviation of outputs.",
        ),
    ] = 20.0,
    map_tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance",
            metavar="SHARE",
            min=0.0,
            help="Values inside the network are kept if they differ by less than this share of a standard "
            "deviation. Adjusted with --threshold. 0: exact.",
        ),
    ] = 0.2,
    block_px: Annotated[int, typer.Option("--block", metavar="PX", min=1, help="Side of a block.")] = 10,
    expiry: Annotated[
        int, typer.Option("--expiry", metavar="N", min=1, help="Every N-th frame is executed whole.")
    ] = 10,
    margin: Annotated[
        float,
        typer.Option(
            "--margin",
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="Margin around the network's window, which follows the motion of the picture; such as 0.08.",
        ),
    ] = 0.0,
    budget_ms: Annotated[
        float | None,
        typer.Option(
            "--budget",
            metavar="MS",
            help="Time budget of a frame. To meet it, blocks that changed little are postponed.",
        ),
    ] = None,
    last_frame: Annotated[
        bool, typer.Option("--last-frame", help="Match with the last frame, as in the paper.")
    ] = False,
    most: Annotated[
        int | None, typer.Option("--frames", metavar="N", min=1, help="Stop after N frames.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option("--csv", metavar="OUT.csv", help="One line per frame.")
    ] = None,
    heat_map: Annotated[
        Path | None,
        typer.Option(
            "--heat-map", metavar="OUT.png", help="Picture that shows how often each block was reused."
        ),
    ] = None,
    heat_video: Annotated[
        Path | None,
        typer.Option("--heat-video", metavar="OUT.mp4", help="Video that marks what each frame recomputed."),
    ] = None,
    segments: Annotated[
        Path | None,
        typer.Option(
            "--segments",
            metavar="FOLDER",
            help="Folder for the prepared network. Default: beside the network.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a convolutional network over a video, and recompute only what changed.

    The network is prepared at the first use, which takes some seconds. At the
    end a sample of frames is executed whole, to measure the time saved.
    """
    from nearsight.device.video.session import VideoSession, find_network
    from nearsight.device.video.settings import VideoSettings

    settings = VideoSettings(
        threshold_db,
        block_px,
        expiry,
        composite=not last_frame,
        margin=margin,
        map_tolerance=map_tolerance,
        pixels=_range(pixels),
        budget_ms=budget_ms,
    )
    network, _ = find_network(model, models)
    taken = {file.resolve(): "the video", network.resolve(): "the network"}
    for option, place in (("--csv", table), ("--heat-map", heat_map), ("--heat-video", heat_video)):
        if place is None:
            continue
        if not place.parent.is_dir():
            raise NotFound(f"there is no folder {str(place.parent)!r}", advice="create it first")
        if kind := "a folder" if place.is_dir() else taken.get(place.resolve()):
            raise InvalidArgument(f"{place} is {kind}", advice=f"give {option} another file")
        if place.resolve() != Path(os.devnull):
            taken[place.resolve()] = f"also the file of {option}"
    if heat_map is not None and heat_map.suffix.lower() != ".png":
        raise InvalidArgument(f"{heat_map} cannot be a heat map", advice="end the name in .png")
    # The files are finished behind the summary, which is printed even if the disk is full.
    with closing(_Clip(file, most)) as clip, ExitStack() as files:
        began_s = time.monotonic()
        with VideoSession(model, repository=models, folder=segments, settings=settings) as session:
            prepared_s = time.monotonic() - began_s
            outputs = files.enter_context(closing(_Outputs(session, clip, table, heat_map, heat_video)))
            report, sample = _run(session, clip, outputs)
        report |= _compared(session, network, sample, report["ms_per_frame"])
        report |= {"prepared_s": round(prepared_s, 1)}
        if as_json:
            print_json(report)
        else:
            for line in _summary_lines(report):
                print_line(line)
        if clip.is_short:
            print_error(f"{file} ends after {clip.read} of {clip.declared} frames: it may be damaged")


class _Clip:
    """The frames of a video file."""

    def __init__(self, path: Path, most: int | None) -> None:
        import cv2

        if not path.is_file():
            raise NotFound(f"there is no file {str(path)!r}", advice="check the path")
        os.environ.setdefault(
            "OPENCV_FFMPEG_LOGLEVEL", "-8"
        )  # errors are raised; the library would also print them
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
        self.path, self._capture = path, cv2.VideoCapture(str(path))
        if not self._capture.isOpened():
            raise InvalidImage(f"{path} is not a video that OpenCV can read", advice=_DAMAGED)
        declared = int(self._capture.get(cv2.CAP_PROP_FRAME_COUNT))
        self.declared = min(declared, most or declared) if declared > 0 else None
        self.frames_per_s = self._capture.get(cv2.CAP_PROP_FPS) or 25.0
        self.read = 0
        self.time_s = 0.0
        """Position of the last frame in the video."""
        self._most = most

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        import cv2
        import numpy as np

        while self._most is None or self.read < self._most:
            whole, frame = self._capture.read()
            if not whole:
                break
            # Some formats, such as a raw H.264 stream, have no timestamps.
            place_s = self._capture.get(cv2.CAP_PROP_POS_MSEC) / 1e3
            self.time_s = place_s if place_s > 0 else self.read / self.frames_per_s
            self.read += 1
            yield np.asarray(frame, np.uint8)
        if not self.read:
            raise InvalidImage(f"OpenCV can read no frame of {self.path}", advice=_DAMAGED)

    @property
    def is_short(self) -> bool:
        """Whether many frames are missing. The number that a file declares is an estimate."""
        return self.declared is not None and self.read < 0.9 * self.declared

    def close(self) -> None:
        self._capture.release()


class _Outputs:
    """Output files that are written while the video runs."""

    def __init__(
        self,
        session: VideoSession,
        clip: _Clip,
        table: Path | None,
        heat_map: Path | None,
        heat_video: Path | None,
    ) -> None:
        from nearsight.device.video.heat_map import HeatMap, HeatVideo

        self._video = HeatVideo(heat_video, clip.frames_per_s) if heat_video is not None else None
        self._map_path = heat_map
        self._map = HeatMap(session.settings.block_px, session.size)
        self._table_path, self._table = table, None
        with ExitStack() as files:
            files.callback(self._write_map)
            if table is not None:
                files.enter_context(_naming(table))
                self._table = csv.writer(files.enter_context(table.open("w", newline="", buffering=1)))
                self._write_line(COLUMNS)
            if self._video is not None:
                # Closed first: on a full disk it is deleted, which makes space for the other files.
                files.callback(self._video.close)
            self._files = files.pop_all()

    def add(self, frame: NDArray[np.uint8], result: VideoResult, row: Mapping[str, Any]) -> None:
        """Write the result of a frame."""
        self._write_line([row[column] for column in COLUMNS])
        if self._map_path is not None or self._video is not None:
            self._map.add(frame, result)
        if self._video is not None:
            done = f"whole, {result.whole}" if result.whole else f"{percent(result.recomputed)} recomputed"
            text = f"frame {result.number}: {done}, {row['ms']:.1f} ms"
            self._video.add(self._map.frame(frame, result, text))

    def _write_line(self, values: Sequence[object]) -> None:
        if self._table is not None and self._table_path is not None:
            with _naming(self._table_path):
                self._table.writerow(values)

    def _write_map(self) -> None:
        import cv2

        if self._map_path is not None and self._map.frames:
            write_atomically(self._map_path, cv2.imencode(".png", self._map.picture())[1].tobytes())

    def close(self) -> None:
        """Finish all files, even if one of them fails."""
        self._files.close()


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Add the file's name to errors of writes, which have none."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def _run(
    session: VideoSession, clip: _Clip, outputs: _Outputs
) -> tuple[dict[str, Any], list[tuple[Any, Any]]]:
    """Run all frames; returns the report, and a sample of frames with the session's outputs."""
    times_ms, matched, recomputed, deviations = list[float](), list[float](), list[float](), list[float]()
    why, sample = Counter[str](), list[tuple[Any, Any]]()
    step = max(1, (clip.declared or 30 * _SAMPLE) // _SAMPLE)
    with progress_bar(clip.path.name, clip.declared) as advance:
        for frame in clip:
            result = session.run(frame)
            row = _row(session, clip, result)
            outputs.add(frame, result, row)
            times_ms.append(row["ms"])
            matched.append(result.matched)
            recomputed.append(result.recomputed)
            deviations += [] if result.deviation is None else [result.deviation]
            why.update([result.whole] if result.whole else [])
            if result.number % step == 0 and len(sample) < _SAMPLE:
                sample.append((frame, result.outputs))
            advance(1)
    return {
        "frames": clip.read,
        "ms_per_frame": round(fmean(times_ms), 3),
        "p95_ms": round(sorted(times_ms)[int(0.95 * len(times_ms))], 3),
        "matched": round(fmean(matched), 4),
        "recomputed": round(fmean(recomputed), 4),
        "whole": dict(why.most_common()),
        "deviation": round(max(deviations), 6) if deviations else None,
        "threshold_db": session.threshold_db,
        "map_tolerance": session.map_tolerance,
    }, sample


def _row(session: VideoSession, clip: _Clip, result: VideoResult) -> dict[str, Any]:
    best, confidence = _best(result.outputs)
    return {
        "frame": result.number,
        "time_s": round(clip.time_s, 3),
        "class": best,
        "label": session.labels[best] if best is not None and best < len(session.labels) else "",
        "confidence": confidence,
        "matched": round(result.matched, 4),
        "recomputed": round(result.recomputed, 4),
        "rows_px": result.offset[0],
        "columns_px": result.offset[1],
        "ms": round(result.match_ms + result.network_ms, 3),
        "whole": result.whole,
    }


def _best(outputs: Mapping[str, Any]) -> tuple[int | None, float | None]:
    """Best class and confidence of a classifier; (None, None) for other networks."""
    from nearsight.common.inference.classification import best_class

    scores = next(iter(outputs.values()))
    if scores.size < 2 or scores.size != max(scores.shape):
        return None, None
    best, confidence = best_class(scores)
    return best, round(confidence, 4)


def _compared(
    session: VideoSession, path: Path, sample: list[tuple[Any, Any]], ms_per_frame: float
) -> dict[str, Any]:
    """Execute the sample in a plain session, after a warm-up, to compare times and classes."""
    from nearsight.common.inference.runtime import Runtime

    times_ms, same = list[float](), list[bool]()
    with (
        closing(Runtime(session.settings.threads)) as runtime,
        closing(runtime.load(path, path.stem)) as network,
    ):
        for frame, found in [sample[0], *sample]:
            began_s = time.perf_counter()
            outputs = network.run({"": session.tensor(frame)})
            times_ms.append(1e3 * (time.perf_counter() - began_s))
            same.append(_best(outputs)[0] == _best(found)[0])
    whole_ms = median(times_ms[1:])
    compared = None if _best(sample[0][1])[0] is None else sum(same[1:])
    return {
        "whole_ms": round(whole_ms, 3),
        "saved": round(1 - ms_per_frame / whole_ms, 4),
        "sample": len(sample),
        "same_class": compared,
    }


def _summary_lines(report: Mapping[str, Any]) -> Iterator[str]:
    saved, whole = report["saved"], sum(report["whole"].values())
    yield (
        f"{report['frames']} frames took {report['ms_per_frame']:.1f} ms each (p95 {report['p95_ms']:.1f}), "
        f"whole executions {report['whole_ms']:.1f} ms (median of {report['sample']}): "
        + (f"{percent(saved)} of the time was saved." if saved > 0 else "no time was saved.")
    )
    reasons = ", ".join(f"{why} ({count})" for why, count in report["whole"].items())
    yield (
        f"{percent(report['matched'])} of the blocks matched; "
        f"{percent(report['recomputed'])} of the network's computation was repeated."
    )
    yield f"Executed whole: {whole} of {report['frames']} frames: {reasons}."
    if report["same_class"] is not None:
        same = f"{report['same_class']} of {report['sample']} frames"
        yield f"The best class was the same as in a whole execution for {same}."
    if report["deviation"] is not None:
        yield (
            f"Outputs deviated by up to {percent(report['deviation'], 2)} of their norm; "
            f"the threshold is now {report['threshold_db']:g} dB, "
            f"the tolerance {report['map_tolerance']:.2g}."
        )


def _range(text: str | None) -> Pixels | None:
    from nearsight.common.inference.manifest import Pixels

    known: dict[str, Pixels] = {one: one for one in get_args(Pixels)}
    if text is not None and text not in known:
        raise InvalidArgument(f"--pixels {text} is unknown", advice=f"use one of {', '.join(known)}")
    return known[text] if text is not None else None
