import subprocess
import sys


def test_importing_the_peer_node_loads_no_recognition_library() -> None:
    code = (
        "import sys, nearsight.device.peers.node; "
        "print(*({'cv2', 'faiss', 'numpy', 'sklearn', 'typer'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
