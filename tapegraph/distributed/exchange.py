"""One all-reduce a step: the gradients of all parameters, and what ranks must know of each other.

The buffer holds the gradients times the rank's weight, and then, in the same numbers: which
parameters have a gradient, the weight, whether the rank is to be waited for, and at times a digest
of the parameters.

An engine may find after the all-reduce that its run does not stand (TensorFlow's gradients may have
lost zeros), and another runs the step again. Two rules keep the ranks in step, whatever runs on
each. What a call has exchanged is kept by its ticket, and a second run finds it there. And where
the engine knows before that its run will not stand, it says so instead: all ranks repeat the
all-reduce, until the other engine has joined them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegraph.arrays.buffers import keep_freed_memory
from tapegraph.distributed.ranks import Communicator, check_equal
from tapegraph.errors import explain
from tapegraph.typed import Array

# A digest has so many numbers of four bits: their sum, and that of their squares, is exact in
# float32 for 65,000 ranks.
DIGEST = 16
_NO_DIGEST = np.zeros(DIGEST)
# Digest and its squares, the weight, and whether to wait.
_MORE = 2 * DIGEST + 2


class Exchange:
    """What a rank has to do with the others at each step."""

    def __init__(
        self, op: str, comm: Communicator, names: Sequence[str], size: int, dtype: Any
    ) -> None:
        keep_freed_memory()
        self._op, self._comm, self._names = op, comm, names
        self._send = np.zeros(size + len(names) + _MORE, dtype)
        self._total = np.zeros_like(self._send)
        self.flat = self._send[:size]  # where gradients may be put together
        self._shared: list[tuple[str, Array]] = []  # what is compared in this step
        self._digest = _NO_DIGEST
        self._made: dict[int, tuple[int, Any]] = {}  # the last ticket and outcome, by the place

    def __repr__(self) -> str:
        return f"<{self._comm.size} ranks>"

    def compare(self, shared: list[tuple[str, Array]]) -> None:
        """Let the next exchange compare these numbers over the ranks, if there are any."""
        self._shared, self._digest = shared, _NO_DIGEST
        if shared:
            found = hashlib.blake2b(digest_size=DIGEST // 2)
            for _, array in shared:
                found.update(np.ascontiguousarray(array).data)
            pairs = np.frombuffer(found.digest(), np.uint8)
            self._digest = np.concatenate([pairs >> 4, pairs & 15]).astype(float)

    def __call__(
        self,
        flat: Array,
        weight: Array,
        ticket: Array,
        stood: Any = True,
        stands: Any = True,
        *,
        place: int,
        has: tuple[bool, ...],
        expected: tuple[bool, ...],
    ) -> Array:
        """Return the average of flat gradients, as an entry of a step's program.

        ``stands`` is whether this run will be kept as far as is known, and ``stood`` whether that
        was known at the exchange before.
        """
        if not stands and not self._is_made(place, ticket):
            if stood:
                self._fill(flat, 0, has, _NO_DIGEST, wait=1)
                self._comm.Allreduce(self._send, self._total)
            return flat
        mean, any_has = self.made(flat, weight, ticket, place=place, has=has)
        if any_has != expected:
            raise self._changed(any_has, expected)
        return mean

    def made(
        self, flat: Array, weight: Array, ticket: Array, *, place: int, has: tuple[bool, ...]
    ) -> tuple[Array, tuple[bool, ...]]:
        """Return what `average` gives, and gave if a run with this ticket has been here before."""
        if not self._is_made(place, ticket):
            try:
                outcome: Any = self.average(flat, weight, has, place)
            except Exception as error:
                outcome = error
            self._made[place] = int(ticket), outcome
        outcome = self._made[place][1]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    def _is_made(self, place: int, ticket: Array) -> bool:
        return self._made.get(place, (None,))[0] == int(ticket)

    def average(
        self,
        flat: Array,
        weight: Any,
        has: tuple[bool, ...],
        place: int = 0,
    ) -> tuple[Array, tuple[bool, ...]]:
        """Return the average of flat gradients, and which parameters have one on any rank."""
        if not 0 <= weight < np.inf:
            received = f"the weight {float(weight)!r} on rank {self._comm.rank}"
            raise ValueError(explain(self._op, received, "a finite number, not negative"))
        self._fill(flat, weight, has, self._digest if place == 0 else _NO_DIGEST)
        waits = True
        while waits:
            self._comm.Allreduce(self._send, self._total)
            *more, weights, waits = self._total[-_MORE:].astype(float)
        sums, squares = np.array(more).reshape(2, DIGEST)
        if (sums**2 != self._comm.size * squares).any():
            check_equal(self._op, self._comm, self._shared)
        if not weights:
            fix = "Give a rank without data the weight 0, and another one more."
            raise RuntimeError(explain(self._op, "the weight 0 on every rank", "one above", fix))
        mean = self._total[: flat.size] / self._total.dtype.type(weights)
        return mean, tuple((self._total[flat.size : -_MORE] > 0).tolist())

    def _fill(
        self, flat: Array, weight: Any, has: tuple[bool, ...], digest: Array, wait: int = 0
    ) -> None:
        """Put into the buffer what is sent."""
        if not weight:  # of no data: its gradients may be NaN
            self.flat[:] = 0
        elif flat is not self.flat or weight != 1:
            with np.errstate(all="ignore"):
                np.multiply(flat, self._send.dtype.type(weight), out=self.flat)
        self._send[flat.size :] = [*has, *digest, *digest**2, weight, wait]

    def _changed(self, any_has: tuple[bool, ...], expected: tuple[bool, ...]) -> RuntimeError:
        """Return the error of a compiled step in which another parameter has a gradient."""
        place = next(i for i, x in enumerate(any_has) if x != expected[i])
        now, then = ("a", "none") if any_has[place] else ("no", "one")
        received = f"{now} gradient of {self._names[place]!r} on any rank, and {then} when recorded"
        fix = "Take the same branches on all ranks, or call zero_grad() before backward()."
        return RuntimeError(explain(self._op, received, "gradients of the same parameters", fix))
