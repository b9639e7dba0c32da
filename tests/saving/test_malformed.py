"""Files that are none, and places for no file: refused by name, and nothing is changed."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import struct
import sys
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.saving import files
from tests.saving.test_checkpoints import SUFFIXES, array, raw


@pytest.fixture(params=SUFFIXES)
def path(request, tmp_path):
    return str(tmp_path / f"run.{request.param}")


def refuses(path, message="which is malformed", kind=ValueError):
    """Loading names the file, and leaves the model as it was.

    The message ends in this file's name, which has a word of its own for such files.
    """
    w = tg.param(np.full(40, 7.0))
    with pytest.raises(kind, match=message) as caught:
        tg.load(path, into={"w": w})
    assert path in str(caught.value)
    np.testing.assert_array_equal(w.data, np.full(40, 7.0))


def is_malformed(path):
    """So it is for every caller; a model may be refused for its names before the file is."""
    with pytest.raises(ValueError, match="which is malformed"):
        tg.load(path)
    refuses(str(path), "load: received")


def test_a_file_that_is_cut_off_anywhere(path):
    tg.save(path, {"w": np.arange(40.0), "more": [1, "a"]})
    whole = Path(path).read_bytes()
    for end in range(0, len(whole), 64):
        with open(path, "wb") as file:
            file.write(whole[:end])
        refuses(path)
    with open(path, "wb") as file:
        file.write(whole[:-1])
    refuses(path)


def test_bytes_that_flip_are_noticed_or_are_numbers(path):
    """A changed byte is refused, or is one of an array's own (safetensors has no checksums)."""
    tg.save(path, {"w": np.arange(4, dtype=np.uint8), "n": 3})
    whole = Path(path).read_bytes()
    for place in range(len(whole)):
        with open(path, "wb") as file:
            file.write(whole[:place] + bytes([whole[place] ^ 0x20]) + whole[place + 1 :])
        try:
            found = tg.load(path)
        except ValueError as error:
            assert path in str(error)
        else:
            assert isinstance(found, dict)


# -- safetensors ---------------------------------------------------------------------------------


def structure(tree, **text):
    return {"__metadata__": {"tapegraph": json.dumps(tree), **text}}


ONE = json.dumps(array()).encode()
SAFETENSORS = {
    "nothing": b"",
    "no JSON": raw(b"{"),
    "a list": raw(b"[]"),
    "a header of 2 GB": raw(b"{}", length=2 << 30),
    "a header of 2**64 - 1": raw(b"{}", length=2**64 - 1),
    "a name twice": raw(b'{"w": %b, "w": %b}' % (ONE, ONE), bytes(8)),
    "offsets that overlap": raw({"a": array(), "b": array(offsets=(4, 12))}, bytes(12)),
    "offsets beyond the end": raw({"a": array(offsets=(0, 8))}, bytes(4)),
    "offsets that run back": raw({"a": array(offsets=(8, 0))}, bytes(8)),
    "a hole": raw({"a": array(offsets=(8, 16))}, bytes(16)),
    "bytes at the end": raw({"a": array()}, bytes(9)),
    "a size that is not the shape's": raw({"a": array(shape=(2,))}, bytes(8)),
    "a shape that overflows": raw({"a": array(shape=(2**40, 2**40))}, bytes(8)),
    "a negative shape": raw({"a": array(shape=(-1,))}, bytes(8)),
    "an unknown dtype": raw({"a": array("F65")}, bytes(8)),
    "a boolean of 2": raw({"a": array("BOOL", offsets=(0, 1))}, b"\x02"),
    "metadata that is no text": raw({"__metadata__": {"a": 1}}),
    "a structure of more": raw({**structure({"array": "b"}), "a": array()}, bytes(8)),
    "a structure of less": raw({**structure([]), "a": array()}, bytes(8)),
    "a structure of another kind": raw(structure({"pickle": "a"})),
    "a structure that is no JSON": raw({"__metadata__": {"tapegraph": "{"}}),
    "a structure that is deep": raw({"__metadata__": {"tapegraph": "[" * 100_000}}),
}  # fmt: skip


@pytest.mark.parametrize("name", SAFETENSORS)
def test_safetensors_that_are_none(tmp_path, name):
    path = tmp_path / "run.safetensors"
    path.write_bytes(SAFETENSORS[name])
    is_malformed(path)


