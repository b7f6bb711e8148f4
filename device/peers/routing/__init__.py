"""Responsibility of peers for keys, and connections to them (dissertation, 5.3.3 and 5.4.2).

May import `presence`, the settings of peers and `common`.
"""
