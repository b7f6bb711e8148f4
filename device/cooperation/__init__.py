"""Devices that share what they fetched and what they saw (Cachier dissertation, sections 5.1 and 5.4.4)."""
