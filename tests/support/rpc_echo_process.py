"""The program of `support.rpc.echo_process`."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nearsight.common.logging import configure_logging
from nearsight.common.rpc.server import RpcServer
from nearsight.common.rpc.service import CallContext
from nearsight.common.rpc.settings import ServerSettings
from nearsight.protos import echo_pb2
from support.rpc import ScriptedEcho, give_back


def wait_then_give_back(request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
    time.sleep(float(request.text or "0"))
    return give_back(request, context)


if __name__ == "__main__":
    configure_logging(level="ERROR")
    settings = ServerSettings(listen=sys.argv[1])
    with RpcServer([ScriptedEcho(wait_then_give_back)], tier="test", settings=settings) as server:
        sys.stdout.write(server.endpoint + "\n")
        sys.stdout.flush()
        sys.stdin.read()
