"""A network whose output is its input, for tests of video sessions without onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from nearsight.common.clock import ManualClock
from nearsight.common.inference.region_reuse import PartialNetwork
from nearsight.common.inference.segmented_network import SegmentReport
from nearsight.common.inference.tensors import Tensor, TensorSpec
from nearsight.common.video.regions import Rectangle
from nearsight.device.video.result import VideoResult
from nearsight.device.video.session import VideoSession
from nearsight.device.video.settings import VideoSettings

SIDE = 64
Frame = NDArray[np.uint8]


class Mirror(PartialNetwork):
    """A network whose output is its input: reused blocks keep the earlier input."""

    tolerance, threads = 0.0, 1

    def __init__(self, shape: tuple[int | None, ...] = (1, 3, SIDE, SIDE), why_whole: str = "") -> None:
        self.input = TensorSpec("photo", "float32", shape)
        self.stride = (4, 4)
        self.why_whole = why_whole
        self.most_changed = 0.0 if why_whole else 0.9
        self.whole_times_ms = 20.0
        self.pays_from = 0.05
        """Reuse is worthwhile from this share of the frame on."""
        self.asked: list[Sequence[Rectangle] | None] = []
        self.ran: Callable[[bool], None] = lambda _: None
        """Called after each execution; with whether it was whole."""
        self._held = np.zeros((1, 3, SIDE, SIDE), np.float32)

    @property
    def whole_ms(self) -> float:
        return self.whole_times_ms

    def would_reuse(self, changed: Sequence[Rectangle], offset: tuple[int, int]) -> bool:
        self.asked.append(changed)
        return sum(one.area for one in changed) <= (1 - self.pays_from) * SIDE**2

    def unchanged(self) -> dict[str, Tensor]:
        return {"photo": self._held.copy()}

    def expected_ms(self, changed: Sequence[Rectangle], offset: tuple[int, int] = (0, 0)) -> float:
        return sum(one.area for one in changed) / SIDE**2

    def run(
        self, frame: Tensor, changed: Sequence[Rectangle] | None = None, offset: tuple[int, int] = (0, 0)
    ) -> dict[str, Tensor]:
        if changed is None or not self.would_reuse(changed, offset):
            self._held = frame.copy()
            self._share = 1.0
        else:
            self._held = np.roll(self._held, (-offset[0], -offset[1]), (2, 3))
            for one in changed:
                inside = np.s_[:, :, one.top : one.bottom, one.left : one.right]
                self._held[inside] = frame[inside]
            self._share = sum(one.area for one in changed) / SIDE**2
        self.ran(changed is None)
        return {"photo": self._held.copy()}

    def run_whole(self, frame: Tensor) -> dict[str, Tensor]:
        return self.run(frame, [Rectangle(0, 0, SIDE, SIDE)])

    def explain(self) -> tuple[SegmentReport, ...]:
        return (SegmentReport("photo", "regions", self._share, whole_ms=2.0),)

    def close(self) -> None:
        raise AssertionError("a network of the caller was closed")


def noise(seed: int = 0, side: int = SIDE) -> Frame:
    """Texture that matches only itself."""
    coarse = np.random.default_rng(seed).integers(0, 256, (side // 4, side // 4, 3), dtype=np.uint8)
    return np.asarray(cv2.resize(coarse, (side, side), interpolation=cv2.INTER_NEAREST), np.uint8)


def with_patch(frame: Frame, at: tuple[int, int], value: int = 255, side: int = 8) -> Frame:
    found = frame.copy()
    found[at[0] : at[0] + side, at[1] : at[1] + side] = value
    return found


def restless(number: int, value: int) -> Frame:
    """A plain frame with a patch that is elsewhere in the next frame."""
    return with_patch(np.full((SIDE, SIDE, 3), value, np.uint8), (20, 8 * (number % 7)))


def shown(result: VideoResult) -> Frame:
    """The content of the network as a frame."""
    pixels = result.outputs["photo"][0][::-1] * 255
    return np.moveaxis(np.rint(pixels), 0, 2).astype(np.uint8)


def psnr_db(one: Frame, other: Frame) -> float:
    return float(cv2.PSNR(one, other))


def session_of(network: Mirror, **settings: object) -> VideoSession:
    return VideoSession(network, settings=VideoSettings(**settings), clock=ManualClock())  # type: ignore[arg-type]
