"""Files of named arrays and text in two formats, without pickle, array by array."""

from __future__ import annotations

import io
import json
import math
import os
import stat
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np

from tapegraph.arrays import aligned_empty
from tapegraph.errors import message
from tapegraph.typed import Array, DType, Fun

NamedArrays: TypeAlias = dict[str, Array]
Metadata: TypeAlias = dict[str, str]

SAFETENSORS, NPZ = ".safetensors", ".npz"
# The name that the text has among the arrays, in either format.
TEXT = "__metadata__"
# In bytes: the longest name that a zip file has room for, and the longest header of safetensors.
_LONGEST_NAME = 65_535
_LARGEST_HEADER = 100_000_000
# How many bytes are read at once.
_READ = 1 << 20
# The words of safetensors for the dtypes that NumPy has.
_WORDS = {"bool": "BOOL", "complex64": "C64"}
_WORDS |= {f"float{bits}": f"F{bits}" for bits in (16, 32, 64)}
_WORDS |= {f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)}
_WORDS |= {f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)}
_DTYPES = {word: np.dtype(name).newbyteorder("<") for name, word in _WORDS.items()}
# Read as float32, of whose bytes it is the upper half. NumPy has it by ml_dtypes alone.
BFLOAT16 = "BF16"
_WORDS["bfloat16"] = BFLOAT16
_DTYPES[BFLOAT16] = np.dtype("<u2")
# Those of a byte and less, which NumPy has not.
_NARROW = {"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0"}
_NARROW |= {"F6_E2M3", "F6_E3M2", "F4"}


@dataclass(frozen=True, eq=False)
class Stored:
    """An array in an open file: its shape and native dtype, and a function that reads it.

    :ivar word: Its dtype in safetensors' own terms.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    read: Callable[[], Array]
    word: str = ""


class UnreadableDtype(TypeError):
    """An array of an intact file has a dtype that NumPy lacks: its name, and the dtype's."""


def check_is_file(op: str, path: str) -> os.stat_result | None:
    """Return the status of the file at a path, None if there is none; raise for what is no file."""
    with suppress(FileNotFoundError):
        found = os.stat(path)
        if stat.S_ISREG(found.st_mode):
            return found
        received = f"{path!r}, a directory or a special file"
        raise OSError(message(op, received, "the path of a file"))
    return None


