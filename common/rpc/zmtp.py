"""ZeroMQ's wire protocol as a server speaks it, and one connection that speaks it.

libzmq keeps all parts of a message until the last one has come, however many there are; a peer chooses how
much memory that takes. So the server reads the protocol itself: what a message may have is checked when the
header of each frame is read, before anything is kept. Source: ZMTP 3.1 (ZeroMQ RFC 37).
"""

from __future__ import annotations

import contextlib
import mmap
import socket as sockets
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from nearsight.common.rpc.envelope import LARGEST_HEADER, Buffer
from nearsight.common.rpc.settings import ServerSettings

MORE, LONG, COMMAND = 1, 2, 4

SIGNATURE = b"\xff" + 8 * b"\x00" + b"\x7f"
GREETING_BYTES = 64
MECHANISM = slice(12, 32)
"""Where a greeting, which begins with the signature, names the security mechanism."""

METADATA = b"\x0bSocket-Type\x00\x00\x00\x06ROUTER\x08Identity\x00\x00\x00\x00"
"""What either mechanism tells the client about this side."""

FRAME_COST = 64
"""Bytes of this process that a frame takes beside its content."""

_READS = 16
"""Times that a thread reads from one connection before it looks at the others."""

_PIECES = 64
_REFUSAL = b"\x05ERROR\x03"
_HANDSHAKE_BYTES = 2048
_READ_BYTES = 4096
"""To read at once, but of large frames: each frame takes time, and thousands may be in few bytes."""

_READ_LARGE_BYTES = 2**20
_CLAIM_BELOW_BYTES = 2**21
"""Memory for smaller frames is claimed and counted at once; for larger ones as it is filled, which is slower:
the system hands it out page by page."""

_TURN = 64
_JOIN_BELOW_BYTES = 16384
"""Gathering a small piece in the kernel costs more than copying it."""


class ProtocolError(Exception):
    """The peer broke the protocol or a limit; the message goes to the log."""


class Refused(ProtocolError):
    """The client's key is not allowed, which it is told before the connection is closed.

    A client of libzmq that was told so does not try again by itself.
    """

    status = b"400"


class NoRoom(Refused):
    """The client has too many connections."""

    status = b"300"


class Crowded(Refused):
    """There are too many connections, and this one was not complete."""

    status = b"500"


class Mechanism(Protocol):
    """How a connection is secured: one object for each."""

    name: bytes
    """As greetings state it."""

    done: bool
    """Whether the handshake succeeded, so that messages may follow."""

    key: str
    """What the client proved to own, in Z85; empty without keys."""

    overhead: int
    """Bytes that each frame has beside its content."""

    def opening(self) -> list[bytes]:
        """Commands to send after the client's greeting."""

    def advance(self, command: bytes) -> list[bytes]:
        """Take the client's next command of the handshake; returns those to send.

        Raises
        ------
        ProtocolError
            If it is not what must come next.
        Refused
            If the client may not connect.
        """

    def seal(self, flags: int, content: Buffer) -> tuple[bytes, Buffer]:
        """The header and the body of the frame that carries a content."""

    def unseal(self, flags: int, body: Buffer) -> tuple[int, Buffer]:
        """Flags and content of a frame.

        Raises
        ------
        ProtocolError
            If the client did not make it.
        """


class Null:
    """No security: for clients of this machine."""

    name = b"NULL"
    key = ""
    overhead = 0

    def __init__(self) -> None:
        self.done = False

    def opening(self) -> list[bytes]:
        """See `Mechanism`."""
        return [b"\x05READY" + METADATA]

    def advance(self, command: bytes) -> list[bytes]:
        """See `Mechanism`."""
        if not command.startswith(b"\x05READY"):
            raise ProtocolError("no READY after the greeting")
        self.done = True
        return []

    def seal(self, flags: int, content: Buffer) -> tuple[bytes, Buffer]:
        """See `Mechanism`."""
        return frame_header(flags, len(content)), content

    def unseal(self, flags: int, body: Buffer) -> tuple[int, Buffer]:
        """See `Mechanism`."""
        return flags, body


