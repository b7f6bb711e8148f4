"""Classifier backends behind one interface; ``registry`` names them."""
