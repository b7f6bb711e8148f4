"""The pictures themselves: what a generated exhibit shows, and in which manner it is made."""
