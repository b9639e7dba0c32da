"""Files: named arrays and text in two formats, each file the old one or the new one, whole.

Neither format holds a pickle.
"""

from __future__ import annotations

import importlib
import io
import json
import math
import os
import stat
import zipfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np

from tapegraph.errors import message
from tapegraph.typed import Array

NamedArrays: TypeAlias = dict[str, Array]
Metadata: TypeAlias = dict[str, str]

SAFETENSORS, NPZ = ".safetensors", ".npz"
# The name that the text has among the arrays, in either format.
TEXT = "__metadata__"
# By the format's own rules.
_LARGEST_HEADER = 100_000_000
_NUMBERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
_SAFETENSORS_DTYPES = {"bool", "float16", "float32", "float64", "complex64", *_NUMBERS}


def write_file(op: str, path: str, fill: Callable[[str], None]) -> None:
    """Let ``fill`` write a file beside the target; sync it, and only then give it the name.

    A link leads to the target; the target's mode stays.
    """
    mode = None
    try:
        found = os.stat(path).st_mode
        if not stat.S_ISREG(found):
            raise OSError(message(op, f"{path!r}, {_kind(found)}", "the path of a file"))
        mode = stat.S_IMODE(found)
    except FileNotFoundError:
        pass
    target = os.path.realpath(path)
    beside = os.path.join(os.path.dirname(target), f".tapegraph-{os.urandom(8).hex()}.tmp")
    made = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        mode = stat.S_IMODE(os.fstat(made).st_mode) if mode is None else mode
        os.close(made)
        fill(beside)
        with open(beside, "rb+") as file:
            os.fsync(file.fileno())
        os.chmod(beside, mode)
        os.replace(beside, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(beside)
        raise
    _sync_directory(os.path.dirname(target))


def _sync_directory(path: str) -> None:
    """Make the new name last, where the system can."""
    try:
        directory = os.open(path, os.O_RDONLY)
    except OSError:  # as on Windows
        return
    with suppress(OSError):
        os.fsync(directory)
    os.close(directory)


def read_file(path: str) -> bytes:
    """Return what a file holds; what is no regular file is refused, without waiting for it."""
    flags: Any = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(message("load", f"{path!r}, {_kind(mode)}", "a file"))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def _kind(mode: int) -> str:
    return "a directory" if stat.S_ISDIR(mode) else "which is no regular file"


# Formats


def suffix_of(op: str, path: str) -> str:
    """Return which format a path asks for, one that can be written and read here."""
    if path.endswith(SAFETENSORS):
        package(op)
        return SAFETENSORS
    if path.endswith(NPZ):
        return NPZ
    raise ValueError(message(op, f"path {path!r}", "one that ends in .safetensors or .npz"))


def check_dtype(suffix: str, name: str, dtype: np.dtype[Any]) -> None:
    """Refuse an array that the format has no place for."""
    if dtype.kind not in "biufc":
        expected = "numbers (bool, integer, float or complex)"
        raise TypeError(message("save", f"dtype {dtype} for {name!r}", expected))
    if suffix == SAFETENSORS and dtype.name not in _SAFETENSORS_DTYPES:
        received = f"dtype {dtype} for {name!r}, which safetensors has not"
        fix = "Save as .npz, or convert it."
        raise TypeError(message("save", received, "a dtype of up to 64 bits a number", fix))


def package(op: str) -> Any:
    """Return the module that writes and reads safetensors."""
    try:
        return importlib.import_module("safetensors.numpy")
    except ImportError:
        fix = 'Install it: pip install "tapegraph[io]"; or use the suffix .npz.'
        received = "a .safetensors file in an environment without safetensors"
        raise ImportError(message(op, received, "the package safetensors", fix)) from None


def write_safetensors(path: str, arrays: NamedArrays, text: Metadata) -> None:
    """Write arrays, each in C order."""
    with open(path, "wb") as file:  # the package's own writing leaves files of its own behind
        file.write(package("save").save(arrays, text))


def write_npz(path: str, arrays: NamedArrays, text: Metadata) -> None:
    """Write arrays as `numpy.savez` does, under names that it would not take, and the text."""
    encoded = np.frombuffer(json.dumps(text).encode(), np.uint8)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in {**arrays, TEXT: encoded}.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def read_safetensors(data: bytes) -> tuple[NamedArrays, Metadata]:
    """Return arrays and text, or raise: the package looks at all but names that come twice."""
    header = _header(data)
    arrays = package("load").load(data)
    for name, array in arrays.items():
        if array.dtype == bool and array.size and array.view(np.uint8).max() > 1:
            raise ValueError(f"{name!r} is of dtype BOOL and holds more than 0 and 1")
    return arrays, header.get(TEXT, {})


def _header(data: bytes) -> Any:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, _LARGEST_HEADER):
        raise ValueError(f"its header of {length} bytes is too large, or the file is cut off")
    return json.loads(data[8 : 8 + length], object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is there twice")
    return found


def read_npz(data: bytes) -> tuple[NamedArrays, Metadata]:
    """Return arrays and text, or raise."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = _once([(info.filename, info) for info in archive.infolist()])
        arrays = {
            name.removesuffix(".npy"): _member(archive, name, info)
            for name, info in members.items()
        }
    text = arrays.pop(TEXT, None)
    return arrays, {} if text is None else json.loads(text.tobytes())


def _member(archive: zipfile.ZipFile, name: str, info: zipfile.ZipInfo) -> Array:
    """Return an array, whose header is looked at before any memory is taken."""
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(member)
        else:
            raise ValueError(f"{name!r} is of version {version} of the .npy format")
        if dtype.hasobject:
            raise ValueError(f"{name!r} holds pickled objects, which could run any code")
        size = math.prod(shape) * dtype.itemsize
        content = bytearray(member.read())  # to its end, where its checksum is compared
    if min(shape, default=0) < 0 or len(content) != size:
        raise ValueError(f"{name!r} holds {len(content)} bytes, and says {size}")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")
