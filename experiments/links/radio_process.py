"""The access point of a `RadioNetwork`: a process that carries frames between TAP devices over one channel.

``python -m nearsight.experiments.links.radio_process --settings JSON --hosts JSON`` makes a device for each
host, moves it into the host's namespace and says "ready". It then reads lines from standard input: a number
is the share of frames that get lost from now on, and "report" prints what was carried so far. It ends with
its input, and the devices with it. It asks for a real-time priority: what is late here is late for everybody.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Sequence

from nearsight.common.errors import SetupError
from nearsight.experiments.links.radio import Delivery, RadioChannel, RadioSettings

_DEVICE = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TAP_WITHOUT_HEADER = 0x0002 | 0x1000
_PRIORITY = 10
_MOST_FRAME_BYTES = 2048
_LONGEST_WAIT_S = 1.0
_REMEMBERED = 100_000


class AccessPoint:
    """Moves frames between devices and the channel.

    Parameters
    ----------
    channel : RadioChannel
        Decides when what arrives where.
    devices : sequence of int
        Descriptor of each station's TAP device, not blocking.
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
        """Carry frames until the input ends."""
        waiting = [commands, *self._devices]
        while True:
            wait_s = min(_LONGEST_WAIT_S, max(0.0, self._channel.next_s() - time.monotonic()))
            ready, _, _ = select.select(waiting, [], [], wait_s)  # unlike poll it counts microseconds
            for delivery in self._channel.advance(time.monotonic()):
                self._deliver(delivery)
            for descriptor in ready:
                if descriptor == commands:
                    if not self._obey(os.read(commands, _MOST_FRAME_BYTES).decode()):
                        return
                else:
                    self._take(descriptor)

    def report(self) -> dict[str, float]:
        """What was carried, and how much later than the channel wanted."""
        late_s = sorted(self._late_s) or [0.0]
        return {
            "sent": self._channel.sent,
            "lost": self._channel.lost,
            "busy_s": round(self._channel.busy_s, 4),
            "late_p50_ms": round(1000 * late_s[len(late_s) // 2], 4),
            "late_p99_ms": round(1000 * late_s[int(0.99 * (len(late_s) - 1))], 4),
        }

    def _take(self, descriptor: int) -> None:
        """One frame: the others get their turn."""
        try:
            frame = os.read(descriptor, _MOST_FRAME_BYTES)
        except BlockingIOError:
            return
        to_all = bool(frame[0] & 1)
        destination = None if to_all else self._by_address.get(frame[:6])
        if to_all or destination is not None:
            now_s = time.monotonic()
            for delivery in self._channel.advance(now_s):
                self._deliver(delivery)
            self._channel.offer(self._stations[descriptor], destination, frame, now_s)

    def _deliver(self, delivery: Delivery) -> None:
        self._late_s.append(time.monotonic() - delivery.at_s)
        for station in delivery.stations:
            try:
                os.write(self._devices[station], delivery.frame)
            except OSError:  # the host is down, or does not read: nobody hears it
                continue

    def _obey(self, text: str) -> bool:
        for line in text.splitlines():
            if line == "report":
                print(json.dumps(self.report()), flush=True)  # noqa: T201
            else:
                self._channel.lose(float(line))
        return bool(text)


def open_device(name: str, namespace: str, address: bytes) -> int:
    """Make a TAP device and move it to a namespace, where it is ``eth0``; its descriptor."""
    try:
        descriptor = os.open(_DEVICE, os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TAP_WITHOUT_HEADER))
    except OSError as error:
        raise SetupError(
            f"a radio channel needs {_DEVICE}: {error.strerror}", advice="load the kernel's module 'tun'"
        ) from error
    command = ["ip", "link", "set", name, "netns", namespace, "name", "eth0", "address", address.hex(":")]
    subprocess.run(command, check=True)
    return descriptor


def main() -> None:
    """Run until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--settings", required=True, help="RadioSettings as JSON")
    parser.add_argument("--hosts", required=True, help="JSON: [[namespace, hardware address], ...]")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    hosts = [(str(name), bytes.fromhex(address)) for name, address in json.loads(arguments.hosts)]
    settings = RadioSettings(**json.loads(arguments.settings))
    channel = RadioChannel(settings, len(hosts), random.Random(arguments.seed))
    devices = [open_device(f"tap{number}", *host) for number, host in enumerate(hosts)]
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    except PermissionError:
        sys.stderr.write("no real-time priority: frames will be late\n")
    print("ready", flush=True)  # noqa: T201
    AccessPoint(channel, devices, [address for _, address in hosts]).run(sys.stdin.fileno())


if __name__ == "__main__":
    main()
