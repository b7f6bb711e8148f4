"""States of keys for tests of merging, as hypothesis strategies."""

from hypothesis import strategies as st

from nearsight.device.peers.store.stamps import NEVER, Stamp
from nearsight.device.peers.store.values import (
    Contribution,
    Counters,
    Entry,
    ItemList,
    ListItem,
    Register,
    Value,
    canonical,
)

KEY = "model/museum/0001/1"

# Few different values, so that states overlap and have equal stamps.
STAMPS = st.builds(Stamp, st.integers(1, 6), st.integers(1, 3))
BYTES = st.sampled_from([b"", b"a", b"b", b"cc"])
NAMES = st.sampled_from(["0001", "0002", "0003"])

REGISTERS = st.builds(Register, BYTES, STAMPS)
LISTS = st.lists(st.builds(ListItem, BYTES, STAMPS, st.booleans()), min_size=1, max_size=6).map(ItemList.of)
CONTRIBUTIONS = st.builds(
    Contribution, st.integers(1, 3), STAMPS, st.dictionaries(NAMES, st.integers(0, 5), max_size=3)
)
COUNTERS = st.lists(CONTRIBUTIONS, min_size=1, max_size=4).map(Counters.of)
VALUES: st.SearchStrategy[Value] = st.one_of(REGISTERS, LISTS, COUNTERS)
ENTRIES = st.builds(
    Entry,
    st.just(KEY),
    st.just(NEVER) | STAMPS,
    st.none() | VALUES,
    st.none() | st.integers(1, 9).map(float),
    st.just(NEVER) | STAMPS,
).map(canonical)
