"""What must be settled before NumPy loads: threads, devices, log levels.

Of this process alone, and of those that it starts.
"""

from __future__ import annotations

import os
import sys

# Everything that starts a pool of threads reads one of these, once, while it is being loaded.
THREADS = (
    *("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NPROC"),
    *("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"),
)
SPIN = "OPENBLAS_THREAD_TIMEOUT"
CPU_ONLY = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}


def available_threads() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def settle(threads: int, openblas_timeout: int | None = None) -> None:
    """Give every library the same number of threads; must run before NumPy is imported."""
    if "numpy" in sys.modules:
        raise RuntimeError("the number of threads must be fixed before NumPy is imported")
    os.environ.update(dict.fromkeys(THREADS, str(threads)))
    os.environ.update(CPU_ONLY)
    if openblas_timeout is not None:
        os.environ[SPIN] = str(openblas_timeout)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
