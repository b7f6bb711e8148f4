from nearsight.common.clock import ManualClock
from nearsight.common.operation.status import HealthService
from nearsight.common.rpc.client import Stub
from nearsight.common.rpc.inprocess import in_process_channel
from nearsight.protos import health_pb2
from support.rpc import ECHO, Gate, ScriptedEcho, serving, text


def test_health_tells_what_a_daemon_is_and_does() -> None:
    clock = ManualClock()
    health = HealthService(
        "edge", "1.2", lambda: False, lambda: [("objects", "44"), ("k", "12")], clock=clock
    )
    clock.advance(5.0)
    with serving(health) as server, in_process_channel(server, client_id="test") as channel:
        answer = (
            Stub(channel, HealthService.descriptor).check(health_pb2.HealthRequest(), timeout_s=5).message
        )
    assert (answer.daemon, answer.version, answer.ready, answer.uptime_s) == ("edge", "1.2", False, 5.0)
    assert [(d.name, d.value) for d in answer.details] == [("objects", "44"), ("k", "12")]


def test_health_is_answered_while_every_worker_is_busy_and_the_queue_full() -> None:
    gate = Gate()
    health = HealthService("cloud", "1", lambda: True)
    with (
        serving(ScriptedEcho(gate), health, workers=1, queue_limit=1, listen="tcp://127.0.0.1:0") as server,
        in_process_channel(server, client_id="test") as channel,
    ):
        echo = Stub(channel, ECHO).echo
        busy = [echo.future(text(), timeout_s=20)]
        assert gate.entered.acquire(timeout=10)
        busy.append(echo.future(text(), timeout_s=20))
        stub = Stub(channel, HealthService.descriptor)
        assert stub.check(health_pb2.HealthRequest(), timeout_s=5).message.ready
        gate.open.set()
        for future in busy:
            future.result(10)
