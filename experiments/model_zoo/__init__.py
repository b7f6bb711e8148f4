"""The architectures of the papers as networks with random weights: to fill a cloud for tests and experiments.

Building needs Keras and PyTorch (`pip install 'nearsight[zoo]'`); serving what was built does not. May
import: `model_serving`, and the cloud's command `nearsight models`, which it completes.
"""
