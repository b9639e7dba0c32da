"""TensorFlow itself: loaded on first use and quietly, refused where it cannot run."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeAlias

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
INSTALL = 'Install it with: pip install "tensorflow>=2.18".'
NOT_INSTALLED = f"TensorFlow is not installed. {INSTALL}"


# A tensor of a graph or an eager one: TensorFlow has no types that a checker reads.
GraphTensor: TypeAlias = Any


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
_LEVEL, _FATAL_ONLY = "TF_CPP_MIN_LOG_LEVEL", "3"


def tensorflow() -> Any:
    """Return the tensorflow module, imported on first use, or raise Unavailable."""
    global _module, _reason
    if _module is None or _reason is not None:
        with _lock.held:
            if _module is None and _reason is None:
                _load()
        if _reason is not None:
            raise _refusal(_reason)
    return _module


class Later:
    """A module of TensorFlow's, found when used: rules and emitters are imported without it."""

    def __init__(self, find: Callable[[], Any]) -> None:
        self._find = find

    def __getattr__(self, name: str) -> Any:
        return getattr(self._find(), name)


tf: Any = Later(tensorflow)


def unavailable() -> Unavailable | None:
    """Return why TensorFlow cannot be used, as known without an import, or None."""
    global _found, _reason
    if _reason is None and not _found:
        # None in sys.modules marks a module that must not be imported.
        _found = loaded() if "tensorflow" in sys.modules else is_found("tensorflow")
        if not _found:
            _reason = NOT_INSTALLED
    return None if _reason is None else _refusal(_reason)


def check_installed() -> None:
    declined = unavailable()
    if declined is not None:
        raise declined


def installed_version() -> str:
    """Return TensorFlow's version without importing it, ``""`` if unknown; or raise Unavailable."""
    if _module is not None:
        return str(_module.__version__)
    check_installed()
    from importlib import metadata  # which takes long to import

    try:
        version = metadata.version("tensorflow")
    except metadata.PackageNotFoundError:  # it came under another name
        return ""
    if old := _too_old(version):
        raise Unavailable(old)
    return version


def is_found(name: str) -> bool:
    try:  # as importlib.util.find_spec, which takes three times as long to import as to run
        return any(finder.find_spec(name, None) for finder in sys.meta_path)
    except Exception as error:
        raise_interrupt(error)
        return True  # whatever is wrong there, importing it will tell


def loaded() -> bool:
    return sys.modules.get("tensorflow") is not None


def is_transient(error: Exception) -> bool:
    """Return whether the error may pass: others hold the memory, or a device is busy."""
    if isinstance(error, MemoryError):
        return True
    if not loaded():
        return False
    try:
        errors = tensorflow().errors
    except Unavailable:
        return False
    kinds = ("Aborted", "Cancelled", "DeadlineExceeded", "ResourceExhausted", "Unavailable")
    return isinstance(error, tuple(getattr(errors, f"{kind}Error") for kind in kinds))


def _load() -> None:
    global _module, _reason
    try:
        module = _imported()
        version = str(module.__version__)
        old = _too_old(version)
        lacking = [name for name in NEEDED if not _has(module, name)]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a broken installation raises anything, SystemExit too
        raise_interrupt(error)
        missing = isinstance(error, ModuleNotFoundError) and error.name == "tensorflow"
        failure = f"TensorFlow does not import: {type(error).__name__}: {error}"
        _reason = NOT_INSTALLED if missing else failure
        return
    if old:
        _reason = old
    elif lacking:
        _reason = f"TensorFlow {version} has no {lacking[0]}, which is needed. {INSTALL}"
    else:
        _module = module


def _imported() -> Any:
    """Import TensorFlow with its C++ log at fatal errors, unless a ``TF_CPP_`` variable is set.

    The level is read during the import. A process that dies of the import says why with level 0.
    """
    quiet = "tensorflow" not in sys.modules and not any(
        name.startswith("TF_CPP_") for name in os.environ
    )
    if quiet:
        os.environ[_LEVEL] = _FATAL_ONLY
    try:
        return importlib.import_module("tensorflow")
    finally:
        if quiet and os.environ.get(_LEVEL) == _FATAL_ONLY:  # another thread may have set one
            del os.environ[_LEVEL]


def _too_old(version: str) -> str:
    """Return why a version is refused, ``""`` for one that is new enough."""
    if tuple(int(part) for part in version.split(".")[:2]) >= MINIMUM:
        return ""
    wanted = f"{'.'.join(map(str, MINIMUM))} or later is needed"
    return f"TensorFlow {version} is too old: {wanted}. {INSTALL}"


def _has(module: object, name: str) -> bool:
    try:  # some names load on first use, and raise the import's errors
        attrgetter(name)(module)
    except AttributeError:
        return False
    return True


def _after_fork() -> None:
    """Turn a forked child of a process that has used TensorFlow native: its threads are gone."""
    global _reason, _refusal
    if "tensorflow" in sys.modules:
        _reason = "this process was forked from one that had used TensorFlow"
        _refusal = Forked


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
