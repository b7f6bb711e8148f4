"""Hosts as network namespaces that share one wireless channel, as devices around an access point do.

The dissertation's devices were connected "over a simulated wireless-medium, using NS3" (6.8). A switch with
shaped cables lacks what matters there: every frame that one device sends keeps all others waiting, and some
get lost. Here a process is the access point (`radio_process`), and `radio` says what the channel does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict

from nearsight.common.errors import SetupError
from nearsight.experiments.links.namespaces import NamespaceNetwork, hardware_address
from nearsight.experiments.links.radio import RadioSettings

_STOP_TIMEOUT_S = 5.0


class RadioNetwork(NamespaceNetwork):
    """Hosts around one access point, for a ``with`` block; they can be neither split nor cut off.

    Parameters
    ----------
    count : int
        How many hosts.
    radio : RadioSettings
        What their channel is like.
    seed : int
        Of its chance.

    Raises
    ------
    SetupError
        On entry, if namespaces or TAP devices cannot be made here.
    """

    def __init__(self, count: int, radio: RadioSettings, *, seed: int = 1) -> None:
        super().__init__(count)
        self._radio = radio
        self._seed = seed
        self._access_point: subprocess.Popen[str] | None = None

    def lose(self, share: float) -> None:
        """From now on this share of the frames gets lost."""
        self._tell(str(share))

    def report(self) -> Mapping[str, float]:
        """What the channel carried so far, and how late the access point was."""
        found: dict[str, float] = json.loads(self._tell("report", answers=True))
        return found

    def _connect(self) -> None:
        hosts = [[node.name, hardware_address(node).replace(":", "")] for node in self.nodes]
        self._access_point = subprocess.Popen(
            [
                *("ip", "netns", "exec", self._hub, sys.executable),
                *("-m", "nearsight.experiments.links.radio_process", "--seed", str(self._seed)),
                *("--settings", json.dumps(asdict(self._radio)), "--hosts", json.dumps(hosts)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def _tell(self, line: str, *, answers: bool = False) -> str:
        process = self._access_point
        if process is None or process.stdin is None:
            raise SetupError("the radio network is not there")
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return self._answer() if answers else ""

    def _answer(self) -> str:
        process = self._access_point
        line = process.stdout.readline() if process is not None and process.stdout is not None else ""
        if process is not None and not line:
            reason = process.communicate()[1].strip().splitlines()[-1:]
            raise SetupError(f"the access point has ended: {' '.join(reason)}")
        return line

    def _remove(self) -> None:
        self._switch_off()
        super()._remove()

    def _switch_off(self) -> None:
        process, self._access_point = self._access_point, None
        if process is None:
            return
        try:
            process.communicate(timeout=_STOP_TIMEOUT_S)  # its input ends, and so does it
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
