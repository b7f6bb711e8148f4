"""The flow of a request, the same on every tier: stages that may answer, then a next tier.

Pure: events and times in, effects out. Drivers (SDK, edge daemon, twin) own sockets, threads and clocks.
May import the root of `common`, and of its subjects `recognition` and `rpc` only their values.
"""
