"""Metrics of a daemon, as Prometheus sees them."""

import socket
import threading
import urllib.request
from contextlib import ExitStack

import pytest

from nearsight.common.errors import AddressInUse, ConfigurationError, StatusCode
from nearsight.common.metrics import DaemonMetrics
from support.waiting import wait_until


def scrape(address: str) -> list[str]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        return str(answer.read(), "utf-8").splitlines()


def test_calls_are_counted_by_service_method_and_outcome() -> None:
    metrics = DaemonMetrics("edge")
    address = metrics.start_http("127.0.0.1:0")
    try:
        metrics.on_call("nearsight.v1.Recognition", "Recognize", StatusCode.OK, 1.5, 20, 1000, 50)
        metrics.on_call("nearsight.v1.Recognition", "Recognize", StatusCode.OVERLOADED, 2000, None, 1000, 10)
        lines = scrape(address)
    finally:
        metrics.stop_http()
    method = 'method="Recognize",service="nearsight.v1.Recognition"'
    assert f'nearsight_calls_total{{code="OK",{method}}} 1.0' in lines
    assert f'nearsight_calls_total{{code="OVERLOADED",{method}}} 1.0' in lines
    assert f"nearsight_received_bytes_total{{{method}}} 2000.0" in lines
    assert f"nearsight_sent_bytes_total{{{method}}} 60.0" in lines
    assert f"nearsight_call_queue_seconds_sum{{{method}}} 2.0015" in lines
    assert f"nearsight_call_compute_seconds_sum{{{method}}} 0.02" in lines
    assert f"nearsight_call_compute_seconds_count{{{method}}} 1.0" in lines
    assert any(line.startswith("nearsight_info{") and 'daemon="edge"' in line for line in lines)
    assert any(line.startswith("process_cpu_seconds_total") for line in lines)


def test_two_daemons_in_one_process_have_separate_counts() -> None:
    edge, cloud = DaemonMetrics("edge"), DaemonMetrics("cloud")
    edge.on_thread_crash()
    assert edge.registry.get_sample_value("nearsight_thread_crashes_total") == 1
    assert cloud.registry.get_sample_value("nearsight_thread_crashes_total") == 0


def test_the_error_for_a_port_in_use_names_the_setting() -> None:
    first, second = DaemonMetrics("edge"), DaemonMetrics("cloud")
    address = first.start_http("127.0.0.1:0")
    try:
        with pytest.raises(AddressInUse, match=rf"metrics address {address} is in use; set metrics_listen"):
            second.start_http(address)
    finally:
        first.stop_http()


def test_idle_connections_are_limited_and_do_not_block_others() -> None:
    metrics = DaemonMetrics("edge")
    address = metrics.start_http("127.0.0.1:0")
    host, _, port = address.rpartition(":")
    threads = threading.active_count()
    try:
        with ExitStack() as stack:
            idle = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(100)]
            assert any(line.startswith("nearsight_info{") for line in scrape(address))
            assert idle[0].recv(1) == b"", "the oldest connection is closed"
            wait_until(lambda: threading.active_count() - threads <= 16, what="few threads")
    finally:
        metrics.stop_http()


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(AddressInUse, match="cannot be bound"):
        DaemonMetrics("edge").start_http("192.0.2.1:0")


@pytest.mark.parametrize("listen", ["9101", "host", "host:", ":9101", "127.0.0.1:port", "127.0.0.1:70000"])
def test_an_invalid_address_is_a_configuration_error(listen: str) -> None:
    with pytest.raises(ConfigurationError, match="is not host:port"):
        DaemonMetrics("edge").start_http(listen)


def test_an_empty_address_serves_nothing() -> None:
    metrics = DaemonMetrics("edge")
    assert metrics.start_http("") == ""
    metrics.stop_http()


def test_the_port_is_free_again_after_the_stop() -> None:
    metrics = DaemonMetrics("edge")
    address = metrics.start_http("127.0.0.1:0")
    metrics.stop_http()
    assert metrics.start_http(address) == address
    metrics.stop_http()
