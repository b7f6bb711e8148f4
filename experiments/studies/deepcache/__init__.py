"""Studies of DeepCache: its tables and figures, on its networks and on clips, against plain onnxruntime.

May import: `framework`, `museum`, `model_zoo`, `common.video`, `common.inference`, `device.video`. `--data
DIR` is a folder of networks (`nearsight models build deepcache --folder DIR`) and videos.
"""
