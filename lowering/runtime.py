"""TensorFlow itself: loaded at first use, refused with a reason where it cannot serve."""

from __future__ import annotations

import importlib
import os
import sys
from operator import attrgetter
from typing import Any

from tapegraph.engines.engine import EngineDeclined
from tapegraph.interrupts import Lock, raise_interrupt

# As in pyproject.toml: the first that runs on NumPy 2. Of later ones it is asked what they have.
MINIMUM = (2, 18)
NEEDED = (
    "GradientTape",
    "IndexedSlices",
    "TensorSpec",
    "Variable",
    "compat.v1.ConfigProto",
    "errors.ResourceExhaustedError",
    "experimental.dlpack.from_dlpack",
    "function",
    "raw_ops.StatefulPartitionedCall",
)
INSTALL = 'Install it with: pip install "tapegraph[tensorflow]".'


class Unavailable(EngineDeclined, RuntimeError):
    """TensorFlow cannot be used here; the message says why."""


class Forked(Unavailable):
    """TensorFlow hangs here: this process was forked from one that had used it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, expected=False)


_lock = Lock()
_module: Any = None
_reason: str | None = None
_found = False
_refusal: type[Unavailable] = Unavailable


def tensorflow() -> Any:
    """Return the tensorflow module, importing it the first time.

    Raise `Unavailable` where it is not installed, does not import, is too old or lacks what is
    needed, or where this process was forked from one that used it.
    """
    global _module, _reason
    if _module is None or _reason is not None:
        with _lock():
            if _module is None and _reason is None:
                _load()
        if _reason is not None:
            raise _refusal(_reason)
    return _module


def check_installed() -> None:
    """Refuse where TensorFlow is known to be unusable, without importing it."""
    global _found, _reason
    if _reason is None and not _found:
        _found = _module is not None or _is_tensorflow_found()
        if not _found:
            _reason = f"TensorFlow is not installed. {INSTALL}"
    if _reason is not None:
        raise _refusal(_reason)


def _is_tensorflow_found() -> bool:
    if "tensorflow" in sys.modules:
        return loaded()  # None stands there for what must not be imported
    return is_found("tensorflow")


def is_found(name: str) -> bool:
    """Return whether a package is installed, without importing it."""
    try:  # what importlib.util.find_spec does, which takes thrice as long to import as to run
        return any(finder.find_spec(name, None) for finder in sys.meta_path)
    except Exception as error:
        raise_interrupt(error)
        return True  # whatever is wrong there, importing it will tell


def loaded() -> bool:
    """Return whether TensorFlow has been imported in this process, by whomever."""
    return sys.modules.get("tensorflow") is not None


def is_transient(error: Exception) -> bool:
    """Return whether it may pass: others hold the memory, or a device is busy."""
    if isinstance(error, MemoryError):
        return True
    if not loaded():
        return False
    try:
        errors = tensorflow().errors
    except Unavailable:
        return False
    kinds = (
        errors.AbortedError,
        errors.CancelledError,
        errors.DeadlineExceededError,
        errors.ResourceExhaustedError,
        errors.UnavailableError,
    )
    return isinstance(error, kinds)


def _load() -> None:
    global _module, _reason
    from tapegraph.lowering import tf_log

    try:
        with tf_log.importing():
            module = importlib.import_module("tensorflow")
        version = str(module.__version__)
        parts = tuple(int(p) for p in version.split(".")[:2])
    except ModuleNotFoundError as error:
        if error.name == "tensorflow":
            _reason = f"TensorFlow is not installed. {INSTALL}"
        else:
            _reason = f"TensorFlow does not import: {type(error).__name__}: {error}"
        return
    except Exception as error:  # a broken installation raises anything
        raise_interrupt(error)
        _reason = f"TensorFlow does not import: {type(error).__name__}: {error}"
        return
    if parts < MINIMUM:
        wanted = f"{'.'.join(map(str, MINIMUM))} or later is needed"
        _reason = f"TensorFlow {version} is too old: {wanted}. {INSTALL}"
        return
    missing = [name for name in NEEDED if not _has(module, name)]
    if missing:
        _reason = f"TensorFlow {version} has no {missing[0]}, which is needed. {INSTALL}"
        return
    _module = module


def _has(module: Any, name: str) -> bool:
    try:
        attrgetter(name)(module)
    except AttributeError:
        return False
    return True


def _after_fork() -> None:
    """Turn a child of a process that has used TensorFlow native: its threads are gone."""
    global _reason, _refusal
    if "tensorflow" in sys.modules:
        _reason = "this process was forked from one that had used TensorFlow"
        _refusal = Forked


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
