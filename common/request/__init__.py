"""The flow of a request, the same on every tier: stages that may answer, then a next tier.

Pure: events and times are the input, effects the output. Drivers (SDK, edge daemon, twin) have the sockets,
threads and clocks.
May import the root of `common`, and from its subjects `recognition` and `rpc` only value types.
"""
