"""TensorFlow's log lines, kept off stderr unless the user has set up TensorFlow's log.

Its C++ code logs what it finds as it is loaded (oneDNN, no CUDA, which vector instructions) and
when XLA first compiles. A log level silences most of it, and is read while it is imported. What its
libraries log before they have read the level, and what XLA logs up to TensorFlow 2.20 at any level,
is dropped where it comes out: C's own ``stderr``. Python's ``sys.stderr``, the file descriptor and
child processes go on as they are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tapegraph.interrupts import Lock

LEVEL = "TF_CPP_MIN_LOG_LEVEL"
FATAL_ONLY = "3"

_lock = Lock()
_chosen_here = False
_level_set = False
_stderr: int | None = None
_nowhere: int | None = None


@contextmanager
def importing() -> Iterator[None]:
    """Import TensorFlow without its log, if no ``TF_CPP_`` variable says how the user wants it.

    A process that dies of the import says why under ``TF_CPP_MIN_LOG_LEVEL=0``.
    """
    global _chosen_here, _level_set
    if "tensorflow" in sys.modules or any(name.startswith("TF_CPP_") for name in os.environ):
        yield
        return
    with _lock():
        try:
            _chosen_here = _level_set = True
            os.environ[LEVEL] = FATAL_ONLY
            _drop_stderr()
            yield
        finally:
            _restore()


@contextmanager
def compiling() -> Iterator[None]:
    """Compile with XLA without the log, if TensorFlow was imported without it."""
    if not _chosen_here:
        yield
        return
    with _lock():
        try:
            _drop_stderr()
            yield
        finally:
            _restore()


def _drop_stderr() -> None:
    global _nowhere, _stderr
    libc = _glibc()
    if libc is None:
        return
    if _nowhere is None:  # never closed: a library may have kept it as its stderr
        _nowhere = libc.fopen(os.devnull.encode(), b"we")
    if _nowhere is not None:
        variable = _c_stderr(libc)
        _stderr, variable.value = variable.value, _nowhere


def _restore() -> None:
    """Put back what is changed now, whatever that is; a forked child does so too."""
    global _level_set, _stderr
    if _stderr is not None:
        _c_stderr(_glibc()).value, _stderr = _stderr, None
    if _level_set:
        _level_set = False
        if os.environ.get(LEVEL) == FATAL_ONLY:  # and not what another thread has set since
            del os.environ[LEVEL]


def _glibc() -> Any:
    """Return glibc, whose manual lets a program set ``stderr`` as any variable, or None."""
    if sys.platform != "linux":
        return None
    import ctypes

    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return None
    libc.fopen.restype = ctypes.c_void_p
    return libc


def _c_stderr(libc: Any) -> Any:
    import ctypes

    return ctypes.c_void_p.in_dll(libc, "stderr")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restore)
