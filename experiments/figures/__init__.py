"""Figures: each module reads the files of a run and draws one picture."""
