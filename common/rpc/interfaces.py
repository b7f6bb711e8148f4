"""IPv4 addresses of the network interfaces of this machine, as the Linux kernel states them."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct

_GET_FLAGS, _GET_ADDRESS, _GET_NETMASK = 0x8913, 0x8915, 0x891B  # SIOCGIF…
_UP, _BROADCAST, _LOOPBACK = 0x1, 0x2, 0x8


def address_of(interface: str) -> str:
    """The first address of an interface.

    Raises
    ------
    OSError
        If there is no such interface, or it has no address.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return _address(probe, _GET_ADDRESS, interface)


def own_networks() -> tuple[ipaddress.IPv4Interface, ...]:
    """The first address of each interface on a network with broadcast, without loopback."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                flags = struct.unpack("H", _ask(probe, _GET_FLAGS, name, slice(16, 18)))[0]
                if flags & (_UP | _BROADCAST | _LOOPBACK) != _UP | _BROADCAST:
                    continue
                address, mask = (_address(probe, asked, name) for asked in (_GET_ADDRESS, _GET_NETMASK))
            except OSError:  # the interface has no address, or it disappeared after it was listed
                continue
            found.append(ipaddress.IPv4Interface(f"{address}/{mask}"))
    return tuple(found)


def _address(probe: socket.socket, request: int, interface: str) -> str:
    return socket.inet_ntoa(_ask(probe, request, interface, slice(20, 24)))


def _ask(probe: socket.socket, request: int, interface: str, part: slice) -> bytes:
    answer = fcntl.ioctl(probe.fileno(), request, struct.pack("256s", interface.encode()[:15]))
    return bytes(answer[part])
