"""Loaders for data sets on disk: a plain labelled folder and the Stanford Mobile Visual Search layout."""
