"""What an edge gains by fetching ahead."""
