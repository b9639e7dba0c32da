"""The two formats: named arrays and text, to a file and back. Neither holds a pickle."""

from __future__ import annotations

import importlib
import io
import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tapegraph.errors import message
from tapegraph.typed import Array

if TYPE_CHECKING:
    import zipfile

NamedArrays: TypeAlias = dict[str, Array]
Metadata: TypeAlias = dict[str, str]

SAFETENSORS, NPZ = ".safetensors", ".npz"
# The name that the text has among the arrays, in either format.
TEXT = "__metadata__"
# By the format's own rules.
_LARGEST_HEADER = 100_000_000
_NUMBERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
_SAFETENSORS_DTYPES = {"bool", "float16", "float32", "float64", "complex64", *_NUMBERS}


def suffix_of(op: str, path: str) -> str:
    """Return which format a path asks for."""
    for suffix in (SAFETENSORS, NPZ):
        if path.endswith(suffix):
            return suffix
    raise ValueError(message(op, f"path {path!r}", "one that ends in .safetensors or .npz"))


def check_dtype(op: str, suffix: str, name: str, dtype: np.dtype[Any]) -> None:
    """Refuse an array that the format has no place for."""
    if dtype.kind not in "biufc":
        expected = "numbers (bool, integer, float or complex)"
        raise TypeError(message(op, f"dtype {dtype} for {name!r}", expected))
    if suffix == SAFETENSORS and dtype.name not in _SAFETENSORS_DTYPES:
        received = f"dtype {dtype} for {name!r}, which safetensors has not"
        fix = "Save as .npz, or convert it."
        raise TypeError(message(op, received, "a dtype of up to 64 bits a number", fix))


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
    import json  # these two take a fifth of the time that importing the library may
    import zipfile

    encoded = np.frombuffer(json.dumps(text).encode(), np.uint8)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in {**arrays, TEXT: encoded}.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def read_safetensors(data: bytes) -> tuple[NamedArrays, Metadata]:
    """Return arrays and text, or raise: the package looks at all but names that come twice."""
    import json

    arrays = package("load").load(_checked(data))
    for name, array in arrays.items():
        if array.dtype == bool and array.size and array.view(np.uint8).max() > 1:
            raise ValueError(f"{name!r} is of dtype BOOL and holds more than 0 and 1")
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return arrays, header.get(TEXT, {})


def _checked(data: bytes) -> bytes:
    import json

    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, _LARGEST_HEADER):
        raise ValueError(f"its header of {length} bytes is too large, or the file is cut off")
    json.loads(data[8 : 8 + length], object_pairs_hook=_once)
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is there twice")
    return found


def read_npz(data: bytes) -> tuple[NamedArrays, Metadata]:
    """Return arrays and text, or raise."""
    import json
    import zipfile

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, info) for info in archive.infolist()]
        members_by_name = _once(members)
        arrays = {
            name.removesuffix(".npy"): _member(archive, name, info)
            for name, info in members_by_name.items()
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
