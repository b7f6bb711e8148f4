"""The evaluation of scale (dissertation, chapter 6): operating points, sessions there, their numbers."""
