"""How many bytes a daemon has answered with, by method: its metrics, read as a monitoring system would."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from nearsight.common.errors import Unavailable

_FAMILY = "nearsight_sent_bytes"
_TIMEOUT_S = 10.0


def served_bytes(metrics: str) -> dict[str, int]:
    """Bytes of responses since the start, by ``Service.Method``.

    Parameters
    ----------
    metrics : str
        ``host:port``, as the daemon announced.

    Raises
    ------
    Unavailable
        If it does not answer.
    """
    try:
        # Without a proxy, whatever the person's environment says: it is a daemon of this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{metrics}/metrics", timeout=_TIMEOUT_S) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, TimeoutError) as error:
        raise Unavailable(f"no metrics from {metrics}: {error}") from error
    return {
        f"{sample.labels['service'].rpartition('.')[2]}.{sample.labels['method']}": int(sample.value)
        for family in text_string_to_metric_families(text)
        if family.name == _FAMILY
        for sample in family.samples
        if sample.name == f"{_FAMILY}_total"
    }


def since(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """What was added."""
    return {name: count - before.get(name, 0) for name, count in after.items()}
