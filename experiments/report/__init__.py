"""One self-contained HTML file of all results: what was measured, beside what the papers say."""
