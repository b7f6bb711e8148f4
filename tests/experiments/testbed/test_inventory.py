"""Inventories: their content, and one line for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsight.common.errors import ConfigurationError, NotFound
from nearsight.experiments.testbed.inventory import Inventory, NodeSpec, cpu_time
from nearsight.experiments.testbed.reading import read_inventory

GOOD = """
[nodes.server]
kind = "namespace"
profile = "cloud-server"
[nodes.box]
kind = "namespace"
[nodes.phone]
kind = "namespace"
profile = "weak"
count = 3
[profiles.weak]
cpus = 0.25
[cloud]
node = "server"
[edges.main]
node = "box"
settings = { "cache.policy" = "lfu" }
[devices.visitors]
node = "phone"
[[links]]
from = "box"
to = "server"
rtt_ms = 30
up_mbps = 15
"""


def read(tmp_path: Path, text: str) -> Inventory:
    path = tmp_path / "lab.toml"
    path.write_text(text)
    return read_inventory(path)


def test_a_node_with_a_count_is_several_hosts_with_different_addresses(tmp_path: Path) -> None:
    hosts = read(tmp_path, GOOD).hosts()
    assert [host.name for host in hosts] == ["server", "box", "phone-1", "phone-2", "phone-3"]
    assert len({host.address for host in hosts}) == 5
    assert hosts[2].cpus == 0.25
    assert hosts[0].memory_mb == 32768
    assert not hosts[1].limited


def test_a_device_without_a_named_edge_uses_the_only_one(tmp_path: Path) -> None:
    inventory = read(tmp_path, GOOD)
    assert inventory.edge_of(inventory.devices["visitors"]) == "main"


def test_a_link_has_a_direction(tmp_path: Path) -> None:
    inventory = read(tmp_path, GOOD)
    link = inventory.link("box", "server")
    assert link is not None
    assert (link.rtt_ms, link.up_mbps, link.down_mbps) == (30.0, 15.0, 0.0)
    assert inventory.link("server", "box") is None


def test_keys_are_needed_beyond_loopback(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD).needs_keys
    assert not read(tmp_path, GOOD.replace('"namespace"', '"process"')).needs_keys
    assert read(tmp_path, SSH).needs_keys


def test_a_stored_inventory_equals_the_original(tmp_path: Path) -> None:
    inventory = read(tmp_path, GOOD)
    assert Inventory.model_validate(inventory.model_dump(mode="json", by_alias=True)) == inventory


SSH = """
[nodes.here]
kind = "process"
address = "192.0.2.7"
[nodes.lab]
kind = "ssh"
host = "lab1"
[cloud]
node = "here"
[edges.main]
node = "lab"
"""


@pytest.mark.parametrize(
    ("good", "bad", "complaint"),
    [
        ('kind = "namespace"', 'kind = "container"', r"nodes\.\w+\.kind: Input should be 'process'"),
        ('node = "box"', 'node = "bux"', r"edges\.main\.node: there is no node 'bux'"),
        ('node = "box"', 'node = "phone"', "'phone' is several hosts"),
        (
            "[nodes.box]",
            '[nodes.phone-1]\nkind = "namespace"\n[nodes.box]',
            "2 hosts have the name 'phone-1'",
        ),
        ('profile = "weak"', 'profile = "week"', "there is no profile 'week'; use one of nexus7"),
        ("cpus = 0.25", "cpus = 0.001", "a node cannot have 0.001 CPUs"),
        ('from = "box"', 'from = "server"', "no daemon on 'server' calls one on 'server'"),
        ("rtt_ms = 30", "rtt_ms = -1", "a link's rtt_ms cannot be -1"),
        (
            "up_mbps = 15",
            'up_mbps = 15\n[replay]\nphotos = "x"\nseconds = inf',
            "seconds: Input should be a finite",
        ),
        (
            "up_mbps = 15",
            'up_mbps = 15\n[replay]\nphotos = "x"\nseed = -1',
            "replay.seed: Input should be greater",
        ),
        (
            'host = "lab1"',
            'host = "fe80::1"',
            "cannot be reached at IPv6 addresses such as 'fe80::1': use an IPv4",
        ),
        ("rtt_ms = 30", "rtt = 30", r"links\.0: there is no key 'rtt', perhaps 'rtt_ms' was meant"),
        ('kind = "namespace"', 'kinds = "namespace"', "no key 'kinds', perhaps 'kind' was meant"),
        ("[cloud]", "[clouds]", "at the top: there is no key 'clouds', perhaps 'cloud' was meant"),
        ("[nodes.box]", "[nodes.Box_1]", "is not a name"),
        ("count = 3", 'count = 3\nhost = "x"', "host is for nodes of kind 'ssh' alone"),
        ('[nodes.box]\nkind = "namespace"', '[nodes.box]\nkind = "process"', "reach only each other"),
        ("count = 3", 'count = 3\naddress = "10.0.0.1"', "address is not for nodes of kind 'namespace'"),
        ("[devices.visitors]", '[devices.a]\nnode = "phone"\n[devices.b]', "devices: a host has one"),
        ("[cloud]", "[cloud", "not valid TOML"),
        ('[cloud]\nnode = "server"', "", "cloud: Field required"),
        # Requirements of SSH nodes are checked before any connection.
        ('host = "lab1"', "", "an SSH node needs a host"),
        ('host = "lab1"', 'host = "-oProxyCommand=x"', "is neither a host"),
        ('host = "lab1"', 'host = "lab1; reboot"', r"nodes\.lab\.host: 'lab1; reboot' is neither a host"),
        (
            'host = "lab1"',
            'host = "lab1"\nuser = "-oProxyCommand=x"',
            r"nodes\.lab\.user: '-oProxy.* nor a user",
        ),
        ('host = "lab1"', 'host = "lab1"\nuser = "$(reboot)"', "nor a user"),
        ('address = "192.0.2.7"', 'address = "--listen"', "is neither a host"),
        ('host = "lab1"', 'host = "lab1"\ncount = 2', "an SSH node is one host"),
        ('address = "192.0.2.7"', "", "give the address at which 'lab' reaches this machine"),
    ],
)
def test_a_mistake_is_refused_in_one_line_with_its_place(
    tmp_path: Path, good: str, bad: str, complaint: str
) -> None:
    text = GOOD if good in GOOD else SSH
    assert good in text
    with pytest.raises(ConfigurationError, match=complaint) as error:
        read(tmp_path, text.replace(good, bad, 1))
    assert "\n" not in str(error.value)
    assert "lab.toml" in str(error.value)


def test_paths_are_relative_to_the_inventory(tmp_path: Path) -> None:
    text = GOOD.replace('node = "server"', 'node = "server"\nfiles = { database = "museum.db" }')
    with pytest.raises(NotFound, match=r"there is no file .*museum\.db"):
        read(tmp_path, text)
    (tmp_path / "museum.db").touch()
    assert read(tmp_path, text).cloud.files == {"database": tmp_path / "museum.db"}


def test_a_missing_key_file_is_refused(tmp_path: Path) -> None:
    text = SSH.replace('kind = "ssh"', 'kind = "ssh"\nkey = "lab.key"', 1)
    with pytest.raises(
        NotFound, match=r"there is no file .*lab\.key; the inventory names it for nodes\..*key"
    ):
        read(tmp_path, text)
    (tmp_path / "lab.key").touch()
    assert read(tmp_path, text)


def test_a_tilde_is_the_home_folder_on_the_node() -> None:
    node = NodeSpec(kind="ssh", host="lab", folder="~/lab", python="~/miniconda3/bin/python")
    assert (node.folder, node.python) == ("lab", "miniconda3/bin/python")  # from the home folder there
    assert NodeSpec(kind="ssh", host="lab", folder="~/").folder == "."


def test_a_missing_inventory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="cannot read inventory"):
        read_inventory(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("cpus", "quota_us", "period_us"),
    [
        (0.0, -1, 50_000),
        (0.02, 1_000, 50_000),
        (0.25, 1_000, 4_000),
        (0.5, 1_000, 2_000),
        (4, 200_000, 50_000),
    ],
)
def test_the_cpu_time_of_a_part_of_a_core_has_short_periods(
    cpus: float, quota_us: int, period_us: int
) -> None:
    assert cpu_time(cpus) == (quota_us, period_us)
