"""How daemons are run and looked after: start and clean end, database files, health, status and explanations.

The topmost subject of `nearsight.common`: may import all others.
"""
