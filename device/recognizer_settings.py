"""What an application may set in the SDK; every value is checked when it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.request.next_tiers import BreakerSettings
from nearsight.common.result_cache.settings import ResultCacheSettings
from nearsight.common.settings import SettingsGroup
from nearsight.device.peers.settings import PeerSettings

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class UploadSettings(SettingsGroup):
    """How a photo is made ready for the network."""

    longest_side: int = Field(default=640, ge=160, le=4096)
    """Pixels to which a larger image is scaled; recognition itself works at 640."""
    jpeg_quality: int = Field(default=85, ge=30, le=100)
    """Quality of images that must be encoded."""
    pass_through_bytes: int = Field(default=256 * 1024, ge=0)
    """Image files up to this size, and not larger than longest_side, are sent as they are."""
    thumbnails: bool = True
    """Send 64 bytes more to an edge with a result cache while photos repeat, so that it need not decode those
    that it knows. What is sent as a file is read here for that, at an eighth of its size."""
    max_bytes: int = Field(default=20 * 2**20, gt=0)
    """Longest file in bytes that is accepted from the application."""
    max_pixels: int = Field(default=50_000_000, gt=0)
    """Most pixels that an image may declare; larger ones are refused without decoding."""


class PrefetchSettings(SettingsGroup):
    """The recognition cache of the device, filled ahead of what the edge or the devices nearby predict."""

    enabled: bool = True
    """Recognise on the device where that is expected to be faster. Needs an edge, or devices nearby."""
    profile: Path | None = None
    """Device profile of `nearsight profile --device`. None: a built-in default, adjusted to this machine."""
    features: int = Field(default=0, ge=0)
    """Features per photo, one of the profile's numbers. 0: the number that is expected to be the fastest."""
    k_max: int = Field(default=40, ge=0, le=10_000)
    """Most objects to hold ready at a time; 0: none."""
    memory_bytes: int = Field(default=32 * 2**20, ge=0)
    """Most bytes of object models to keep."""
    snapshots: int = Field(default=4, ge=1, le=64)
    """Caches kept for objects that the device looked at last."""
    miss_prior_ms: float = Field(default=100.0, ge=0, allow_inf_nan=False)
    """Assumed time of an answer of the edge, in ms, until one was measured."""
    miss_window: int = Field(default=10, ge=1)
    """Answers of tiers over whose times the median is taken."""
    parallel: int = Field(default=4, ge=1, le=16)
    """Models that are fetched at a time."""
    timeout_s: Seconds = 10.0
    """Longest wait in seconds for a prediction or a model."""
    refresh_s: Seconds = 10.0
    """A prediction for the object that the device still looks at is asked for again after this time."""
    watch_s: Seconds = 30.0
    """Without an edge, which mentions changes of the catalogue, the cloud is asked for them so often."""
    recognition: RecognitionSettings = RecognitionSettings()
    """Recognition on the device; as on the tiers."""

    batch: ClassVar[int] = 1
    """Models per request: one that never comes must not hold up another."""


class RequestSettings(SettingsGroup):
    """What every recognizer has to know of requests, wherever they are answered."""

    timeout_s: Seconds = 5.0
    """Deadline in seconds of a request that brings none of its own."""
    max_pending: int = Field(default=64, ge=1)
    """Requests in flight; more are answered OVERLOADED at once."""
    image_workers: int = Field(default=2, ge=1, le=64)
    """Threads that read, scale and encode images, and look at them."""
    result_cache: ResultCacheSettings = ResultCacheSettings()
    """Answers that are used again. Needs the recognition cache, which keeps up with the catalogue."""


class LocalSettings(RequestSettings):
    """Settings of one `LocalRecognizer`."""

    recognition: RecognitionSettings = RecognitionSettings()
    """The pipeline from image to answer; objects are trained anew where it changes what is learnt of them."""
    allow_similar: bool = False
    """Take pictures of a folder that are there under another id, too; the answer is then one of the two."""


class RecognizerSettings(RequestSettings):
    """Settings of one `Recognizer`."""

    tier_share: float = Field(default=0.6, gt=0, lt=1)
    """Share of the time left that a tier may use while another healthy one could still be asked."""
    upload: UploadSettings = UploadSettings()
    """How a photo is made ready for the network."""
    breaker: BreakerSettings = BreakerSettings()
    """When a tier that keeps failing is asked last."""
    prefetch: PrefetchSettings = PrefetchSettings()
    """The recognition cache of the device."""
    peers: PeerSettings = PeerSettings()
    """Sharing with devices nearby."""
