"""Listings and object models of a catalogue, fetched from the next tier and checked.

May import `background`, `recognition` and `rpc`.
"""
