"""A catalogue: objects that were trained from images, kept in a database, and indexed while they change.

`database_catalogue` is the front door of a catalogue in a file; `live_catalogue` is one in service. What the
next tier has of a catalogue comes through `answers`, `catalogue_sync` and `model_fetcher`.
May import `background`, `database`, `recognition` and `rpc`.
"""
