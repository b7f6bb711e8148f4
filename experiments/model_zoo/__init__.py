"""The architectures of the papers as networks with random weights, for tests and experiments.

Building needs Keras and PyTorch (`pip install 'nearsight[zoo]'`); serving the built networks does not. May
import: `model_serving`, and the cloud's command `nearsight models`, which it extends.
"""
