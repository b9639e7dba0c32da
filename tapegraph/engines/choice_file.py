"""The file that choices are kept in: what a structure's ways took, on one kind of machine.

One file is of one machine with one set of versions and threads: by structure, the seconds of each
way. It is written beside itself and renamed, so that whoever reads it sees a whole file; of two
processes that write at the same moment, the later one's measurement stays.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import sys
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from tapegraph.engines.choices import VARIABLE, Seconds
from tapegraph.errors import warn
from tapegraph.interrupts import raise_interrupt
from tapegraph.locks import Lock
from tapegraph.recording.structure import Key
from tapegraph.version import VERSION

# How many structures a file holds; the ones measured longest ago leave first.
LIMIT = 4096

_THREADS = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "TF_ENABLE_ONEDNN_OPTS",
    "CUDA_VISIBLE_DEVICES",
)
_lock = Lock()
_read: dict[Path, dict[str, Seconds]] = {}
_warned: set[Path] = set()


class Choice:
    """What is kept of one structure: see `choices.Kept`.

    Parameters
    ----------
    path : Path
        The file.
    key : str
        The structure there.
    """

    def __init__(self, path: Path, key: str) -> None:
        self._path = path
        self._key = key

    def recall(self) -> Seconds:
        """Return the seconds of each way by its name, or nothing."""
        with _lock():
            if self._path not in _read:
                _read[self._path] = _load(self._path)
            return dict(_read[self._path].get(self._key, {}))

    def remember(self, seconds: Seconds) -> None:
        """Keep the seconds of each way by its name."""
        if not all(map(math.isfinite, seconds.values())):
            return
        with _lock():
            known = _load(self._path)  # others may have written
            known.pop(self._key, None)
            known[self._key] = seconds
            while len(known) > LIMIT:
                del known[next(iter(known))]
            _read[self._path] = known
            _store(self._path, known)


def choice(folder: Path, kind: str, key: Key) -> Choice:
    """Return what a folder keeps of a structure; as in `choices.kept`."""
    digest = hashlib.sha256(repr((kind, key)).encode()).hexdigest()
    return Choice(folder / f"choices-{_machine_digest()}.json", digest)


def machine() -> dict[str, str]:
    """Return what times depend on besides the structure."""
    usable = getattr(os, "sched_getaffinity", None)  # Linux
    return {
        "tapegraph": VERSION,
        "numpy": np.__version__,
        "tensorflow": _installed("tensorflow", "tensorflow-cpu", "tf-nightly"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": _processor(),
        "processors": str(len(usable(0)) if usable else os.cpu_count()),
        **{name: os.environ[name] for name in _THREADS if name in os.environ},
    }


def _machine_digest() -> str:
    text = json.dumps(machine(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def _installed(*names: str) -> str:
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return ""


@cache
def _processor() -> str:
    if sys.platform == "linux":
        try:
            for line in Path("/proc/cpuinfo").read_text().splitlines():
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
        except OSError:
            pass
    return platform.processor()


def _load(path: Path) -> dict[str, Seconds]:
    try:
        known = json.loads(path.read_text())["choices"]
        return {str(key): {str(n): float(s) for n, s in of.items()} for key, of in known.items()}
    except FileNotFoundError:
        return {}
    except Exception as error:  # cut off, of another format, or not to be read
        raise_interrupt(error)
        _complain(path, f"cannot be read, and is measured anew: {type(error).__name__}: {error}")
        return {}


def _store(path: Path, known: dict[str, Any]) -> None:
    text = json.dumps({"machine": machine(), "choices": known}, indent=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        _complain(path, f"cannot be written: {type(error).__name__}: {error}")


def _complain(path: Path, what: str) -> None:
    """Warn, once a file: speed is lost, and nothing else."""
    if path not in _warned:
        _warned.add(path)
        warn(f"{VARIABLE}: {path} {what}", RuntimeWarning)
