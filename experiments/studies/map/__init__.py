"""The map of operating points at which the full system loses to a simpler one, with losses and regions.

May import `cachier.scale` and the twin; only tests import it.
"""
