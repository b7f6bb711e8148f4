"""Listings and object models of a catalogue, fetched from the next tier and checked.

May import `background`, `object_cache`, `recognition` and `rpc`.
"""
