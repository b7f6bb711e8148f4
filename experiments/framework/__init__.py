"""How a table or figure is measured: cells, rows in files, targets, the registry, progress, pictures' style.

May import `common` only; every other room may import it.
"""
