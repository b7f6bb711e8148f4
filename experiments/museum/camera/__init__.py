"""A phone's photo of a picture: the wall that it hangs on, the hand that holds the phone, the camera.

May import `museum.art`.
"""
