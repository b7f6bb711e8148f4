"""mCache's figures and tables on generated traffic, and a search for traffic that reproduces them.

May import the same packages as all studies, and `traces` and `model_serving`.
"""
