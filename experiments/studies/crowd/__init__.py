"""Estimates that forget, for a crowd that moves."""
