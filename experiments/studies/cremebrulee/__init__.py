"""Studies of CremeBrulee: its Table I, its testbed and its simulation, on generated traces.

May import: `framework`, `traces`, `model_serving`, `common.model_cache`. The paper's trace, Azure Functions
2019, is not part of the repository.
"""
