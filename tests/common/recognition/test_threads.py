"""One thread per recognition."""

import cv2
import faiss

from nearsight.common.recognition.threads import pin_threads


def test_pinning_leaves_one_thread_to_opencv_and_faiss() -> None:
    pin_threads()
    assert cv2.getNumThreads() == 1
    assert faiss.omp_get_max_threads() == 1
