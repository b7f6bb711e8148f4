"""Neural networks (DL models): files, runtime, and management of the memory that loaded networks occupy.

`model_memory` is the entry point; it executes the decisions of `common/model_cache`. Only `runtime` imports
onnxruntime, an optional library (`pip install 'nearsight[inference]'`). May import: `protos`, the root of
`common`, `background`, `config`, `database`, `model_cache`, `recognition`, `rpc`, `video`.
"""
