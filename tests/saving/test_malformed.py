"""Files that are none, and places for no file: refused by name, and nothing is changed."""

from __future__ import annotations

import errno
import io
import json
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tapegraph as tg
from tests.saving.test_checkpoints import SUFFIXES, needs_safetensors


@pytest.fixture(params=SUFFIXES)
def path(request, tmp_path):
    return str(tmp_path / f"run.{request.param}")


def refuses(path, message="malformed", kind=ValueError):
    """Loading names the file, and leaves the model as it was."""
    w = tg.param(np.full(40, 7.0))
    with pytest.raises(kind, match=message) as caught:
        tg.load(path, into={"w": w})
    assert path in str(caught.value)
    np.testing.assert_array_equal(w.data, np.full(40, 7.0))


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


def raw(header, body=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def array(dtype="F64", shape=(1,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": [*shape], "data_offsets": [*offsets]}


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
    "a dtype that NumPy has not": raw({"a": array("BF16", offsets=(0, 2))}, bytes(2)),
    "a boolean of 2": raw({"a": array("BOOL", offsets=(0, 1))}, b"\x02"),
    "metadata that is no text": raw({"__metadata__": {"a": 1}}),
    "a structure of more": raw({**structure({"array": "b"}), "a": array()}, bytes(8)),
    "a structure of less": raw({**structure([]), "a": array()}, bytes(8)),
    "a structure of another kind": raw(structure({"pickle": "a"})),
    "a structure that is no JSON": raw({"__metadata__": {"tapegraph": "{"}}),
    "a structure that is deep": raw({"__metadata__": {"tapegraph": "[" * 100_000}}),
}  # fmt: skip


@needs_safetensors
@pytest.mark.parametrize("name", SAFETENSORS)
def test_safetensors_that_are_none(tmp_path, name):
    path = tmp_path / "run.safetensors"
    path.write_bytes(SAFETENSORS[name])
    refuses(str(path))


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
    refuses(str(path))


def test_npz_whose_numbers_changed(tmp_path):
    path = tmp_path / "run.npz"
    tg.save(path, {"w": np.arange(40.0)})
    whole = path.read_bytes()
    place = whole.index(np.arange(40.0).tobytes()) + 100
    path.write_bytes(whole[:place] + b"\xff" + whole[place + 1 :])
    refuses(str(path), "malformed .*CRC")


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
    refuses(path, "no regular file", OSError)
    with pytest.raises(OSError, match="no regular file"):
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
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            tg.save({str(path)!r}, {{"w": np.zeros(100_000)}})
        except OSError as error:
            print(error)
        """
    )
    assert "save: received" in done.stdout and "cannot be written" in done.stdout, done.stderr
    assert tg.load(path) == {"old": 1}
    assert os.listdir(tmp_path) == [path.name]
