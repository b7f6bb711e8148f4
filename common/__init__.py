"""What at least two tiers share, as one package per subject; imports no tier.

The root holds errors, clock, logging, metrics, and tools as general as these; it imports no subject. Subjects
import each other in one direction.
"""
