"""The ranks of a job: what is asked of a communicator, and what it is used for beside gradients."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from tapegraph.engines import registry
from tapegraph.errors import explain, kind_of
from tapegraph.recording.node import real_dtype
from tapegraph.typed import Array

# How far engines may round apart (a step may run in another one on another rank).
ROUNDING = {"float32": 1e-4, "float64": 1e-9}


class Communicator(Protocol):
    """What is asked of a communicator, with mpi4py's names: all of it on arrays."""

    @property
    def rank(self) -> int:
        """Which of the ranks this is, from 0."""

    @property
    def size(self) -> int:
        """How many ranks there are."""

    def Allreduce(self, sendbuf: Any, recvbuf: Any, /) -> Any:
        """Add up an array of every rank, and give each the sum."""

    def Bcast(self, buf: Any, /, root: int = 0) -> Any:
        """Give every rank the array of one."""


def communicator(op: str, comm: Any) -> Communicator:
    """Return a communicator that has been checked: MPI's own, or that of a strategy."""
    if comm is None:
        try:
            from mpi4py import MPI
        except ImportError as error:
            received = f"no communicator, and no MPI ({error})"
            fix = 'Install the extra: pip install "tapegraph[distributed]".'
            raise ImportError(explain(op, received, "mpi4py with an MPI library", fix)) from error
        comm = MPI.COMM_WORLD
    elif not hasattr(comm, "Bcast") and (hasattr(comm, "num_replicas_in_sync") or callable(comm)):
        comm = registry.engine("tensorflow").workers(op, comm)
    missing = [n for n in ("rank", "size", "Allreduce", "Bcast") if not hasattr(comm, n)]
    if missing:
        received = f"{kind_of(comm)} without {', '.join(missing)}"
        expected = "a communicator such as MPI.COMM_WORLD, or a strategy of tf.distribute"
        raise TypeError(explain(op, received, expected))
    return comm  # type: ignore[no-any-return]


def end_job_on_errors(comm: Any) -> None:
    """Let an exception that ends this rank end all of them, once its traceback is out."""
    if comm.size == 1 or not hasattr(comm, "Abort"):
        return
    before = sys.excepthook

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        before(kind, error, traceback)
        sys.stdout.flush()
        sys.stderr.flush()
        comm.Abort(1)

    sys.excepthook = hook


def check_alike(op: str, comm: Communicator, lines: Sequence[str]) -> None:
    """Raise, on every rank, where one of them has another text than rank 0."""
    first = _text_of(comm, lines, 0)
    differs = _of_each(comm, first != list(lines))
    if not differs.any():
        return
    rank = int(differs.argmax())
    other = _text_of(comm, lines, rank)
    pairs = ((a, b) for a, b in zip(first, other, strict=False) if a != b)
    one, two = next(pairs, (f"{len(first)} parameters", f"{len(other)}"))
    fix = "Make the parameters and the optimizer alike on all ranks."
    received = f"{two} on rank {rank}, and {one} on rank 0"
    raise ValueError(explain(op, received, "the same on every rank", fix))


def check_equal(op: str, comm: Communicator, arrays: Sequence[tuple[str, Array]]) -> None:
    """Raise, on every rank, where one holds numbers that rounding does not explain."""
    found = 0
    for place, (_, array) in enumerate(arrays, 1):
        first = np.array(array, order="C")
        comm.Bcast(first, root=0)
        if not found and not _is_near(array, first):
            found = place
    of_each = _of_each(comm, found)
    if of_each.any():
        rank = int((of_each > 0).argmax())
        received = f"{arrays[int(of_each[rank]) - 1][0]} on rank {rank} with other numbers than"
        fix = "Change parameters and optimizer on all ranks alike; broadcast() makes them equal."
        raise RuntimeError(explain(op, f"{received} on rank 0", "the same on every rank", fix))


def _is_near(array: Array, other: Array) -> bool:
    scale = np.abs(other[np.isfinite(other)]).max(initial=0.0)
    tolerance = ROUNDING.get(real_dtype(array.dtype).name, 0.0)
    return np.allclose(array, other, rtol=0.0, atol=tolerance * scale, equal_nan=True)


def _of_each(comm: Communicator, number: int) -> Array:
    """Return a number of each rank."""
    own = np.zeros(comm.size, np.int64)
    own[comm.rank] = number
    found = np.empty_like(own)
    comm.Allreduce(own, found)
    return found


def _text_of(comm: Communicator, lines: Sequence[str], root: int) -> list[str]:
    """Return the lines of one rank, on all."""
    text = np.frombuffer("\n".join(lines).encode(), np.uint8)
    length = np.array([text.size])
    comm.Bcast(length, root=root)
    if comm.rank != root:
        text = np.empty(length[0], np.uint8)
    text = text.copy()
    comm.Bcast(text, root=root)
    return text.tobytes().decode().split("\n")
