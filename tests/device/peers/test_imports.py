import subprocess
import sys


def test_a_process_that_only_shares_loads_no_recognition() -> None:
    code = (
        "import sys, nearsight.device.peers.node; "
        "print(*({'cv2', 'faiss', 'numpy', 'sklearn', 'typer'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
