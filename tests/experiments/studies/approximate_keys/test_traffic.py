"""Generated flows: their shape, and repetitions of their prefixes as in the paper."""

import numpy as np
import pytest

from nearsight.experiments.studies.approximate_keys.traffic import APPLICATIONS, PACKETS, Traffic, flows


@pytest.fixture(scope="module")
def traffic() -> Traffic:
    return flows(5_000, np.random.default_rng(7))


def test_flows_have_sizes_and_directions_of_packets(traffic: Traffic) -> None:
    assert traffic.packets.shape == (5_000, PACKETS)
    sizes = np.abs(traffic.packets[traffic.packets != 0].astype(int))
    assert (sizes.min(), sizes.max()) == (60, 1460)
    assert {-1, 1} == set(np.sign(traffic.packets[:, 0]).tolist()) | {1}


def test_packets_after_the_end_of_a_flow_are_zero(traffic: Traffic) -> None:
    there = traffic.packets != 0
    assert there[:, :10].all()
    assert np.all(np.diff(there.astype(int), axis=1) <= 0)
    assert 0.3 < there[:, -1].mean() < 0.9


def test_applications_differ_in_popularity(traffic: Traffic) -> None:
    counts = np.bincount(traffic.applications, minlength=APPLICATIONS)
    assert counts[0] > counts[5] > counts[40]


def test_prefixes_of_flows_repeat_and_whole_flows_rarely_do(traffic: Traffic) -> None:
    def repeated(packets: np.ndarray) -> float:
        return 1 - len(np.unique(packets, axis=0)) / len(packets)

    assert repeated(traffic.packets) < 0.1
    assert 0.2 < repeated(traffic.packets[:, :10]) < 0.6
    assert repeated(traffic.packets[:, :5]) > 0.6


def test_flows_depend_on_their_seed() -> None:
    one, same, other = (flows(50, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(one.packets, same.packets)
    assert not np.array_equal(one.packets, other.packets)