def write_file(op: str, path: str, fill: Callable[[str], None]) -> None:
    """Let ``fill`` write a file beside the target; sync it, and only then rename it."""
    found = check_is_file(op, path)
    target = os.path.realpath(path)
    beside = os.path.join(os.path.dirname(target), f".tapegraph-{os.urandom(8).hex()}.tmp")
    made = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        mode = (found or os.fstat(made)).st_mode
        os.close(made)
        fill(beside)
        with open(beside, "rb+") as file:
            os.fsync(file.fileno())
        os.chmod(beside, stat.S_IMODE(mode))
        os.replace(beside, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(beside)
        raise
    with suppress(OSError):  # as on Windows: a new name is made last where the system can
        directory = os.open(os.path.dirname(target), os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


# Formats


def suffix_of(op: str, path: str) -> str:
    for suffix in (SAFETENSORS, NPZ):
        if path.lower().endswith(suffix):
            return suffix
    raise ValueError(message(op, f"path {path!r}", "one that ends in .safetensors or .npz"))


def check_array(suffix: str, name: str, dtype: DType) -> None:
    if dtype.kind not in "biufc" and dtype.name != "bfloat16":
        expected = "numbers (bool, integer, float or complex)"
        raise TypeError(message("save", f"dtype {dtype} for {name!r}", expected))
    if suffix == SAFETENSORS and dtype.name not in _WORDS:
        received = f"dtype {dtype} for {name!r}, which safetensors files cannot hold"
        fix = "Save as .npz, or convert it."
        raise TypeError(message("save", received, "a dtype of up to 64 bits a number", fix))
    if suffix == NPZ and dtype.name == "bfloat16":
        received = f"dtype bfloat16 for {name!r}, which NumPy itself lacks"
        raise TypeError(message("save", received, "a dtype of NumPy's", "Save as .safetensors."))
    length = len(f"{name}.npy".encode())
    if suffix == NPZ and length > _LONGEST_NAME:
        received = f"a name of {length - 4} bytes, {name[:40]!r}..."
        expected = f"at most {_LONGEST_NAME - 4}, the limit of zip files"
        raise ValueError(message("save", received, expected, "Rename its key."))


# Safetensors: eight bytes that say how long the header is, the header in JSON, and the numbers. We
# write and read that ourselves, and leave the package `safetensors` to the tests, which exchange
# files with it: where memory is short it ends the process instead of raising MemoryError; it wants
# all arrays in C order at once, which copies each that is not; it maps a file into memory to read
# it, and each array beside that; of two arrays of one name it drops one; and it has no bfloat16.


def write_safetensors(path: str, arrays: NamedArrays, text: Metadata) -> None:
    """Write arrays and text, wider dtypes first, so that all are aligned, as the package does."""
    ordered = sorted(arrays.items(), key=lambda pair: (-pair[1].itemsize, pair[0]))
    header: dict[str, Any] = {TEXT: text}
    end = 0
    for name, array in ordered:
        start, end = end, end + array.nbytes
        word = _WORDS[array.dtype.name]
        header[name] = {"dtype": word, "shape": [*array.shape], "data_offsets": [start, end]}
    encoded = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    if len(encoded) > _LARGEST_HEADER:
        received = f"names and structure of {len(encoded)} bytes"
        expected = f"at most {_LARGEST_HEADER}, the limit of safetensors files"
        raise ValueError(message("save", received, expected, "Save as .npz."))
    with open(path, "wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for _, array in ordered:
            stored = _DTYPES[_WORDS[array.dtype.name]]
            array = array.view(stored) if array.dtype.name == "bfloat16" else array
            file.write(np.ascontiguousarray(array, stored).reshape(-1).view(np.uint8).data)


def read_safetensors(file: io.BufferedReader) -> tuple[dict[str, Stored], Metadata]:
    """Return a file's arrays and its text; raise if it is malformed."""
    size = os.fstat(file.fileno()).st_size - 8
    length = int.from_bytes(file.read(8), "little")
    if length > min(size, _LARGEST_HEADER):
        raise ValueError(f"its header of {length} bytes is too large, or the file is cut off")
    header = file.read(length).decode()
    entries = json.loads(header, object_pairs_hook=_once)
    text = entries.pop(TEXT, {})
    if not all(isinstance(x, str) for x in text.values()):
        raise ValueError("its metadata is not text")
    stored, end = {}, 0
    for name, entry in sorted(entries.items(), key=lambda pair: pair[1]["data_offsets"]):
        word, shape = entry["dtype"], entry["shape"]
        if word in _NARROW:
            raise UnreadableDtype(name, word)
        dtype = _DTYPES[word]
        if not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"{_shown(name)} has the shape {_shown(shape)}")
        start, end = end, end + math.prod(shape) * dtype.itemsize
        if entry["data_offsets"] != [start, end]:
            place = _shown(entry["data_offsets"])
            raise ValueError(f"{_shown(name)} is at {place}, where {[start, end]} is free")
        kind = np.dtype(np.float32) if word == BFLOAT16 else _native(dtype)
        read = partial(_read_safetensors, file, 8 + length + start, name, tuple(shape), word)
        stored[name] = Stored(name, tuple(shape), kind, read, word)
    if end != size - length:
        raise ValueError(f"it holds {size - length} bytes of numbers, and its header {end}")
    return stored, text


def _read_safetensors(
    file: io.BufferedReader, start: int, name: str, shape: tuple[int, ...], word: str
) -> Array:
    file.seek(start)
    if word == BFLOAT16:
        array = aligned_empty(shape, np.dtype(np.float32))
        flat = array.reshape(-1).view(np.uint32)
        for first in range(0, flat.size, _READ):
            part = np.empty(min(_READ, flat.size - first), _DTYPES[word])
            _fill(part, file.readinto)
            np.left_shift(part, 16, out=flat[first : first + part.size], dtype=np.uint32)
        return array
    stored = aligned_empty(shape, _DTYPES[word])
    _fill(stored, file.readinto)
    if word == "BOOL" and stored.size and stored.view(np.uint8).max() > 1:
        raise ValueError(f"{_shown(name)} is of dtype BOOL and holds more than 0 and 1")
    return _as_native(stored)


def _fill(array: Array, read: Fun) -> None:
    flat: Any = array.reshape(-1).view(np.uint8)
    rest = memoryview(flat)
    while rest:
        count = read(rest[:_READ])
        if not count:
            raise ValueError(f"it is cut off {len(rest)} bytes before the end of an array")
        rest = rest[count:]


def _native(dtype: DType) -> DType:
    return dtype if dtype.names else np.dtype(dtype.newbyteorder("=").str)


def _as_native(array: Array) -> Array:
    if not array.dtype.isnative and not array.dtype.names:
        array.byteswap(inplace=True)
    return array.view(_native(array.dtype))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return pairs as a dict; raise for a repeated name."""
    found = dict(pairs)
    if len(found) < len(pairs):
        repeated, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"{_shown(repeated)} is there twice")
    return found


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


# NPZ


def write_npz(path: str, arrays: NamedArrays, text: Metadata) -> None:
    """Write arrays as `numpy.savez`, also under names that it refuses, and the text."""
    encoded = np.frombuffer(json.dumps(text).encode(), np.uint8)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in {**arrays, TEXT: encoded}.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def read_npz(file: io.BufferedReader) -> tuple[dict[str, Stored], Metadata]:
    archive = zipfile.ZipFile(file)
    end = 0
    for info in sorted(archive.infolist(), key=attrgetter("header_offset")):
        if info.header_offset < end:  # or a small file could hold the same bytes a thousand times
            raise ValueError(f"{_shown(info.filename)} overlaps with another array")
        end = info.header_offset + info.compress_size
    if end > os.fstat(file.fileno()).st_size:
        raise ValueError("its directory points beyond its end")
    members = [(info.filename.removesuffix(".npy"), info) for info in archive.infolist()]
    stored = {name: _member(archive, name, info) for name, info in _once(members).items()}
    # Another program may have an array of that name, which is no text.
    text = None
    member = stored.get(TEXT)
    if member is not None and member.dtype == np.uint8 and sum(member.shape) <= _LARGEST_HEADER:
        with suppress(ValueError, RecursionError):
            text = json.loads(member.read().tobytes())
    if not isinstance(text, dict) or not all(isinstance(x, str) for x in text.values()):
        return stored, {}
    return {name: array for name, array in stored.items() if name != TEXT}, text


# The largest compression of deflate: 258 bytes become two bits.
_DEFLATED = 1032
# As many bytes as hold every header of a .npy file that NumPy reads.
_NPY_HEADER = 12_000


def _member(archive: zipfile.ZipFile, name: str, info: zipfile.ZipInfo) -> Stored:
    """Return an array of a zip file after a check of its header, before any memory is taken."""
    factor = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: _DEFLATED}.get(info.compress_type)
    if factor is None:
        raise ValueError(f"{_shown(name)} has a compression that numpy.savez does not write")
    if info.file_size > factor * info.compress_size:
        raise ValueError(f"{_shown(name)} cannot hold as much as it says, {info.file_size} bytes")
    with archive.open(info) as member:
        start = io.BytesIO(member.read(_NPY_HEADER))
    version = np.lib.format.read_magic(start)
    try:
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(start)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(start)
        else:
            raise ValueError(f"{_shown(name)} is of version {version} of the .npy format")
    except MemoryError:  # Python's parser raises it for a few kB with too many brackets
        raise ValueError(f"the header of {_shown(name)} is not a literal") from None
    if dtype.hasobject:
        raise ValueError(f"{_shown(name)} holds pickled objects, which could run any code")
    size, begin = math.prod(shape) * dtype.itemsize, start.tell()
    held = info.file_size - begin
    if min(shape, default=0) < 0 or held != size:
        raise ValueError(f"{_shown(name)} holds {held} bytes, and its header says {size}")

    def read() -> Array:
        stored = aligned_empty(shape[::-1] if fortran else shape, dtype)
        member: Any
        with archive.open(info) as member:  # which compares the checksum at the end
            member.read(begin)
            _fill(stored, member.readinto)
        array = _as_native(stored)
        if not fortran:
            return array
        ordered = aligned_empty(shape, array.dtype)
        ordered[...] = array.T
        return ordered

    return Stored(name, shape, _native(dtype), read)
