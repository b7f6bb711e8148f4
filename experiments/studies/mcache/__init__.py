"""mCache's figures and tables on generated traffic, and which traffic gives the paper's.

May import what every study may, and the rooms of traces and of model serving.
"""
