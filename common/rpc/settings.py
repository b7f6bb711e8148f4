"""Settings of servers and channels; the settings of daemons contain them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from nearsight.common.settings import SettingsGroup

MEBIBYTE = 2**20
PENDING_LIMIT_MAX = 8192


class ServerSettings(SettingsGroup):
    """How a daemon serves its calls."""

    listen: str = "tcp://127.0.0.1:0"
    """tcp://address:port (port 0: any free one), or ipc://path. The address may be the name of a network
    interface."""
    workers: int = Field(default=2, ge=1, le=1024)
    """Threads that run handlers."""
    queue_limit: PositiveInt = 256
    """Maximum number of waiting requests; beyond it, the last request of the client with the most requests is
    answered OVERLOADED."""
    queue_timeout_s: PositiveFloat = 2.0
    """Maximum wait of a request. A request is answered OVERLOADED as soon as it is predicted to wait
    longer."""
    shares_per_peer: PositiveInt = 8
    """Maximum number of consecutive turns of one peer in the fair order: one for each client of the peer, for
    example for each device of an edge."""
    deferred_limit: PositiveInt = 1024
    """Maximum number of deferred answers in progress; one peer may have as many as are still free for others.
    Further requests are answered OVERLOADED."""
    max_message_bytes: PositiveInt = 64 * MEBIBYTE
    """Maximum size of message and blobs together. Larger requests and responses are refused; a client whose
    request is clearly larger is disconnected. If the waiting requests and unread answers of a connection
    reach this size, the server stops reading from it. A larger value has little use: clients send no larger
    requests, and receive no blob of more than 64 MiB."""
    max_frames: PositiveInt = 16384
    """Maximum number of frames of one request, its header and blobs; a client that sends more is
    disconnected."""
    memory_limit_bytes: PositiveInt = 256 * MEBIBYTE
    """Memory for unfinished requests, requests that wait or are processed, and unread answers of all clients;
    beyond it, a connection of the client that occupies the most is closed. A request is answered OVERLOADED
    unless as much memory as it occupies is free in addition."""
    send_limit_bytes: PositiveInt = 128 * MEBIBYTE
    """Maximum size of the unread answers of one connection; a connection with more is closed."""
    connections_limit: PositiveInt = 1024
    """Maximum number of connections; further ones replace idle connections of the client with the most.
    Limited to three quarters of the descriptors that the process may open."""
    handshake_timeout_s: PositiveFloat = 10.0
    """A client that has not completed its handshake by then is disconnected."""
    heartbeat_s: PositiveFloat = 5.0
    """A client that sent nothing for this time receives a heartbeat; a client that neither sends nor reads
    for three times as long is disconnected."""
    log_requests: Literal["off", "debug", "info"] = "off"
    """Level of the log line of each answered request; off: no such line."""
    log_share: float = Field(default=1.0, gt=0, le=1)
    """Share of the requests that are logged; chosen by trace_id, so all tiers choose the same ones."""


class ChannelSettings(SettingsGroup):
    """How a client reaches a server."""

    connect_grace_s: NonNegativeFloat = 0.5
    """Time for which calls wait for an unreachable server (it may be restarting)."""
    connect_interval_s: PositiveFloat = 0.05
    """Mean time between attempts to connect; doubles with each failure."""
    connect_interval_max_s: PositiveFloat = 0.25
    """Maximum mean time between attempts; a call in between waits for the next attempt."""
    connect_timeout_s: PositiveFloat = 5.0
    """Timeout of one attempt to connect."""
    heartbeat_s: float = Field(default=2.0, ge=0, le=3600)
    """Time between heartbeats; 0: none. The connection ends if the server's machine acknowledges nothing for
    three times as long, or if no complete frame arrives for thirty times as long."""
    max_attempts: PositiveInt = 3
    """Maximum number of times that an idempotent call is sent."""
    retry_ratio: NonNegativeFloat = 0.1
    """Long-term number of retries per call that the retry budget allows."""
    retry_burst: NonNegativeFloat = 10.0
    """Number of retries that the retry budget allows at once."""
    backoff_s: PositiveFloat = 0.05
    """Mean wait before the first retry; doubles with each retry."""
    pending_limit: int = Field(default=1024, ge=1, le=PENDING_LIMIT_MAX)
    """Maximum number of unanswered calls; a further one fails with Overloaded."""
    max_message_bytes: PositiveInt = 64 * MEBIBYTE
    """Larger requests fail before they are sent."""
