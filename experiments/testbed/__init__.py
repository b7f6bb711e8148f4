"""The testbed: daemons as processes, links shaped in user space, traces replayed through the SDK."""
