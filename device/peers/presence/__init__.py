"""Who is near: identities and keys, beacons, pings, and `Membership`, which decides who is there (5.3.2).

May import the settings of peers and `common`; it does not know what peers are used for.
"""
