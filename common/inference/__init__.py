"""Neural networks: their files, the runtime that executes them, and what keeps them in memory.

`model_memory` is the front door: it carries out what `common/model_cache` decides. `runtime` alone knows
onnxruntime, an optional library (`pip install 'nearsight[inference]'`). May import: the root of `common`,
`background`, `config`, `model_cache`, `recognition`, `rpc`, `video`.
"""
