"""Tables and figures of the Cachier dissertation."""
