"""The all-reduce of each step, and the digest that shows whether ranks agree.

The buffer holds the gradients times the rank's weight, then which parameters have a gradient, the
weight, and at times a digest of the parameters.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from tapegraph.arrays import keep_freed_memory
from tapegraph.engines import registry
from tapegraph.errors import kind_of, message
from tapegraph.recording.node import real_dtype
from tapegraph.typed import Array, DType, DuckArray

# A digest has so many numbers of four bits: their sum, and that of their squares, is exact in
# float32 for 65,000 ranks.
DIGEST = 16
_NO_DIGEST = np.zeros(DIGEST)
# Digest and its squares, and the weight.
_MORE = 2 * DIGEST + 1
# The rounding difference of engines (ranks may run a step in different ones).
ROUNDING = {"float32": 1e-4, "float64": 1e-9}


class Communicator(Protocol):
    """The methods that a communicator needs, with mpi4py's names; all take arrays."""

    @property
    def rank(self) -> int:
        """The index of this rank, from 0."""

    @property
    def size(self) -> int:
        """The number of ranks."""

    def Allreduce(self, sendbuf: object, recvbuf: object, /) -> Any:
        """Add up an array of every rank, and give each the sum."""

    def Bcast(self, buf: object, /, root: int = 0) -> Any:
        """Broadcast the array of one rank to all."""


def communicator(op: str, comm: Any) -> Communicator:
    """Return a checked communicator: MPI's own, or a strategy's."""
    if comm is None:
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:  # no mpi4py, or no MPI that it can load
            received = f"no communicator, and no MPI ({error})"
            fix = "Install it: pip install mpi4py mpich."
            raise ImportError(message(op, received, "mpi4py with an MPI library", fix)) from error
        comm = MPI.COMM_WORLD
    elif not hasattr(comm, "Bcast") and (hasattr(comm, "num_replicas_in_sync") or callable(comm)):
        comm = registry.engine("tensorflow").workers(op, comm)
    missing = [n for n in ("rank", "size", "Allreduce", "Bcast") if not hasattr(comm, n)]
    if missing:
        received = f"{kind_of(comm)} without {', '.join(missing)}"
        expected = "a communicator such as MPI.COMM_WORLD, or a strategy of tf.distribute"
        raise TypeError(message(op, received, expected))
    return comm


