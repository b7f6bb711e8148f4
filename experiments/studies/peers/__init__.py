"""Devices that share: endurance, traffic, comparison with Kademlia."""
