"""One thread per recognition: what makes f(k) mean something, and what a shared machine expects."""

from __future__ import annotations

import cv2
import faiss


def pin_threads() -> None:
    """Keep OpenCV (whole process) and FAISS (calling thread) to one thread each.

    OpenMP keeps its number of threads per calling thread, so the FAISS backends repeat this for the thread
    that searches; a daemon calls it once at start-up.
    """
    cv2.setNumThreads(1)
    faiss.omp_set_num_threads(1)
