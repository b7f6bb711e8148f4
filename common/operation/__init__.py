"""Running and monitoring daemons: start and clean end, health, status and explanations.

The topmost subject of `nearsight.common`: may import all others.
"""
