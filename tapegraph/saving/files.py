"""Files that are the old one or the new one, whatever happens while they are written."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tapegraph.errors import message


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


def read_file(op: str, path: str) -> bytes:
    """Return what a file holds; what is no regular file is refused, without waiting for it."""
    flags: Any = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(message(op, f"{path!r}, {_kind(mode)}", "a file"))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def _kind(mode: int) -> str:
    return "a directory" if stat.S_ISDIR(mode) else "which is no regular file"
