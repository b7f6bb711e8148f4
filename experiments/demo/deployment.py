"""The tiers of one configuration as processes: cloud, shaped link, and the edge where there is one.

The link to the cloud is the same in every configuration; what changes is who stands before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nearsight.experiments.demo.scenario import EDGE_CACHE, Scenario
from nearsight.experiments.rig.processes import ManagedProcess, ProcessGroup
from nearsight.experiments.rig.tiers import RunningLink, endpoint_of, start_daemon, start_link

WEAK_PRIOR = 0.02
"""Requests that the edge assumes per object before it has seen any. A museum knows nothing of its visitors at
the start of a demo, which is over after 200 requests: the default of 1 for each of 500 objects would outweigh
them. (The dissertation warms its caches instead: 6.2.7.)"""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Running tiers of one configuration.

    Attributes
    ----------
    edge, cloud : str
        Endpoints for the devices; the cloud's is the shaped link. ``edge`` is empty if there is none.
    daemons : dict of str to ManagedProcess
        By role: "cloud", "edge", "link".
    link : RunningLink
        Between the building and the cloud.
    """

    edge: str
    cloud: str
    daemons: Mapping[str, ManagedProcess]
    link: RunningLink


def deploy(
    group: ProcessGroup, configuration: str, scenario: Scenario, *, database: Path, profile: Path
) -> Deployment:
    """Start the tiers of a configuration and wait until they serve.

    Raises
    ------
    SetupError
        If a daemon does not start; with the last lines of its log.
    """
    cloud = start_daemon(group, "cloud", {"database": str(database)})
    link = start_link(group, endpoint_of(cloud), scenario.link, seed=scenario.seed)
    daemons = {"cloud": cloud, "link": link.process}
    edge_endpoint = ""
    if configuration == EDGE_CACHE:
        settings = {"cloud": link.endpoint, "cache.prior": str(WEAK_PRIOR), "cache.profile": str(profile)}
        daemons["edge"] = start_daemon(group, "edge", settings)
        edge_endpoint = endpoint_of(daemons["edge"])
    return Deployment(edge_endpoint, link.endpoint, daemons, link)
