"""Catalogues: objects that are trained from images, stored in a database and indexed while they change.

`database_catalogue` is the entry point for a catalogue in a file, `live_catalogue` for one that a daemon
serves. Tiers read the catalogue of the next tier through `answers`, `catalogue_sync` and `model_fetcher`.
May import `background`, `database`, `recognition` and `rpc`.
"""
