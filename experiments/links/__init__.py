"""Networks between nodes: link shapes, kernel links, the user-space shaper, namespaces, the radio channel.

May import `framework` and `common`.
"""
