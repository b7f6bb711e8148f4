"""Benchmarks against peers, as ratios of medians with their spread."""
