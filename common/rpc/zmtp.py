"""ZeroMQ's wire protocol on the server side, and one connection that uses it.

libzmq stores all parts of a message until the last one has arrived, without a limit on their number; so a
peer could use any amount of memory. This module therefore implements the protocol: the limits of a message
are checked when the header of each frame is read, before the frame is stored. Source: ZMTP 3.1 (ZeroMQ RFC
37).
"""

from __future__ import annotations

import contextlib
import mmap
import socket as sockets
import threading
from collections import deque
from collections.abc import Iterable, Sequence

from nearsight.common.rpc.envelope import LARGEST_HEADER, Buffer
from nearsight.common.rpc.settings import ServerSettings

MORE, LONG, COMMAND = 1, 2, 4

SIGNATURE = b"\xff" + 8 * b"\x00" + b"\x7f"
GREETING_BYTES = 64
MECHANISM = slice(12, 32)
"""Position of the name of the security mechanism in a greeting, which begins with the signature."""

METADATA = b"\x0bSocket-Type\x00\x00\x00\x06ROUTER\x08Identity\x00\x00\x00\x00"
"""Metadata that either mechanism sends to the client."""

FRAME_COST = 352
"""Memory of a frame beside its content, with the view of it that a handler receives [bytes]; measured."""

_READS = 16
"""Number of reads by a thread from one connection before it serves others."""

_PIECES = 64
_REFUSAL = b"\x05ERROR\x03"
_HANDSHAKE_BYTES = 2048
_READ_BYTES = 4096
"""Size of one read, except of large frames. Each frame takes time, and few bytes may hold thousands of
frames."""

_READ_LARGE_BYTES = 2**20
_CLAIM_BELOW_BYTES = 2**21
"""Memory for smaller frames is allocated and counted at once. For larger frames both happen as the data
arrive. This is slower, because the system allocates page by page."""

_TURN = 64
_JOIN_BELOW_BYTES = 16384
"""Passing a smaller piece to the kernel separately costs more than copying it."""


class ProtocolError(Exception):
    """The peer violated the protocol or a limit; the message goes to the log."""


class Refused(ProtocolError):
    """The client's key is not allowed. The client receives an error before the connection is closed.

    A libzmq client does not reconnect by itself after this error.
    """

    status = b"400"


class NoRoom(Refused):
    """The client has too many connections."""

    status = b"300"


class Crowded(Refused):
    """There are too many connections, and this one had not completed its handshake."""

    status = b"500"


class Mechanism:
    """Security of one connection. This class is the mechanism NULL: no keys, for clients on this machine."""

    name = b"NULL"
    """Name in greetings."""
    key = ""
    """Public key that the client proved to own, in Z85; empty without keys."""
    overhead = 0
    """Overhead of each frame beside its content [bytes]."""

    def __init__(self) -> None:
        self.done = False
        """Whether the handshake succeeded, so that messages may follow."""

    def opening(self) -> list[bytes]:
        """Commands to send after the client's greeting."""
        return [b"\x05READY" + METADATA]

    def advance(self, command: bytes) -> list[bytes]:
        """Handle the client's next command of the handshake; returns the commands to send.

        Raises
        ------
        ProtocolError
            If it is not the expected command.
        Refused
            If the client may not connect.
        """
        if not command.startswith(b"\x05READY"):
            raise ProtocolError("no READY after the greeting")
        self.done = True
        return []

    def seal(self, flags: int, content: Buffer) -> tuple[bytes, Buffer]:
        """The header and the body of the frame for a content."""
        return frame_header(flags, len(content)), content

    def unseal(self, flags: int, body: Buffer) -> tuple[int, Buffer]:
        """Flags and content of a frame.

        Raises
        ------
        ProtocolError
            If the client did not create it.
        """
        return flags, body


