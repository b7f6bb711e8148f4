"""A server of Gabriel, the platform for wearable cognitive assistance, with an engine that queries our edge.

It is a baseline for the gateway: its clients also use WebSocket. It is measured if it is installed (`pip
install gabriel-server`); nothing else uses it. Its server and its engine are two processes. The engine
forwards each photo to the edge, as the gateway does.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from nearsight.common.errors import Unavailable
from nearsight.experiments.rig.processes import ManagedProcess, ProcessGroup
from nearsight.experiments.rig.tiers import CATALOGUE

_START_S, _TIMEOUT_S = 30.0, 10.0
_ENGINE = "local_engine"


@contextmanager
def gabriel_server(folder: Path, edge: str) -> Iterator[tuple[Callable[[bytes], str], ManagedProcess] | None]:
    """Start it before this edge; yield a function that asks for a label, and its process.

    Yields None if it is not installed.
    """
    if find_spec("gabriel_server") is None:
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with ProcessGroup(folder) as group:
        arguments = ["-m", "nearsight.experiments.bench.gabriel", edge, str(port)]
        server = group.start("gabriel", arguments)
        with _connected(port) as connection:
            yield _asking(connection), server


def _connected(port: int) -> ClientConnection:
    """Connect as soon as the server listens."""
    until_s = time.monotonic() + _START_S
    while True:
        try:
            return connect(f"ws://localhost:{port}", max_size=None)
        except OSError as error:
            if time.monotonic() > until_s:
                raise Unavailable("the server of Gabriel did not start") from error
        time.sleep(0.1)


def _asking(connection: Any) -> Callable[[bytes], str]:
    from gabriel_protocol.v1 import gabriel_pb2 as pb  # noqa: PLC0415  optional

    registration = pb.FromClient(registration=pb.FromClient.Registration())
    connection.send(registration.SerializeToString())
    frame = 0

    def ask(photo: bytes) -> str:
        nonlocal frame
        frame += 1
        image = pb.InputFrame(payload_type=pb.PayloadType.IMAGE, byte_payload=photo)
        sent = pb.FromClient.Input(
            frame_id=frame, producer_id="bench", target_engine_ids=[_ENGINE], input_frame=image
        )
        connection.send(pb.FromClient(input=sent).SerializeToString())
        while True:
            answer = pb.ToClient()
            answer.ParseFromString(connection.recv(timeout=_TIMEOUT_S))
            if answer.HasField("result_wrapper"):
                return str(answer.result_wrapper.result.string_result)

    return ask


def _serve(edge: str, port: int) -> None:
    """Run the server and its engine in this process."""
    from gabriel_protocol.v1 import gabriel_pb2 as pb  # noqa: PLC0415  optional
    from gabriel_server import cognitive_engine, local_engine  # noqa: PLC0415

    from nearsight.common.rpc.client import Channel, Stub  # noqa: PLC0415  in the engine's process
    from nearsight.protos import recognition_pb2  # noqa: PLC0415
    from nearsight.protos.recognition_pb2 import ImageInput, RecognizeRequest  # noqa: PLC0415

    class Engine(cognitive_engine.Engine):  # type: ignore[misc,unused-ignore]
        """Queries the edge."""

        def __init__(self) -> None:
            channel = Channel(edge, client_id="gabriel")
            self._recognition = Stub(channel, recognition_pb2.DESCRIPTOR.services_by_name["Recognition"])

        def handle(self, input_frame: Any, client_info: Any) -> Any:
            """Return the label of the object in a frame."""
            del client_info
            photo = input_frame.byte_payload
            reply = self._recognition.recognize(
                RecognizeRequest(image=ImageInput(size_bytes=len(photo))),
                timeout_s=_TIMEOUT_S,
                blobs=[photo],
                catalogue=CATALOGUE,
            )
            message: Any = reply.message
            return cognitive_engine.Result(pb.Status(code=pb.StatusCode.SUCCESS), message.object.label)

    local_engine.LocalEngine(Engine, input_queue_maxsize=60, port=port, num_tokens=2).run()


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
