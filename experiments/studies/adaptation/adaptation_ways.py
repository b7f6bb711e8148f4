"""What is compared in the experiment on adaptation; drawing needs the names without what measures."""

from __future__ import annotations

VOUCHED, OWN, SHARED, BOTH = "vouched models only", "own photos", "shared by others", "own and shared"
WAYS = (VOUCHED, OWN, SHARED, BOTH)
FORGED, TRUSTED = "forged views", "forged views, believed blindly"
