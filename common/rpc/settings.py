"""Settings of servers and channels; daemons nest them in their own."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt

MEBIBYTE = 2**20


class ServerSettings(BaseModel):
    """How a daemon serves its calls."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    listen: str = Field(
        "tcp://127.0.0.1:0",
        description="tcp://address:port (port 0: any free one), ipc://path, or inproc://name",
    )
    workers: PositiveInt = Field(2, description="threads that run handlers")
    queue_limit: PositiveInt = Field(
        256,
        description="requests that may wait; if one more comes, the last of whoever has most is answered "
        "OVERLOADED",
    )
    queue_timeout_s: PositiveFloat = Field(
        2.0,
        description="a request that would wait longer is answered OVERLOADED, as soon as that is foreseen",
    )
    shares_per_peer: PositiveInt = Field(
        8,
        description="turns that a peer takes at most where all take turns: one for each client that it asks "
        "for, as an edge does",
    )
    newest_wins_limit: PositiveInt = Field(
        2, description="queued requests of one client beyond which its newest frame supersedes its oldest"
    )
    deferred_limit: PositiveInt = Field(
        1024,
        description="answers that handlers may owe at once; to one peer as many as are left for others. More "
        "requests are answered OVERLOADED",
    )
    max_message_bytes: PositiveInt = Field(
        64 * MEBIBYTE,
        description="larger requests and responses are refused; a client whose waiting requests and unread "
        "answers together have more is not read any further",
    )
    max_frames: PositiveInt = Field(
        16384, description="blobs that one request may have; a client that sends more loses its connection"
    )
    memory_limit_bytes: PositiveInt = Field(
        256 * MEBIBYTE,
        description="unfinished requests, requests that wait or are worked on, and unread answers of all "
        "clients; beyond it, the client that holds most loses its connection",
    )
    send_limit_bytes: PositiveInt = Field(
        128 * MEBIBYTE, description="a client that leaves more answers unread loses its connection"
    )
    connections_limit: PositiveInt = Field(
        1024,
        description="clients connected at once; one more replaces the connection that was idle longest. At "
        "most three quarters of the descriptors that the process may open",
    )
    handshake_timeout_s: PositiveFloat = Field(
        10.0, description="a client that has not connected by then loses its connection"
    )
    heartbeat_s: PositiveFloat = Field(
        5.0,
        description="a client that was quiet for so long is asked whether it is there; one that says nothing "
        "and reads nothing for three times as long loses its connection",
    )
    log_requests: Literal["off", "debug", "info"] = Field(
        "off", description="a line in the log for each answered request, of this level"
    )
    log_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="share of the requests that get one; chosen by trace_id, so all tiers choose the same",
    )


class ChannelSettings(BaseModel):
    """How a client reaches a server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connect_grace_s: NonNegativeFloat = Field(
        0.5, description="how long calls wait for a server that is not there (it may be restarting)"
    )
    connect_interval_s: PositiveFloat = Field(
        0.05, description="mean time between attempts to connect; doubles with each that fails"
    )
    connect_interval_max_s: PositiveFloat = Field(
        0.25, description="longest mean time between attempts; a call meanwhile waits for the next one"
    )
    connect_timeout_s: PositiveFloat = Field(
        5.0, description="an attempt to connect that takes longer has failed"
    )
    heartbeat_s: NonNegativeFloat = Field(
        2.0, description="time between heartbeats; three lost ones end the connection; 0: none"
    )
    max_attempts: PositiveInt = Field(3, description="times that an idempotent call is sent at most")
    retry_ratio: NonNegativeFloat = Field(
        0.1, description="retries per call that the budget allows in the long run"
    )
    retry_burst: NonNegativeFloat = Field(10.0, description="retries that the budget allows at once")
    backoff_s: PositiveFloat = Field(0.05, description="mean wait before the first retry; doubles with each")
    pending_limit: PositiveInt = Field(1024, description="unanswered calls; one more fails with Overloaded")
    max_message_bytes: PositiveInt = Field(
        64 * MEBIBYTE, description="larger requests fail before they are sent"
    )
    newest_wins: bool = Field(
        False,
        description="the calls are the frames of one camera: where the server falls behind, newer ones "
        "supersede older ones that wait. Leave off in a daemon that asks for several clients",
    )
