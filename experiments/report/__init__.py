"""One self-contained HTML page of all results: the measured values and those of the papers.

May import `framework` only; it loads studies by name.
"""
