"""Models adapted to the light of a place, own and shared, and what a forger can do (dissertation, 5.1.1.1).

May use what all studies may; nothing imports it but tests.
"""