class _EndOfJob:
    """An excepthook that aborts all ranks after the hook that it replaced has run."""

    def __init__(self, before: Any) -> None:
        self._before = before
        self.comms: list[Any] = []

    def __call__(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        self._before(kind, error, traceback)
        sys.stdout.flush()
        sys.stderr.flush()
        if self.comms:
            time.sleep(0.25)  # the launcher drops what it has not yet forwarded when a job aborts
        for comm in self.comms:
            comm.Abort(1)


_hook = _EndOfJob(None)


def end_job_on_errors(comm: Any) -> None:
    """Abort all ranks on an uncaught exception, after printing it and running later hooks."""
    global _hook
    if comm.size == 1 or not hasattr(comm, "Abort"):
        return
    if sys.excepthook is not _hook:
        comms, _hook.comms = _hook.comms, []  # the new hook may call the one before
        _hook = sys.excepthook = _EndOfJob(sys.excepthook)
        _hook.comms = comms
    if not any(comm is known for known in _hook.comms):
        _hook.comms.append(comm)


class Exchange:
    """The exchange of a rank with the others, once a step; ``shared`` must be equal on all."""

    def __init__(
        self,
        op: str,
        comm: Communicator,
        names: Sequence[str],
        size: int,
        dtype: DType,
        shared: Callable[[], list[tuple[str, Array]]],
        check_every: int | None,
    ) -> None:
        keep_freed_memory()
        self._op, self._comm, self._names = op, comm, names
        self._send = np.zeros(size + len(names) + _MORE, dtype)
        self._total = np.zeros_like(self._send)
        self.flat = self._send[:size]  # where gradients may be put together
        self._shared, self._check_every = shared, check_every
        self._count = 0

    def __repr__(self) -> str:
        return f"<{self._comm.size} ranks>"

    def __call__(
        self,
        flat: Array,
        weight: Array,
        *,
        first: bool,
        has: tuple[bool, ...],
        expected: tuple[bool, ...],
    ) -> Array:
        """Return the average of flat gradients in a run of a recorded step."""
        mean, any_has = self.average(flat, weight, has, first=first)
        if any_has != expected:
            raise self._changed(any_has, expected)
        return mean

    def average(
        self, flat: Array, weight: DuckArray, has: tuple[bool, ...], *, first: bool = True
    ) -> tuple[Array, tuple[bool, ...]]:
        """Return the average of flat gradients, and which parameters have one on any rank."""
        self._count += first
        due = first and self._check_every is not None and self._count % self._check_every == 0
        shared = self._shared() if due else []
        digest = _digest(shared) if due else _NO_DIGEST
        if not 0 <= weight < np.inf:
            received = f"the weight {float(weight)!r} on rank {self._comm.rank}"
            raise ValueError(message(self._op, received, "a finite number, not negative"))
        end_job_on_errors(self._comm)
        if not weight:  # of no data: its gradients may be NaN
            self.flat[:] = 0
        elif flat is not self.flat or weight != 1:
            with np.errstate(all="ignore"):
                np.multiply(flat, self._send.dtype.type(weight), out=self.flat)
        self._send[flat.size :] = [*has, *digest, *digest**2, weight]
        self._comm.Allreduce(self._send, self._total)
        *more, weights = self._total[-_MORE:].astype(float)
        sums, squares = np.array(more).reshape(2, DIGEST)
        if (sums**2 != self._comm.size * squares).any():
            check_equal(self._op, self._comm, shared)
        if not weights:
            fix = "Give a rank without data the weight 0, and one with data a positive weight."
            raise RuntimeError(message(self._op, "the weight 0 on every rank", "one above 0", fix))
        mean = self._total[: flat.size] / self._total.dtype.type(weights)
        return mean, tuple((self._total[flat.size : -_MORE] > 0).tolist())

    def _changed(self, any_has: tuple[bool, ...], expected: tuple[bool, ...]) -> RuntimeError:
        """Return the error of a compiled step in which another parameter has a gradient."""
        place = next(i for i, x in enumerate(any_has) if x != expected[i])
        now, then = ("a", "none") if any_has[place] else ("no", "one")
        received = f"{now} gradient of {self._names[place]!r} on any rank, and {then} when recorded"
        fix = "Take the same branches on all ranks, or call zero_grad() before backward()."
        return RuntimeError(message(self._op, received, "gradients of the same parameters", fix))


# Equal on all ranks


def _digest(arrays: Sequence[tuple[str, Array]]) -> Array:
    found = hashlib.blake2b(digest_size=DIGEST // 2)
    for _, array in arrays:
        found.update(np.ascontiguousarray(array).data)
    pairs = np.frombuffer(found.digest(), np.uint8)
    return np.concatenate([pairs >> 4, pairs & 15]).astype(float)


def check_alike(op: str, comm: Communicator, lines: Sequence[str]) -> None:
    """Raise on every rank if one has a text other than rank 0's."""
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
    raise ValueError(message(op, received, "the same on every rank", fix))


def check_equal(op: str, comm: Communicator, arrays: Sequence[tuple[str, Array]]) -> None:
    """Raise on every rank if one holds numbers that rounding does not explain."""
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
        raise RuntimeError(message(op, f"{received} on rank 0", "the same on every rank", fix))


def _is_near(array: Array, other: Array) -> bool:
    scale = np.abs(other[np.isfinite(other)]).max(initial=0.0)
    tolerance = ROUNDING.get(real_dtype(array.dtype).name, 0.0)
    return np.allclose(array, other, rtol=0.0, atol=tolerance * scale, equal_nan=True)


def _of_each(comm: Communicator, number: int) -> Array:
    own = np.zeros(comm.size, np.int64)
    own[comm.rank] = number
    found = np.empty_like(own)
    comm.Allreduce(own, found)
    return found


def _text_of(comm: Communicator, lines: Sequence[str], root: int) -> list[str]:
    text = np.frombuffer("\n".join(lines).encode(), np.uint8)
    length = np.array([text.size])
    comm.Bcast(length, root=root)
    if comm.rank != root:
        text = np.empty(length[0], np.uint8)
    text = text.copy()
    comm.Bcast(text, root=root)
    return text.tobytes().decode().split("\n")
