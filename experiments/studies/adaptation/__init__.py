"""Models adapted to the light of a place, own and shared (dissertation, 5.1.1.1)."""