# -- npz -----------------------------------------------------------------------------------------


def member(array, **options):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, **options)
    return buffer.getvalue()


def with_header(text, body=bytes(8)):
    header = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


class Evil:
    def __reduce__(self):
        return os.abort, ()


HEADER = "{{'descr': {}, 'fortran_order': False, 'shape': {}, }}".format
NPZ = {
    "a pickled object": [("w.npy", member(np.array([Evil()], object), allow_pickle=True))],
    "one in a structure": [("w.npy", with_header(HEADER("[('a', '|O')]", "(1,)")))],
    "a name twice": [("w.npy", member(np.ones(1))), ("w.npy", member(np.ones(1)))],
    "no array": [("w.npy", b"text")],
    "a size that is not the shape's": [("w.npy", with_header(HEADER("'<f8'", "(2,)")))],
    "a shape that is no literal": [("w.npy", with_header(HEADER("'<f8'", "(2**60,)")))],
    "a shape that is huge": [("w.npy", with_header(HEADER("'<f8'", f"({2**60},)")))],
    "a negative shape": [("w.npy", with_header(HEADER("'<f8'", "(-1,)")))],
    "an unknown dtype": [("w.npy", with_header(HEADER("'<q9'", "(1,)")))],
    "a header that is code": [("w.npy", with_header("__import__('os').abort()"))],
    "a header of brackets": [("w.npy", with_header("-" * 9000 + "1"))],
    "a name with and without a suffix": [("w.npy", member(np.ones(1))), ("w", member(np.ones(1)))],
    "a dtype of Python's strings": [("w.npy", with_header(HEADER("'T'", "(1,)"), bytes(16)))],
    "a shape of no numbers and of too many": [
        ("w.npy", with_header(HEADER("'<f8'", f"(0, {2**62})"), b""))
    ],
    "a version that is none": [("w.npy", b"\x93NUMPY\x09\x00" + bytes(80))],
    "a structure of more": [
        ("__metadata__.npy", member(np.frombuffer(b'{"tapegraph": "{\\"array\\": 1}"}', np.uint8)))
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", NPZ)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_npz_that_are_none(tmp_path, name):
    path = tmp_path / "run.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for part, content in NPZ[name]:
            archive.writestr(part, content)
    is_malformed(path)


def test_npz_whose_numbers_changed(tmp_path):
    path = tmp_path / "run.npz"
    tg.save(path, {"w": np.arange(40.0)})
    whole = path.read_bytes()
    place = whole.index(np.arange(40.0).tobytes()) + 100
    path.write_bytes(whole[:place] + b"\xff" + whole[place + 1 :])
    refuses(str(path), "which is malformed .*CRC")


def test_npz_compressed_in_other_ways(tmp_path):
    for kind in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(tmp_path / "run.npz", "w", kind) as archive:
            archive.writestr("w.npy", member(np.ones(40)))
        refuses(str(tmp_path / "run.npz"), "which is malformed .*has a compression")


# -- what would take memory or time --------------------------------------------------------------


def zipped(*members, kind=zipfile.ZIP_DEFLATED):
    """A zip file as a list of bytes, to be changed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind, compresslevel=1) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return bytearray(buffer.getvalue())


def lying(data, **fields):
    """The zip file whose directory says other sizes of the first member."""
    places = {"packed": 20, "size": 24}
    start = data.index(b"PK\x01\x02")
    for field, value in fields.items():
        data[start + places[field] : start + places[field] + 4] = struct.pack("<I", value)
    return data


def one_name(count):
    """The directory of a zip file, of nothing but one name."""
    entry = (
        struct.pack("<4s4B4HL2L5H2L", b"PK\x01\x02", 20, 0, 20, *[0] * 8, 5, *[0] * 6) + b"w.npy"
    )
    end = struct.pack(
        "<4s4H2LH", b"PK\x05\x06", 0, 0, *[count % 65536] * 2, len(entry) * count, 0, 0
    )
    return entry * count + end


def second_version():
    """A .npy file whose header says that it takes 4 GB, and takes 64 MB."""
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + bytes(64 << 20)


ONE_NUMBER = member(np.ones(1))
NAMES = 20_000
COSTLY = {
    "a zip bomb": ("npz", lambda: zipped(("w.npy", ONE_NUMBER + bytes(64 << 20)))),
    "one that says less": (
        "npz",
        lambda: lying(zipped(("w.npy", ONE_NUMBER + bytes(64 << 20))), size=len(ONE_NUMBER)),
    ),
    "one that says more": (
        "npz",
        lambda: lying(
            zipped(("w.npy", with_header(HEADER("'u1'", f"({2**32 - 130},)")))), size=2**32 - 2
        ),
    ),
    "a bomb in a header": ("npz", lambda: zipped(("w.npy", second_version()))),
    "members inside others": (
        "npz",
        lambda: lying(
            zipped(("a.npy", ONE_NUMBER), ("b.npy", ONE_NUMBER), kind=zipfile.ZIP_STORED),
            packed=2 * len(ONE_NUMBER),
        ),
    ),
    "a member without bytes": ("npz", lambda: lying(zipped(("w.npy", ONE_NUMBER)), packed=0)),
    "one name in a zip file": ("npz", lambda: one_name(NAMES // 4)),
    "one name": (
        "safetensors",
        lambda: raw(b'{%b"b":{}}' % (b'"w.1234567":%b,' % ONE * NAMES), bytes(8)),
    ),
    "one name in an entry": (
        "safetensors",
        lambda: raw(b'{"w":{%b"dtype":"F64"}}' % (b'"shape":[1],' * 50_000), bytes(8)),
    ),
    "one name in the text": (
        "safetensors",
        lambda: raw(b'{"__metadata__":{%b"b":""}}' % (b'"name":"text",' * 50_000)),
    ),
    "a shape of many axes": (
        "safetensors",
        lambda: raw(b'{"w":{"shape":[%b1]}}' % (b"1," * 300_000)),
    ),
    "a cut-off file": (
        "safetensors",
        lambda: raw({"w": array(shape=(2**27,), offsets=(0, 2**30))}, bytes(40)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COSTLY)
def test_a_refusal_takes_little_memory_and_time(tmp_path, name):
    suffix, make = COSTLY[name]
    path = tmp_path / f"run.{suffix}"
    path.write_bytes(make())
    start = time.process_time()
    tracemalloc.start()
    try:
        refuses(str(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert time.process_time() - start < 1.0
    assert peak < 100e6


def changed(whole, moments):
    """A file in which some bytes are others, are missing, or stand elsewhere."""
    data = bytearray(whole)
    for _ in range(moments.randint(1, 4)):
        at, length = moments.randrange(len(data)), moments.choice([1, 1, 2, 4, 8, 40])
        kind = moments.randrange(5)
        if kind == 0:
            data[at : at + length] = moments.randbytes(length)
        elif kind == 1:
            data[at : at + length] = moments.choice([b"\xff", b"\0"]) * length
        elif kind == 2:
            del data[at : at + length]
        elif kind == 3:
            data[at:at] = data[moments.randrange(len(data)) :][:length]
        else:  # a number of the text
            digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
            data[moments.choice(digits)] = moments.choice(b"0123456789-.eE")
    return bytes(data)


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "packed.npz"])
def test_hostile_files_are_refused_or_read(tmp_path, suffix, thorough):
    """Nothing else: no other error, no crash, no memory, no time, and no part of the model."""
    path = tmp_path / f"run.{suffix}"
    arrays = {"w": np.arange(40.0), "b": np.ones((3, 2), ">f4"), "n": np.arange(3, dtype=np.int8)}
    if suffix == "packed.npz":
        np.savez_compressed(path, **arrays)
    else:
        tg.save(path, {**arrays, "more": [1, "a", (2.5, None, np.float32(1))]})
    whole = path.read_bytes()
    moments = random.Random(suffix)
    into = {"w": tg.param(np.zeros(40)), "b": tg.param(np.zeros((3, 2), np.float32))}
    tracemalloc.start()
    try:
        for _ in range(20_000 if thorough else 150):
            path.write_bytes(changed(whole, moments))
            before = [leaf.numpy() for leaf in into.values()]
            for call in (tg.load, lambda p: tg.load(p, into={**into, "n": ..., "more": ...})):
                try:
                    call(path)
                except (ValueError, TypeError) as error:
                    assert str(path) in str(error) and not isinstance(error, UnicodeError)
                else:
                    before = [leaf.numpy() for leaf in into.values()]
            for leaf, held in zip(into.values(), before, strict=True):
                assert leaf.numpy().tobytes() == held.tobytes()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20e6


# -- what is no fault of the file ----------------------------------------------------------------


FAULTS = {
    "memory": (MemoryError, ("Unable to allocate 2.00 GiB",)),
    "a disk": (OSError, (errno.EIO, "Input/output error")),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_happens_around_is_told_as_it_is(path, monkeypatch, name):
    kind, words = FAULTS[name]

    def fails(*_):
        raise kind(*words)

    tg.save(path, {"w": np.arange(40.0)})
    monkeypatch.setattr(files, "_fill", fails)
    w = tg.param(np.full(40, 7.0))
    with pytest.raises(kind, match=words[-1]) as caught:
        tg.load(path, into={"w": w})
    assert "malformed" not in str(caught.value)
    if sys.version_info >= (3, 11):
        assert f"while {path!r} was read. Nothing has changed." in caught.value.__notes__[0]
    np.testing.assert_array_equal(w.data, np.full(40, 7.0))


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "F4"])
def test_a_dtype_that_numpy_has_not_is_named(tmp_path, dtype):
    path = tmp_path / "hub.safetensors"
    path.write_bytes(raw({"w": array(dtype, (2,), (0, 2))}, bytes(2)))
    refuses(str(path), f"dtype {dtype} for 'w'; expected .* The file is whole", TypeError)


def test_many_names_make_a_short_message(tmp_path):
    path = tmp_path / "run.npz"
    tg.save(path, {"w": np.full(40, 7.0), **{f"x{i}": np.ones(1) for i in range(1000)}})
    refuses(str(path), "'x9', and 990 more; expected only those of `into`")


# -- places --------------------------------------------------------------------------------------


def test_no_file_a_directory_a_link_to_itself(path):
    refuses(path, "No such file", FileNotFoundError)
    os.mkdir(path)
    refuses(path, "a directory", OSError)
    with pytest.raises(OSError, match="a directory"):
        tg.save(path, {})
    os.rmdir(path)
    os.symlink(path, path)
    refuses(path, "Too many levels|cannot be accessed", OSError)
    with pytest.raises(OSError, match=os.path.basename(path)):
        tg.save(path, {})
    assert os.path.islink(path)
    with pytest.raises(FileNotFoundError, match="save: received"):
        tg.save(os.path.join(path + "-none", os.path.basename(path)), {})


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with a name")
def test_a_pipe_is_not_waited_for(path):
    os.mkfifo(path)
    refuses(path, "or a special file", OSError)
    with pytest.raises(OSError, match="or a special file"):
        tg.save(path, {})
    assert os.path.exists(path)


def test_no_permission(path, monkeypatch):
    """What root may do all the same is refused by the system's own error."""
    tg.save(path, {"old": 1})
    if os.geteuid():
        os.chmod(path, 0)
        refuses(path, "Permission denied", PermissionError)
        os.chmod(path, 0o600)

    real = os.open

    def denied(name, *args):
        if os.path.basename(name) == ".tapegraph-" + "00" * 8 + ".tmp":
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return real(name, *args)

    monkeypatch.setattr(os, "urandom", bytes)
    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(PermissionError, match=r"save: received.*run.*cannot be written"):
        tg.save(path, {"new": 1})
    monkeypatch.undo()
    assert tg.load(path) == {"old": 1}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_leaves_the_old_file(run_python, tmp_path, suffix):
    pytest.importorskip("resource", reason="needs limits of the size of files")
    path = tmp_path / f"run.{suffix}"
    tg.save(path, {"old": 1})
    done = run_python(
        f"""
        import resource
        import numpy as np, tapegraph as tg
        save = tg.save  # imported before: compiled code is not to be cut off
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            save({str(path)!r}, {{"w": np.zeros(100_000)}})
        except OSError as error:
            print(error)
        """
    )
    assert "save: received" in done.stdout and "cannot be written" in done.stdout, done.stderr
    assert tg.load(path) == {"old": 1}
    assert os.listdir(tmp_path) == [path.name]
