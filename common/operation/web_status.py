"""State of all daemons, including gateways, which are called over HTTP as monitoring systems do."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

from nearsight.common.background.futures import in_thread
from nearsight.common.operation.status import DaemonStatus, ask_status
from nearsight.common.rpc.security import ClientSecurity

_MAX_BYTES = 65_536
_INVALID_ANSWER = (HTTPException, LookupError, TypeError, ValueError)
"""Errors from the answers of other programs."""


def ask_each_status(
    endpoints: Sequence[str], *, timeout_s: float, security: Sequence[ClientSecurity | None]
) -> tuple[DaemonStatus, ...]:
    """Request the state of all daemons at the same time: gateways at URLs, others at their endpoints.

    Takes ``timeout_s`` at most, also if a server sends its answer slowly.
    """
    web = [endpoint for endpoint in endpoints if endpoint.startswith(("http://", "https://"))]
    others = [(one, keys) for one, keys in zip(endpoints, security, strict=True) if one not in web]
    until_s = time.monotonic() + timeout_s
    # The process may end before these threads: urllib has a timeout for single reads only.
    asked = {url: in_thread(partial(ask_web_status, url, timeout_s), "web-status") for url in web}
    answers = iter(
        ask_status([one for one, _ in others], timeout_s=timeout_s, security=[keys for _, keys in others])
    )

    def answer_of(url: str) -> DaemonStatus:
        try:
            return asked[url].result(max(0.0, until_s - time.monotonic()))
        except TimeoutError:
            return DaemonStatus(url, error=f"the answer was not complete after {timeout_s:g} s")

    return tuple(answer_of(one) if one in asked else next(answers) for one in endpoints)


def ask_web_status(url: str, timeout_s: float) -> DaemonStatus:
    """Request ``/readyz`` of a gateway.

    The certificate is not verified: the request holds no secret, and the answer is only shown.

    Parameters
    ----------
    url : str
        ``http://host:port`` or ``https://host:port``.
    timeout_s : float
        Timeout of the connection and of each read.
    """
    try:
        return _readiness(url, timeout_s)
    except OSError as error:
        reason = error.reason if isinstance(error, URLError) else error
        return DaemonStatus(url, error=f"the connection failed: {reason}")
    except _INVALID_ANSWER:
        return DaemonStatus(url, error="the server there is not a gateway; is the address right?")


def _readiness(url: str, timeout_s: float) -> DaemonStatus:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    try:
        with opener.open(f"{url.rstrip('/')}/readyz", timeout=timeout_s) as answer:
            return DaemonStatus(url, ready=_field(answer, "ready") is True, daemon="gateway")
    except HTTPError as error:
        with error, suppress(*_INVALID_ANSWER):
            problem = _field(error, "error")
            text = "; ".join(filter(None, (str(problem["message"]), str(problem["advice"]))))
            return DaemonStatus(url, daemon="gateway", details=(("edge", text),))
        return DaemonStatus(url, error=f"the server there is not a gateway: {error}")


def _field(answer: IO[bytes], name: str) -> Any:
    return json.loads(answer.read(_MAX_BYTES))[name]
