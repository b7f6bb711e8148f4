"""Code that at least two tiers share, as one package per subject; imports no tier.

The root holds errors, clock, logging, metrics and similar general tools, and imports no subject. Imports
between subjects go in one direction.
"""
