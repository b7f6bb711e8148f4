"""Experiments: generated museums and traces, data-set loaders, the testbed, benchmarks and the demo."""