class Session:
    """One connection's protocol state: bytes in, messages and bytes out, without sockets.

    Parameters
    ----------
    mechanism : Mechanism
        Its security.
    settings : ServerSettings
        Limits of a message.
    """

    def __init__(self, mechanism: Mechanism, settings: ServerSettings) -> None:
        self.mechanism = mechanism
        self._largest = settings.max_message_bytes
        self._most_frames = settings.max_frames
        # The signature, version 3.1, the mechanism, and that this side is a server.
        greeting = SIGNATURE + b"\x03\x01" + mechanism.name.ljust(20, b"\x00") + b"\x01"
        self.replies: list[bytes] = [greeting.ljust(GREETING_BYTES, b"\x00")]
        """Bytes that the protocol itself has to send; the caller removes them after each `receive`."""
        self.more = False
        """Whether the received bytes hold further messages; they are read after all other connections had a
        turn."""
        self._greeted = False
        self._rest = b""  # an incomplete header or small frame
        self._large: memoryview | None = None  # an incomplete large frame
        self.space: memoryview | None = None
        """Buffer for the next bytes if they belong to a large frame: write them there, then call `filled`.
        Else None."""
        self._flags = 0
        self._frames: list[Buffer] = []
        self._frames_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Memory of the incomplete message."""
        claimed = 0
        if self._large is not None and self.space is not None:
            claimed = len(self._large)
            if claimed >= _CLAIM_BELOW_BYTES:
                claimed -= len(self.space)
        return len(self._rest) + claimed + self._frames_bytes + FRAME_COST * len(self._frames)

    def filled(self, size_bytes: int) -> list[list[Buffer]]:
        """Bytes were written into ``space``; returns the messages that they complete."""
        messages: list[list[Buffer]] = []
        self.space = self.space and self.space[size_bytes:]
        if self._large is not None and not self.space:
            body, self._large, self.space = self._large, None, None
            self._take(self._flags, body, messages)
        return messages

    def receive(self, data: bytes) -> list[list[Buffer]]:
        """Handle received bytes, while there is no ``space``; returns the messages that they complete.

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
        """Discard the incomplete message."""
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
        """The command that ends the handshake; not encrypted, even with keys."""
        return self._command(_REFUSAL + status)

    def ping(self) -> bytes:
        """A heartbeat that the client must answer."""
        return self._command(b"\x04PING\x00\x00")

    def _command(self, command: bytes) -> bytes:
        if not self.mechanism.done:
            return frame_header(COMMAND, len(command)) + command
        return b"".join(self.mechanism.seal(COMMAND, command))

    def _greet(self, data: bytes) -> int:
        """Check the received part of the greeting; returns its size once it is complete."""
        start = data[: len(SIGNATURE)]
        if start[:1] != SIGNATURE[:1] or (len(start) == len(SIGNATURE) and start[-1:] != SIGNATURE[-1:]):
            raise ProtocolError("a peer of another protocol")
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
        """Allocate memory for a frame."""
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
        """Handle a complete frame."""
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
            if content[:5] == b"\x04PING":  # the rest of a PING is the client's timeout and a context
                self.replies.append(self._command(b"\x04PONG" + bytes(content[7:23])))
            return
        self._frames.append(content)
        self._frames_bytes += len(content)
        if not flags & MORE:
            messages.append(self._frames)
            self._frames, self._frames_bytes = [], 0


class Connection:
    """One client's connection; all attributes except `group` and `key` are used under its lock."""

    def __init__(self, socket: sockets.socket, address: str, session: Session, now_s: float) -> None:
        self.lock = threading.Lock()
        self.socket = socket
        self.descriptor = socket.fileno()
        self.address = address
        self.session = session
        self.key = ""
        """Public key that the client proved to own, in Z85; empty without keys, and before the handshake
        ends."""
        self.closed = False
        self.unsent: deque[Buffer] = deque()
        self.unsent_bytes = 0
        """Memory of the unsent pieces; each counts as a whole until its last byte is sent."""
        self._sent_of_first = 0
        self.waiting_bytes = 0
        """Memory of requests that were received and not answered yet."""
        self.counted_bytes = 0
        self.interest = 0
        self.since_s = self.received_s = self.pinged_s = self.sent_s = self.used_s = now_s

    @property
    def group(self) -> str:
        """Identity by which connections are counted: the key or, without keys, the host address."""
        return self.key or self.address.rpartition(":")[0]

    @property
    def droppable_bytes(self) -> int:
        """Memory that becomes free at once when the connection is closed."""
        return self.session.held_bytes + self.unsent_bytes

    def refuse_crowded(self) -> None:
        """Send an error to a client that has not completed its handshake: there is no room for it."""
        if not self.session.mechanism.done:
            with contextlib.suppress(OSError):
                self.send([self.session.refusal(Crowded.status)])

    def ping(self, now_s: float) -> None:
        """Send a heartbeat to the client."""
        if not self.unanswered_s(now_s):
            self.pinged_s = now_s
        self.send([self.session.ping()])

    def unanswered_s(self, now_s: float) -> float:
        """Time since the last heartbeat if the client has sent nothing since then; else 0."""
        return now_s - self.pinged_s if self.pinged_s > self.received_s else 0.0

    def receive(self) -> list[list[Buffer]]:
        """Read the received bytes; returns complete messages.

        Raises
        ------
        OSError
            If the connection has ended.
        ProtocolError
            If the connection must be closed.
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
        """Send as much as there is room for; `flush` sends the rest later."""
        idle = not self.unsent
        for piece in pieces:
            self.unsent.append(piece)
            self.unsent_bytes += len(piece)
        if idle:
            self.flush()

    def flush(self) -> bool:
        """Send as much as there is room for; returns whether anything was sent."""
        unsent, progress = self.unsent, False
        while unsent:
            first = memoryview(unsent[0])[self._sent_of_first :] if self._sent_of_first else unsent[0]
            try:
                if len(unsent) == 1:
                    sent = self.socket.send(first)
                else:
                    more = [unsent[i] for i in range(1, min(len(unsent), _PIECES))]
                    sent = self.socket.sendmsg([first, *more])
            except BlockingIOError:
                break
            progress = progress or sent > 0
            self._sent_of_first += sent
            while unsent and self._sent_of_first >= len(unsent[0]):
                size = len(unsent.popleft())
                self._sent_of_first -= size
                self.unsent_bytes -= size
        return progress


def frame_header(flags: int, size: int) -> bytes:
    """The header of a frame."""
    if size < 256:
        return bytes((flags, size))
    return bytes((flags | LONG,)) + size.to_bytes(8, "big")
