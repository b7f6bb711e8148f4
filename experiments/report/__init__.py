"""One self-contained HTML file of all results: what was measured, beside what the papers say.

May import `framework` alone; it loads studies by their names.
"""
