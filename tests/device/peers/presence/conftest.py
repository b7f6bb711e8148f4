"""A membership without peers, and one with a peer."""

import pytest

from support.driven_membership import Driven


@pytest.fixture
def alone() -> Driven:
    return Driven()


@pytest.fixture
def joined(alone: Driven) -> Driven:
    alone.answer(alone.beacon_ping())
    return alone
