"""Edges side by side as processes: one cloud, one link to it, and a device of this process before each edge.

All edges stand behind the same link. They fetch nothing ahead and do not ask the cloud for news, so that what
they do follows from what they are asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from nearsight.device.recognizer import Recognizer
from nearsight.device.recognizer_settings import RecognizerSettings
from nearsight.experiments.links.link import LinkShape
from nearsight.experiments.rig.processes import ProcessGroup
from nearsight.experiments.rig.tiers import (
    CATALOGUE,
    child_environment,
    endpoint_of,
    start_daemon,
    start_open_link,
)
from nearsight.experiments.rig.warming import admit, report_requests, wait_all_settled

_COMMON = {"poll_s": "3600", "prefetch.objects": "0"}


class EdgeBench:
    """Cloud, link and edges for a ``with`` block.

    Parameters
    ----------
    folder : Path
        For logs.
    database : Path
        The cloud's catalogue.
    edges : mapping of str to mapping
        Settings of each edge by its name, as after ``--set``.
    device : RecognizerSettings
        Of the devices.
    network : LinkShape
        Of the first `reshape`, with which the link is calibrated; before, nothing holds messages up.
    seed : int
        Of the link.

    Attributes
    ----------
    edges : dict of str to str
        Endpoints.
    devices : dict of str to Recognizer
        One per edge.
    """

    def __init__(
        self,
        folder: Path,
        *,
        database: Path,
        edges: Mapping[str, Mapping[str, str]],
        device: RecognizerSettings,
        network: LinkShape,
        seed: int,
    ) -> None:
        self._group = ProcessGroup(folder, child_environment())
        self._database = database
        self._settings = edges
        self._device = device
        self._network = network
        self._seed = seed
        self._open = ExitStack()
        self.edges: dict[str, str] = {}
        self.devices: dict[str, Recognizer] = {}

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.enter_context(self._group)
            self._start()
            for device in self.devices.values():
                undo.callback(device.close)
            self._open = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def _start(self) -> None:
        cloud = start_daemon(self._group, "cloud", {"database": str(self._database)})
        self._link = start_open_link(self._group, endpoint_of(cloud), self._network, seed=self._seed)
        daemons = {
            name: start_daemon(
                self._group,
                "edge",
                {"cloud": self._link.endpoint, **_COMMON, **settings},
                name=f"edge-{name}",
            )
            for name, settings in self._settings.items()
        }
        for name, daemon in daemons.items():
            self.edges[name] = endpoint_of(daemon)
            self.devices[name] = Recognizer(self.edges[name], None, CATALOGUE, settings=self._device)

    def teach(
        self, requests: Sequence[tuple[str, str]], objects: Mapping[str, int | None], *, timeout_s: float
    ) -> None:
        """Tell every edge what was asked for before; wait until it holds the objects that are said, if any.

        Raises
        ------
        SetupError
            If an edge does not come to hold them.
        """
        for edge in self.edges.values():
            admit(edge, with_models=True, catalogue=CATALOGUE)
            report_requests(edge, requests, catalogue=CATALOGUE)
        expected = {edge: objects.get(name) for name, edge in self.edges.items()}
        wait_all_settled(expected, timeout_s=timeout_s)

    def reshape(self, shape: LinkShape) -> None:
        """Another network between the edges and the cloud."""
        self._link.reshape(shape)
