"""The main job on one machine: a museum, its visitors, all three tiers, without and with the edge cache."""
