"""A self-signed certificate, for networks without a certificate authority; and the addresses of this machine.

Visitors must accept the certificate once. It is stored, so that a restart does not require this again.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from nearsight.common.errors import ConfigurationError
from nearsight.common.files import write_atomically
from nearsight.common.logging import get_logger
from nearsight.common.rpc.interfaces import own_networks

_VALID_DAYS = 397
"""Maximum validity that browsers accept from a certificate authority [days]."""
_RENEW_DAYS = 30
_EVERYWHERE = MappingProxyType(
    {
        "0.0.0.0": (socket.AF_INET, "192.0.2.1", "127.0.0.1"),
        "::": (socket.AF_INET6, "2001:db8::1", "::1"),
    }
)
"""Wildcard hosts → address family, an external address to connect to, and the loopback address."""


class CertificateFiles(NamedTuple):
    """PEM files of the certificate and its private key."""

    cert: Path
    key: Path


def address_here(host: str) -> str:
    """Address at which other machines reach a server on ``host``; wildcard hosts are resolved."""
    if host not in _EVERYWHERE:
        return host
    family, somewhere, here = _EVERYWHERE[host]
    if family == socket.AF_INET and (networks := own_networks()):
        here = str(networks[0].ip)  # used on a network without a route to others
    # Connecting a datagram socket sends nothing; the system only selects the local address.
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.connect((somewhere, 9))
        here = str(asking.getsockname()[0])
    return here


def self_signed(folder: Path, host: str) -> CertificateFiles:
    """The certificate in a folder; created if it is missing or unusable, expires soon, or lacks an address.

    Parameters
    ----------
    folder : Path
        Folder of the certificate.
    host : str
        Host on which the gateway listens.

    Raises
    ------
    ConfigurationError
        If the host is no name.
    OSError
        If the folder cannot be written.
    """
    files = CertificateFiles(folder / "cert.pem", folder / "key.pem")
    name = socket.gethostname()
    found = (address_here(host), "127.0.0.1", "::1", "localhost", name, f"{name}.local")
    names = tuple(dict.fromkeys(one for one in found if one))
    if not _fits(files, names):
        _make(files, names)
    return files


def warn_if_not_valid(cert: Path) -> None:
    """Warn if browsers reject a certificate for its dates. The server itself reports other faults."""
    with suppress(OSError, ValueError):
        certificate = x509.load_pem_x509_certificate(cert.read_bytes())
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if not begins <= datetime.now(UTC) < ends:
            get_logger("gateway").warning(
                "browsers reject the certificate: it is not valid today",
                file=str(cert),
                valid=f"{begins:%Y-%m-%d} to {ends:%Y-%m-%d}",
                advice="renew the certificate, or set the clock of this machine, and start the gateway again",
            )


def _fits(files: CertificateFiles, names: Sequence[str]) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(files.cert.read_bytes())
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm, x509.ExtensionNotFound):
        return False
    renewal = certificate.not_valid_after_utc - timedelta(days=_RENEW_DAYS)
    return (
        key.public_key() == certificate.public_key()
        and certificate.not_valid_before_utc <= datetime.now(UTC) < renewal
        and set(map(_name, names)) <= set(extension.value)
    )


def _make(files: CertificateFiles, names: Sequence[str]) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nearsight gateway")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # the clocks of phones differ
        .not_valid_after(now + timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(list(map(_name, names))), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_atomically(files.key, secret, 0o600)
    write_atomically(files.cert, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _name(text: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(text))
    try:
        return x509.DNSName(text if text.isascii() else text.encode("idna").decode())
    except UnicodeError as error:
        raise ConfigurationError(
            f"{text!r} is not the name of a host", advice="listen on an address, such as 0.0.0.0:8443"
        ) from error
