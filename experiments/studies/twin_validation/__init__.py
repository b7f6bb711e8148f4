"""The twin against real daemons, on the same traces."""
