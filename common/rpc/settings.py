"""Settings of servers and channels; daemons nest them in their own."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from nearsight.common.settings import SettingsGroup

MEBIBYTE = 2**20


class ServerSettings(SettingsGroup):
    """How a daemon serves its calls."""

    listen: str = "tcp://127.0.0.1:0"
    """tcp://address:port (port 0: any free one), ipc://path, or inproc://name."""
    workers: int = Field(default=2, ge=1, le=1024)
    """Threads that run handlers."""
    queue_limit: PositiveInt = 256
    """Requests that may wait; if one more comes, the last of whoever has most is answered OVERLOADED."""
    queue_timeout_s: PositiveFloat = 2.0
    """A request that would wait longer is answered OVERLOADED, as soon as that is foreseen."""
    shares_per_peer: PositiveInt = 8
    """Turns that a peer takes at most where all take turns: one for each client that it asks for, as an edge
    does."""
    deferred_limit: PositiveInt = 1024
    """Answers that handlers may owe at once; to one peer as many as are left for others. More requests are
    answered OVERLOADED."""
    max_message_bytes: PositiveInt = 64 * MEBIBYTE
    """Of message and blobs together. Larger requests and responses are refused; a client whose waiting
    requests and unread answers have more is not read any further."""
    max_frames: PositiveInt = 16384
    """Blobs that one request may have; a client that sends more loses its connection."""
    memory_limit_bytes: PositiveInt = 256 * MEBIBYTE
    """Unfinished requests, requests that wait or are worked on, and unread answers of all clients; beyond it,
    the client that holds most loses its connection."""
    send_limit_bytes: PositiveInt = 128 * MEBIBYTE
    """A client that leaves more answers unread loses its connection."""
    connections_limit: PositiveInt = 1024
    """Clients connected at once; one more replaces the connection that was idle longest. At most three
    quarters of the descriptors that the process may open."""
    handshake_timeout_s: PositiveFloat = 10.0
    """A client that has not connected by then loses its connection."""
    heartbeat_s: PositiveFloat = 5.0
    """A client that was quiet for so long is asked whether it is there; one that says nothing and reads
    nothing for three times as long loses its connection."""
    log_requests: Literal["off", "debug", "info"] = "off"
    """A line in the log for each answered request, of this level."""
    log_share: float = Field(default=1.0, gt=0, le=1)
    """Share of the requests that get one; chosen by trace_id, so all tiers choose the same."""


class ChannelSettings(SettingsGroup):
    """How a client reaches a server."""

    connect_grace_s: NonNegativeFloat = 0.5
    """How long calls wait for a server that is not there (it may be restarting)."""
    connect_interval_s: PositiveFloat = 0.05
    """Mean time between attempts to connect; doubles with each that fails."""
    connect_interval_max_s: PositiveFloat = 0.25
    """Longest mean time between attempts; a call meanwhile waits for the next one."""
    connect_timeout_s: PositiveFloat = 5.0
    """An attempt to connect that takes longer has failed."""
    heartbeat_s: float = Field(default=2.0, ge=0, le=3600)
    """Time between heartbeats; 0: none. The connection ends if the server's machine acknowledges nothing for
    three times as long, or if nothing arrives whole for thirty times as long."""
    max_attempts: PositiveInt = 3
    """Times that an idempotent call is sent at most."""
    retry_ratio: NonNegativeFloat = 0.1
    """Retries per call that the budget allows in the long run."""
    retry_burst: NonNegativeFloat = 10.0
    """Retries that the budget allows at once."""
    backoff_s: PositiveFloat = 0.05
    """Mean wait before the first retry; doubles with each."""
    pending_limit: PositiveInt = 1024
    """Unanswered calls; one more fails with Overloaded."""
    max_message_bytes: PositiveInt = 64 * MEBIBYTE
    """Larger requests fail before they are sent."""
