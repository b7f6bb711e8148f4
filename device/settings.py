"""Settings of the device daemon: table ``[device]`` of ``nearsight.toml``.

``nearsight recognize`` reads them too, so that the user need not repeat the addresses.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from pydantic import Field

from nearsight.common.config.base import NextTier, RpcDaemonSettings
from nearsight.common.rpc.endpoints import DEFAULT_ENDPOINTS
from nearsight.common.rpc.server import ServerSettings
from nearsight.common.settings import SettingsGroup
from nearsight.device.engine import RecognizerObserver
from nearsight.device.recognizer import LEFT_OUT, Recognizer, RecognizerSecurity
from nearsight.device.recognizer_settings import RecognizerSettings


class TierSettings(SettingsGroup):
    """Address and key of a tier."""

    endpoint: str = ""
    """Address of the tier, such as tcp://10.0.0.5:7100. Empty: not used; if both are empty, the tiers of this
    machine are used."""
    public_key: str = ""
    """Public key of the tier, or a file that holds it; needed if the tier uses encryption."""


class DeviceSettings(RpcDaemonSettings):
    """The device daemon: the SDK with a local endpoint for applications in other languages."""

    catalogue: str = Field(default="museum", min_length=1)
    """Catalogue whose objects are recognised."""
    device_id: str = ""
    """Stable identity of this device; the edge learns from its requests. Empty: a new one at each start."""
    edge: TierSettings = TierSettings()
    """The tier that is called first."""
    cloud: TierSettings = TierSettings()
    """The tier that is called if the edge cannot answer."""
    recognizer: RecognizerSettings = RecognizerSettings()
    """Deadlines, limits, image size."""
    server: ServerSettings = ServerSettings(listen=DEFAULT_ENDPOINTS["device"])
    """The local endpoint."""

    changed_first: ClassVar[Mapping[str, tuple[object, str]]] = MappingProxyType(
        {
            "catalogue": ("museum", "The catalogue of `nearsight recognize` and `nearsight device`."),
            "edge.endpoint": (DEFAULT_ENDPOINTS["edge"], "The tier that is called first."),
            "cloud.endpoint": (
                DEFAULT_ENDPOINTS["cloud"],
                "The tier that is called if the edge cannot answer.",
            ),
        }
    )
    read_by_commands: ClassVar[bool] = True

    def next_tiers(self) -> tuple[NextTier, ...]:
        """The configured tiers among edge and cloud."""
        tiers = {"edge": self.edge, "cloud": self.cloud}
        return tuple(
            NextTier(name, tier.endpoint, tier.public_key) for name, tier in tiers.items() if tier.endpoint
        )

    def new_recognizer(
        self, *, device_id: str | None = None, observer: RecognizerObserver | None = None
    ) -> Recognizer:
        """The SDK with these settings; it calls the tiers of this machine if none is set.

        Raises
        ------
        ConfigurationError
            If an address or key cannot be used.
        """
        return Recognizer(
            self.edge.endpoint or LEFT_OUT,
            self.cloud.endpoint or LEFT_OUT,
            self.catalogue,
            device_id=device_id or self.device_id,
            settings=self.recognizer_settings(),
            security=self.client_security(),
            observer=observer,
        )

    def recognizer_settings(self) -> RecognizerSettings:
        """Settings of the SDK; this device uses its own key for devices nearby as well."""
        peers = self.recognizer.peers.with_key(self.security.secret_key_file)
        return self.recognizer.model_copy(update={"peers": peers})

    def client_security(self) -> RecognizerSecurity:
        """The keys for each tier.

        Raises
        ------
        ConfigurationError
            If a tier has a key but this device has none.
        """
        return RecognizerSecurity(
            edge=self.security.towards(self.edge.public_key, setting="edge.public_key"),
            cloud=self.security.towards(self.cloud.public_key, setting="cloud.public_key"),
        )
