"""The tables and figures of the Cachier dissertation; `scale` has those of its sections 6.3 to 6.7.

May use what all studies may; other studies import its plans and its scale.
"""
