"""Caching decisions as pure objects: facts go in, what to keep comes out (Cachier, chapters 2 and 3)."""
