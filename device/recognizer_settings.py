"""Settings of the SDK for applications; every value is validated when it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.request.next_tiers import BreakerSettings
from nearsight.common.result_cache.settings import ResultCacheSettings
from nearsight.common.rpc.envelope import LONGEST_S
from nearsight.common.settings import SettingsGroup
from nearsight.device.peers.settings import PeerSettings

Seconds = Annotated[float, Field(gt=0, le=LONGEST_S, allow_inf_nan=False)]


class UploadSettings(SettingsGroup):
    """Preparation of photos for sending."""

    longest_side: int = Field(default=640, ge=160, le=4096)
    """Longest side to which a larger image is scaled [pixels]; recognition itself works at 640."""
    jpeg_quality: int = Field(default=85, ge=30, le=100)
    """Quality of images that must be encoded."""
    pass_through_bytes: int = Field(default=256 * 1024, ge=0)
    """Image files up to this size, and not larger than longest_side, are sent unchanged."""
    thumbnails: bool = True
    """Send a thumbnail of 64 bytes to an edge with a result cache while photos repeat, so that the edge need
    not decode known photos. For this, the device decodes the files that it sends, at an eighth of their
    size."""
    max_bytes: int = Field(default=20 * 2**20, gt=0)
    """Maximum size of a file from the application [bytes]."""
    max_pixels: int = Field(default=50_000_000, gt=0)
    """Maximum number of pixels that an image may declare; larger images are refused without decoding."""


class PrefetchSettings(SettingsGroup):
    """The recognition cache of the device, filled from the predictions of the edge or of devices nearby."""

    enabled: bool = True
    """Recognise on the device if that is expected to be faster. Needs an edge, or devices nearby."""
    profile: Path | None = None
    """Device profile of `nearsight profile --device`. None: a built-in default, adjusted to this machine."""
    features: int = Field(default=0, ge=0)
    """Features per photo, one of the profile's numbers. 0: the number that is expected to be the fastest."""
    k_max: int = Field(default=40, ge=0, le=10_000)
    """Maximum number of objects in the cache; 0: none."""
    memory_bytes: int = Field(default=32 * 2**20, ge=0)
    """Maximum size of the stored object models [bytes]."""
    snapshots: int = Field(default=4, ge=1, le=64)
    """Number of caches that are kept for the objects recognised last."""
    miss_prior_ms: float = Field(default=100.0, ge=0, allow_inf_nan=False)
    """Assumed latency of the edge until one was measured [ms]."""
    miss_window: int = Field(default=10, ge=1)
    """Number of tier answers over which the median latency is computed."""
    parallel: int = Field(default=4, ge=1, le=16)
    """Maximum number of models that are fetched at the same time."""
    timeout_s: Seconds = 10.0
    """Timeout of a prediction or a model [s]."""
    refresh_s: Seconds = 10.0
    """Interval at which the prediction is requested again while the device still sees the same object [s]."""
    watch_s: Seconds = 30.0
    """Interval at which the cloud is queried for changes of the catalogue [s]; only without an edge, whose
    answers report changes."""
    recognition: RecognitionSettings = RecognitionSettings()
    """Recognition on the device; as on the tiers."""

    batch: ClassVar[int] = 1
    """Models per request: a model that never arrives must not delay another."""


class RequestSettings(SettingsGroup):
    """Settings of requests that all recognizers share."""

    timeout_s: Seconds = 5.0
    """Deadline of requests without their own [s]."""
    max_pending: int = Field(default=64, ge=1)
    """Maximum number of requests in flight; further ones are answered OVERLOADED at once."""
    image_workers: int = Field(default=2, ge=1, le=64)
    """Threads that read, scale and encode images, and look them up."""
    result_cache: ResultCacheSettings = ResultCacheSettings()
    """Reuse of answers. Needs the recognition cache, which tracks changes of the catalogue."""


class LocalSettings(RequestSettings):
    """Settings of one `LocalRecognizer`."""

    recognition: RecognitionSettings = RecognitionSettings()
    """The pipeline from image to answer; objects are trained again if a change affects their models."""
    allow_similar: bool = False
    """Also accept pictures that the folder contains under another id; the answer is then one of the two."""


class RecognizerSettings(RequestSettings):
    """Settings of one `Recognizer`."""

    tier_share: float = Field(default=0.6, gt=0, lt=1)
    """Share of the remaining time that a tier may use while another healthy tier could still be called."""
    upload: UploadSettings = UploadSettings()
    """Preparation of photos for sending."""
    breaker: BreakerSettings = BreakerSettings()
    """Conditions under which a failing tier is called last."""
    prefetch: PrefetchSettings = PrefetchSettings()
    """The recognition cache of the device."""
    peers: PeerSettings = PeerSettings()
    """Cooperation with devices nearby."""
