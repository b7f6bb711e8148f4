"""Where the full system loses to a simpler one: operating points, losses, regions in words, the map.

May import `cachier.scale` and the twin; nothing imports it but tests.
"""
