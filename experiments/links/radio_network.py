"""Hosts as network namespaces that share one wireless channel, like devices around an access point.

The dissertation's devices were connected "over a simulated wireless-medium, using NS3" (6.8). A switch with
shaped cables does not model that: on a wireless channel, every frame of one device delays all others, and
some frames are lost. Here a process is the access point, and `radio` is the model of the channel.

``python -m nearsight.experiments.links.radio_network JSON`` is that process; see `main`. It creates a TAP
device for each host, moves it into the host's namespace and prints "ready". It then reads lines from standard
input. A number sets the share of frames that are lost from now on; "report" prints the counters so far. The
process ends with its input. It requests a real-time priority, because its own delays affect all devices.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict

from pyroute2 import IPRoute

from nearsight.common.errors import SetupError
from nearsight.experiments.links.namespaces import INTERFACE, NamespaceNetwork, index_of
from nearsight.experiments.links.radio import RadioChannel, RadioSettings

_STOP_TIMEOUT_S = 5.0
_DEVICE = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TAP_WITHOUT_HEADER = 0x0002 | 0x1000
_PRIORITY = 10
_MOST_FRAME_BYTES = 2048
_LONGEST_WAIT_S = 1.0
_REMEMBERED = 100_000


class RadioNetwork(NamespaceNetwork):
    """Hosts around one access point, for a ``with`` block.

    Parameters
    ----------
    count : int
        Number of hosts.
    radio : RadioSettings
        Properties of their channel.
    seed : int
        Seed of the channel.

    Raises
    ------
    SetupError
        On entry, if namespaces or TAP devices cannot be created here.
    """

    def __init__(self, count: int, radio: RadioSettings, *, seed: int = 1) -> None:
        super().__init__(count)
        self._radio = radio
        self._seed = seed
        self._access_point: subprocess.Popen[str] | None = None

    def set_loss(self, share: float) -> None:
        """Set the share of frames that are lost from now on."""
        self._write(str(share))

    def report(self) -> Mapping[str, float]:
        """Counters of the channel so far, and delays of the access point."""
        self._write("report")
        found: dict[str, float] = json.loads(self._read_line())
        return found

    def _connect(self) -> int:
        hosts = [[node.name, node.hardware_address] for node in self.nodes]
        self._access_point = subprocess.Popen(
            [
                *("ip", "netns", "exec", self.hub, sys.executable),
                *("-m", "nearsight.experiments.links.radio_network"),
                json.dumps([asdict(self._radio), hosts, self._seed]),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._read_line()
        return 0

    def _write(self, line: str) -> None:
        if self._access_point is None or self._access_point.stdin is None:
            raise SetupError("the radio network is not running")
        try:
            self._access_point.stdin.write(line + "\n")
            self._access_point.stdin.flush()
        except BrokenPipeError:
            raise _ended(self._access_point) from None

    def _read_line(self) -> str:
        process = self._access_point
        line = process.stdout.readline() if process is not None and process.stdout is not None else ""
        if process is not None and not line:
            raise _ended(process)
        return line

    def _remove(self) -> None:
        process, self._access_point = self._access_point, None
        if process is not None:
            try:
                process.communicate(timeout=_STOP_TIMEOUT_S)  # closes its input, which ends the process
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        super()._remove()


def _ended(access_point: subprocess.Popen[str]) -> SetupError:
    """The error of an access point that has ended, with the last line of its error output."""
    reason = access_point.communicate()[1].strip().splitlines()[-1:]
    return SetupError(f"the access point has ended: {' '.join(reason)}")


class AccessPoint:
    """Moves frames between devices and the channel.

    Parameters
    ----------
    channel : RadioChannel
        Decides when and where each frame arrives.
    devices : sequence of int
        Non-blocking descriptor of each station's TAP device.
    addresses : sequence of bytes
        Hardware address of each station.
    """

    def __init__(self, channel: RadioChannel, devices: Sequence[int], addresses: Sequence[bytes]) -> None:
        self._channel = channel
        self._devices = devices
        self._stations = {device: number for number, device in enumerate(devices)}
        self._by_address = {address: number for number, address in enumerate(addresses)}
        self._late_s: deque[float] = deque(maxlen=_REMEMBERED)

    def run(self, commands: int) -> None:
        """Forward frames until the input ends."""
        waiting = [commands, *self._devices]
        while True:
            wait_s = min(_LONGEST_WAIT_S, max(0.0, self._channel.next_s() - time.monotonic()))
            # its timeout has a resolution of microseconds, unlike poll's
            ready, _, _ = select.select(waiting, [], [], wait_s)
            self._deliver_until(time.monotonic())
            for descriptor in ready:
                if descriptor != commands:
                    self._read_frame(descriptor)
                elif not self._execute(os.read(commands, _MOST_FRAME_BYTES).decode()):
                    return

    def report(self) -> dict[str, float]:
        """Counters of frames, and percentiles of the delay of deliveries against the schedule [ms]."""
        late_s = sorted(self._late_s) or [0.0]
        return {
            "sent": self._channel.sent,
            "lost": self._channel.lost,
            "busy_s": round(self._channel.busy_s, 4),
            "late_p50_ms": round(1000 * late_s[len(late_s) // 2], 4),
            "late_p99_ms": round(1000 * late_s[int(0.99 * (len(late_s) - 1))], 4),
        }

    def _read_frame(self, descriptor: int) -> None:
        """Read only one frame, so that other stations get their turn."""
        try:
            frame = os.read(descriptor, _MOST_FRAME_BYTES)
        except BlockingIOError:
            return
        to_all = bool(frame[0] & 1)
        destination = None if to_all else self._by_address.get(frame[:6])
        if to_all or destination is not None:
            now_s = time.monotonic()
            self._deliver_until(now_s)
            self._channel.send(self._stations[descriptor], destination, frame, now_s)

    def _deliver_until(self, now_s: float) -> None:
        for delivery in self._channel.advance(now_s):
            self._late_s.append(time.monotonic() - delivery.at_s)
            for station in delivery.stations:
                with suppress(OSError):  # the host is down or does not read: the frame is lost
                    os.write(self._devices[station], delivery.frame)

    def _execute(self, text: str) -> bool:
        for line in text.splitlines():
            if line == "report":
                print(json.dumps(self.report()), flush=True)  # noqa: T201
            else:
                self._channel.set_loss(float(line))
        return bool(text)


def open_device(name: str, namespace: str, address: str) -> int:
    """Create a TAP device and move it to a namespace as its only interface; returns its descriptor."""
    try:
        descriptor = os.open(_DEVICE, os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TAP_WITHOUT_HEADER))
    except OSError as error:
        raise SetupError(
            f"a radio channel needs {_DEVICE}: {error.strerror}", advice="load the kernel's module 'tun'"
        ) from error
    with IPRoute() as route:
        device = index_of(route, name)
        route.link("set", index=device, address=address)
        route.link("set", index=device, net_ns_fd=namespace, ifname=INTERFACE)
    return descriptor


def main() -> None:
    """Run until standard input ends.

    The argument is JSON: ``[RadioSettings, [[namespace, hardware address], ...], seed]``.
    """
    settings, hosts, seed = json.loads(sys.argv[1])
    channel = RadioChannel(RadioSettings(**settings), len(hosts), random.Random(seed))
    devices = [open_device(f"tap{number}", *host) for number, host in enumerate(hosts)]
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    except PermissionError:
        sys.stderr.write("no real-time priority: frames will be late\n")
    print("ready", flush=True)  # noqa: T201
    addresses = [bytes.fromhex(address.replace(":", "")) for _, address in hosts]
    AccessPoint(channel, devices, addresses).run(sys.stdin.fileno())


if __name__ == "__main__":
    main()
