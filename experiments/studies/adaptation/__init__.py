"""Models adapted to the light of a place, own and shared, and forged views (dissertation, 5.1.1.1).

May import the same packages as all studies; only tests import it.
"""
