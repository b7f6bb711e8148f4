"""The edge: an adaptive recognition cache between devices and cloud (Cachier dissertation, chapter 3)."""
