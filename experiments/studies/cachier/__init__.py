"""The tables and figures of the Cachier dissertation; those of its sections 6.3 to 6.7 are in `scale`.

May import the same packages as all studies. Other studies import its plans and `scale`.
"""
