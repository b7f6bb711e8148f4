"""nearsight: recognise what a camera sees, near the person who holds it."""

__version__ = "0.1.0"
