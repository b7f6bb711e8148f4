"""Simulates a phone's photo of a picture: the wall, the standpoint, and the camera.

May import `museum.art`.
"""