class Session:
    """One connection's part of the protocol: bytes in, messages and bytes out, without sockets.

    Parameters
    ----------
    mechanism : Mechanism
        Its security.
    settings : ServerSettings
        What a message may have.
    """

    def __init__(self, mechanism: Mechanism, settings: ServerSettings) -> None:
        self.mechanism = mechanism
        self._largest = settings.max_message_bytes
        self._most_frames = settings.max_frames
        self.replies: list[bytes] = [_greeting(mechanism.name)]
        """What the protocol itself has to send; the caller takes it after each `receive`."""
        self.more = False
        """Whether there are further messages in what was received: after a turn of all others."""
        self._greeted = False
        self._rest = b""  # a header, or a small frame, that is not complete
        self._large: memoryview | None = None  # a large frame, as far as it has come
        self.space: memoryview | None = None
        """Where the next bytes belong if they are of a large frame: then they go there, and to `filled`."""
        self._flags = 0
        self._frames: list[Buffer] = []
        self._frames_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Memory that a message takes which is not complete."""
        claimed = 0
        if self._large is not None and self.space is not None:
            claimed = len(self._large)
            if claimed >= _CLAIM_BELOW_BYTES:
                claimed -= len(self.space)
        return len(self._rest) + claimed + self._frames_bytes + FRAME_COST * len(self._frames)

    def filled(self, size_bytes: int) -> list[list[Buffer]]:
        """Bytes were put into ``space``; returns the messages that they complete."""
        messages: list[list[Buffer]] = []
        self.space = self.space and self.space[size_bytes:]
        if self._large is not None and not self.space:
            body, self._large, self.space = self._large, None, None
            self._take(self._flags, body, messages)
        return messages

    def receive(self, data: bytes) -> list[list[Buffer]]:
        """Take bytes that have arrived, while there is no ``space``; returns the messages that they complete.

        Raises
        ------
        ProtocolError
            If the connection must be closed.
        """
        messages: list[list[Buffer]] = []
        self.more = False
        if self._rest:
            data, self._rest = self._rest + data, b""
        position = 0 if self._greeted else self._greet(data)
        if not self._greeted:
            self._rest = data
            return messages
        end = len(data)
        while end - position >= 2 and len(messages) < _TURN:
            flags, size, body = data[position], data[position + 1], position + 2
            if flags & LONG:
                body = position + 9
                if body > end:
                    break
                size = int.from_bytes(data[position + 1 : body], "big")
            self._check(flags, size)
            position = body + size
            if position > end:
                if size < _READ_BYTES:
                    position = body - (9 if flags & LONG else 2)
                    break
                self._begin_large(flags, size, data[body:])
                return messages
            self._take(flags, data[body:position], messages)
        self._rest = data[position:] if position < end else b""
        self.more = len(messages) == _TURN and position < end
        return messages

    def discard(self) -> None:
        """Give up what is not complete."""
        self._rest, self._large, self.space = b"", None, None
        self._frames, self._frames_bytes = [], 0

    def encode(self, frames: Sequence[Buffer]) -> list[Buffer]:
        """The bytes of a message, in pieces; views must be flat bytes."""
        pieces: list[Buffer] = []
        small: list[Buffer] = []
        last = len(frames) - 1
        for index, frame in enumerate(frames):
            header, body = self.mechanism.seal(MORE if index < last else 0, frame)
            small.append(header)
            if len(body) < _JOIN_BELOW_BYTES:
                small.append(body)
            else:
                pieces += (b"".join(small), body)
                small = []
        if small:
            pieces.append(b"".join(small))
        return pieces

    def refusal(self, status: bytes) -> bytes:
        """What ends the handshake; in the clear with keys, too."""
        return self._command(_REFUSAL + status)

    def ping(self) -> bytes:
        """What a client answers if it is alive."""
        return self._command(b"\x04PING\x00\x00")

    def _command(self, command: bytes) -> bytes:
        if not self.mechanism.done:
            return frame_header(COMMAND, len(command)) + command
        return b"".join(self.mechanism.seal(COMMAND, command))

    def _greet(self, data: bytes) -> int:
        """Check what there is of the greeting; returns its size once it is whole."""
        start = data[: len(SIGNATURE)]
        if start[:1] != SIGNATURE[:1] or (len(start) == len(SIGNATURE) and start[-1:] != SIGNATURE[-1:]):
            raise ProtocolError("no peer of this protocol")
        if len(data) > len(SIGNATURE) and data[len(SIGNATURE)] < 3:
            raise ProtocolError("a peer of an older version of this protocol")
        if len(data) < GREETING_BYTES:
            return 0
        if (name := data[MECHANISM].rstrip(b"\x00")) != self.mechanism.name:
            raise ProtocolError(
                f"the client uses {name.decode('ascii', 'replace')}, not {self.mechanism.name.decode()}"
            )
        self._greeted = True
        self.replies += map(self._command, self.mechanism.opening())
        return GREETING_BYTES

    def _check(self, flags: int, size: int) -> None:
        """Refuse a frame by its header."""
        if flags > (MORE | LONG | COMMAND) or flags & (MORE | COMMAND) == MORE | COMMAND:
            raise ProtocolError("a frame of an unknown kind")
        if not self.mechanism.done:
            if not flags & COMMAND or size > _HANDSHAKE_BYTES:
                raise ProtocolError("no handshake after the greeting")
        elif self._frames_bytes + size > self._largest + LARGEST_HEADER + self.mechanism.overhead:
            raise ProtocolError(f"a message of more than {self._largest} bytes")
        elif len(self._frames) >= self._most_frames:
            raise ProtocolError(f"a message of more than {self._most_frames} frames")

    def _begin_large(self, flags: int, size: int, start: bytes) -> None:
        """Make room for a frame."""
        try:
            if size < _CLAIM_BELOW_BYTES:
                self._large = memoryview(bytearray(size))
            else:
                self._large = memoryview(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        except (OSError, MemoryError) as error:
            raise ProtocolError(f"no memory for a frame of {size} bytes") from error
        self._large[: len(start)] = start
        self._flags, self.space = flags, self._large[len(start) :]

    def _take(self, flags: int, body: Buffer, messages: list[list[Buffer]]) -> None:
        """A frame is complete."""
        mechanism = self.mechanism
        if not mechanism.done:
            try:
                answers = mechanism.advance(bytes(body))
            except Refused as refused:
                self.replies.append(self.refusal(refused.status))
                raise
            self.replies += [frame_header(COMMAND, len(one)) + one for one in answers]
            return
        flags, content = mechanism.unseal(flags, body)
        if flags & COMMAND:
            if content[:5] == b"\x04PING":  # then the time that the client lets pass, and a context
                self.replies.append(self._command(b"\x04PONG" + bytes(content[7:23])))
            return
        self._frames.append(content)
        self._frames_bytes += len(content)
        if not flags & MORE:
            messages.append(self._frames)
            self._frames, self._frames_bytes = [], 0


class Connection:
    """One client's connection; all but `group` and `key` is used under its lock."""

    def __init__(self, socket: sockets.socket, address: str, session: Session, now_s: float) -> None:
        self.lock = threading.Lock()
        self.socket = socket
        self.descriptor = socket.fileno()
        self.address = address
        self.session = session
        self.key = ""
        """What the client proved to own, in Z85; empty without keys, and before."""
        self.closed = False
        self.unsent: deque[Buffer] = deque()
        self.unsent_bytes = 0
        self.waiting_bytes = 0
        """Of requests that were handed over and not answered yet."""
        self.counted_bytes = 0
        self.interest = 0
        self.since_s = self.heard_s = self.asked_s = self.sent_s = self.used_s = now_s

    @property
    def group(self) -> str:
        """Whose connection it is."""
        return self.key or self.address.rpartition(":")[0]

    @property
    def droppable_bytes(self) -> int:
        """Memory that is free at once when the connection is closed."""
        return self.session.held_bytes + self.unsent_bytes

    def turn_away(self) -> None:
        """Tell a client that has not finished connecting that there is no room for it."""
        if not self.session.mechanism.done:
            with contextlib.suppress(OSError):
                self.send([self.session.refusal(Crowded.status)])

    def ask(self, now_s: float) -> None:
        """Ask the client whether it is there."""
        if not self.unanswered_s(now_s):
            self.asked_s = now_s
        self.send([self.session.ping()])

    def unanswered_s(self, now_s: float) -> float:
        """How long ago it was asked, if it has said nothing since; else 0."""
        return now_s - self.asked_s if self.asked_s > self.heard_s else 0.0

    def receive(self) -> list[list[Buffer]]:
        """Read what has arrived; returns complete messages.

        Raises
        ------
        OSError
            If the connection has ended.
        ProtocolError
            If it must be closed.
        """
        messages: list[list[Buffer]] = []
        session = self.session
        if session.more:
            return session.receive(b"")
        for _ in range(_READS):
            space, data = session.space, b""
            try:
                if space is None:
                    data = self.socket.recv(_READ_BYTES)
                    size = len(data)
                else:
                    size = self.socket.recv_into(space, min(len(space), _READ_LARGE_BYTES))
            except BlockingIOError:
                break
            if not size:
                raise ConnectionResetError
            messages = session.receive(data) if space is None else session.filled(size)
            if messages or (size < _READ_BYTES and session.space is None):
                break
        return messages

    def send(self, pieces: Iterable[Buffer]) -> None:
        """Send now as much as there is room for, the rest when `flush` is called."""
        idle = not self.unsent
        for piece in pieces:
            self.unsent.append(piece)
            self.unsent_bytes += len(piece)
        if idle:
            self.flush()

    def flush(self) -> bool:
        """Send what there is room for; returns whether anything was sent."""
        before, unsent = self.unsent_bytes, self.unsent
        while unsent:
            try:
                if len(unsent) == 1:
                    sent = self.socket.send(unsent[0])
                else:
                    sent = self.socket.sendmsg([unsent[i] for i in range(min(len(unsent), _PIECES))])
            except BlockingIOError:
                break
            self.unsent_bytes -= sent
            while unsent and sent >= len(unsent[0]):
                sent -= len(unsent.popleft())
            if sent:
                unsent[0] = memoryview(unsent[0])[sent:]
        return self.unsent_bytes < before


def frame_header(flags: int, size: int) -> bytes:
    """What precedes the body of a frame."""
    if size < 256:
        return bytes((flags, size))
    return bytes((flags | LONG,)) + size.to_bytes(8, "big")


def _greeting(mechanism: bytes) -> bytes:
    """Version 3.1, and this side is the server."""
    return (SIGNATURE + b"\x03\x01" + mechanism.ljust(20, b"\x00") + b"\x01").ljust(GREETING_BYTES, b"\x00")
