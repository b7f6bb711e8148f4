"""Presence: identities and keys, beacons, pings, and `Membership`, the state machine of the peers (5.3.2).

May import the settings of peers and `common`. Contains nothing about what peers are used for.
"""
