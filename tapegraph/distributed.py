"""Training on several processes: gradients averaged over the ranks of a communicator.

A step compiled under a strategy averages by itself. A rehearsal, a call that is undone before the
first that counts, finds what workers share.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Protocol
from weakref import ref

import numpy as np

from tapegraph.arrays import keep_freed_memory
from tapegraph.capture import Capture
from tapegraph.compiling.compiled import Compiled
from tapegraph.compiling.ran import Witness
from tapegraph.compiling.trace import Trace
from tapegraph.engines import registry
from tapegraph.errors import kind_of, message
from tapegraph.optim.optimizer import Optimizer
from tapegraph.optim.options import (
    AVERAGING,
    Leaf,
    data_of,
    gradients_of,
    of_parts,
    real_and_imaginary,
    replace_gradient,
)
from tapegraph.recording.lost_gradients import DIFFERENTIATING
from tapegraph.recording.node import as_float, as_leaf, real_dtype
from tapegraph.recording.op import ALL_REDUCE
from tapegraph.recording.record import tensor_like
from tapegraph.recording.scopes import Scope, no_grad, recorder
from tapegraph.recording.values import Change, all_new_numbers, make, take_back, together
from tapegraph.recording.values import set_gradient as put_gradient
from tapegraph.scalars.recorder import DATA, GRAD, Item
from tapegraph.tensors.tensor import Tensor
from tapegraph.tensors.value import Value
from tapegraph.typed import Array, Cotangent, DuckArray

__all__ = ["DataParallel"]

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
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

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


# Which an uncaught exception aborts, and the hook that does it.
_jobs: list[Any] = []
_hook: Any = None


def end_job_on_errors(comm: Any) -> None:
    """Abort all ranks on an uncaught exception, after printing it and running later hooks."""
    global _hook
    if comm.size == 1 or not hasattr(comm, "Abort"):
        return
    if not any(comm is known for known in _jobs):
        _jobs.append(comm)
    if sys.excepthook is _hook:
        return
    before = sys.excepthook

    def hook(*error: Any) -> None:
        before(*error)
        if _hook is hook:  # otherwise a later one of ours, which aborts, has called it
            sys.stdout.flush()
            sys.stderr.flush()
            time.sleep(0.25)  # the launcher drops what it has not yet forwarded when a job aborts
            for comm in _jobs:
                comm.Abort(1)

    _hook = sys.excepthook = hook


class Exchange:
    """The exchange of a rank with the others, once a step, in which all parameters travel."""

    def __init__(self, parallel: DataParallel, check_every: int | None) -> None:
        keep_freed_memory()
        self._op, self._comm = type(parallel).__name__, parallel._comm
        self._names, size = parallel._names, sum(parallel._sizes)
        self._send = np.zeros(size + len(self._names) + _MORE, parallel._dtype)
        self._total = np.zeros_like(self._send)
        self.flat = self._send[:size]  # where gradients may be put together
        self._shared, self._check_every = parallel._numbers, check_every
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
        if any_has == expected:
            return mean
        place = next(i for i, x in enumerate(any_has) if x != expected[i])
        now, then = ("a", "none") if any_has[place] else ("no", "one")
        received = f"{now} gradient of {self._names[place]!r} on any rank, and {then} when recorded"
        fix = "Take the same branches on all ranks, or call zero_grad() before backward()."
        raise RuntimeError(message(self._op, received, "gradients of the same parameters", fix))

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
        largest = np.abs(first[np.isfinite(first)]).max(initial=0.0)
        atol = ROUNDING.get(real_dtype(array.dtype).name, 0.0) * largest
        if not found and not np.allclose(array, first, rtol=0.0, atol=atol, equal_nan=True):
            found = place
    of_each = _of_each(comm, found)
    if of_each.any():
        rank = int((of_each > 0).argmax())
        received = f"{arrays[int(of_each[rank]) - 1][0]} on rank {rank} with other numbers than"
        fix = "Change parameters and optimizer on all ranks alike; broadcast() makes them equal."
        raise RuntimeError(message(op, f"{received} on rank 0", "the same on every rank", fix))


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


class DataParallel:
    """Train one model on many processes: each has a part of the batch, all take the same steps.

    Every rank makes the same parameters and the same optimizer, and starts from rank 0's numbers.
    Then `step` averages the gradients in one all-reduce, eagerly and in compiled steps, before the
    optimizer's own step: ``g = sum(w_r * g_r) / sum(w_r)`` over the ranks ``r``, with weights
    ``w_r``. Every rank must call it equally often.

    A parameter with a gradient on any rank gets the average; a missing gradient counts as zero.
    Row-sparse gradients are made dense. Numbers of several types travel in the widest.

    An exception that ends one rank ends the job, after its traceback, by a ``sys.excepthook`` and
    ``comm.Abort``. ``python -m mpi4py script.py`` also does it for earlier errors and ``sys.exit``.

    :param optimizer: Over the same parameters, in the same order, on every rank.
    :param comm: ``mpi4py.MPI.COMM_WORLD`` by default; any object with its ``rank``, ``size``,
        ``Allreduce(send, receive)`` and ``Bcast(array, root=0)``; or a strategy, as for `compile`.
    :param check_every: After that many steps the ranks compare a digest of parameters and optimizer
        state.
    :raises TypeError: It is no optimizer, or no communicator.
    :raises ValueError: Names, shapes, dtypes or options differ between ranks: on all of them.
    :raises ImportError: ``comm`` is not given, and mpi4py is missing.

    >>> class Alone:  # in place of MPI.COMM_WORLD
    ...     rank, size = 0, 1
    ...     def Allreduce(self, send, receive): receive[...] = send
    ...     def Bcast(self, array, root=0): pass
    >>> w = tg.param([1.0, 2.0])
    >>> parallel = tg.distributed.DataParallel(tg.SGD([w], lr=0.5), Alone())
    >>> x = np.ones((4, 2))[parallel.rank :: parallel.size]
    >>> tg.mean(x @ w).backward()
    >>> parallel.step(weight=len(x))
    >>> w.data
    array([0.5, 1.5])
    """

    def __init__(
        self,
        optimizer: Optimizer,
        comm: Communicator | None = None,
        *,
        check_every: int | None = 100,
    ) -> None:
        op = type(self).__name__
        recorder().outside(op, "Make it before the first.")
        if not isinstance(optimizer, Optimizer) or not optimizer.params:
            expected = "an optimizer with parameters, such as tg.SGD"
            raise TypeError(message(op, kind_of(optimizer), expected))
        if check_every is not None and (type(check_every) is not int or check_every < 1):
            expected = "a number of steps from 1, or None"
            raise ValueError(message(op, f"check_every={check_every!r}", expected))
        self.optimizer = optimizer
        self._comm = communicator(op, comm)
        self._params = optimizer.params
        self._names = [name for group in optimizer.groups for name in group.names]
        self._kinds = [data_of(p)[...] for p in self._params]
        # Complex numbers travel as their two parts.
        self._sizes = [2 * a.size if a.dtype.kind == "c" else a.size for a in self._kinds]
        self._dtype = real_dtype(np.result_type(*self._kinds))
        self._exchange = Exchange(self, check_every)
        self._met_in: Callable[[], Any] = lambda: None  # the last capture with an exchange
        end_job_on_errors(self._comm)
        check_alike(op, self._comm, list(self._described()))
        self.broadcast()

    def __repr__(self) -> str:
        kind = type(self.optimizer).__name__
        return f"<DataParallel of {kind}, rank {self.rank} of {self.size}>"

    @property
    def rank(self) -> int:
        """The index of this rank, from 0."""
        return self._comm.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._comm.size

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Set every parameter's gradient to zero, or to None."""
        self.optimizer.zero_grad(set_to_none)

    def broadcast(self) -> None:
        """Give all ranks rank 0's parameters and optimizer state, as after loading a checkpoint.

        :raises RuntimeError: Inside a compiled step.
        """
        recorder().outside("broadcast", "Call it between its runs.")
        _send_out(self._comm, [leaf for _, leaf in self._shared()])

    def all_reduce(self, weight: float | Tensor = 1.0) -> None:
        """Replace each gradient by the average over the ranks, as `step` does.

        Call it before ``tg.clip_grad_norm`` and ``optimizer.step()``.

        :param weight: The weight of this rank: the number of its samples if the loss is their mean.
            Nothing is read from a rank with weight 0.
        :raises ValueError: The weight is negative or not finite.
        :raises RuntimeError: All weights are 0, or the ranks hold different parameters.
        """
        self._averaged(weight)

    def step(self, weight: float | Tensor = 1.0) -> None:
        """Average the gradients over the ranks, and take the optimizer's step.

        :param weight: The weight of this rank, as in `all_reduce`.
        :raises TypeError, ValueError, RuntimeError: As `all_reduce` and ``optimizer.step()``; then
            nothing has changed.
        """
        self._stepped(weight, self.optimizer.step)

    def _stepped(self, weight: DuckArray, step: Callable[[], None]) -> None:
        taken_back = self._averaged(weight)
        taken = self.optimizer._steps._array
        try:
            step()
        except BaseException:
            if self.optimizer._steps._array is taken:
                make(together(taken_back))
            raise

    # One exchange

    def _averaged(self, weight: DuckArray) -> list[Change]:
        """Average the gradients; return a function that undoes it, except in a capture."""
        op, capture = "all_reduce", recorder().capture
        weight = recorder().number(weight, self._dtype)
        if not isinstance(weight, Tensor):
            weight = as_leaf(np.asarray(as_float(weight, op, "weight"), self._dtype))
        elif weight.shape != ():
            raise ValueError(message(op, f"a weight of shape {weight.shape}", "one number"))
        grads = gradients_of(self._params, rows=False)
        has = tuple(g is not None for g in grads)
        with no_grad():
            vectors = [
                np.zeros(size, self._dtype)
                if g is None
                else (real_and_imaginary(g) if g.dtype.kind == "c" else g).reshape(size)
                for g, size in zip(grads, self._sizes, strict=True)
            ]
            if capture is None:
                flat = np.concatenate(vectors, out=self._exchange.flat)
                mean, any_has = self._exchange.average(flat, weight._array, has)
            else:
                flat = tensor_like(op, np.concatenate([v.astype(self._dtype) for v in vectors]))
                mean, any_has = self._recorded(capture, flat, weight.astype(self._dtype), has)
            stops = accumulate(self._sizes)
            parts = [
                _of_kind(mean[stop - size : stop], kind)
                for stop, size, kind in zip(stops, self._sizes, self._kinds, strict=True)
            ]
            found = [
                (p, new) for p, new, some in zip(self._params, parts, any_has, strict=True) if some
            ]
            if capture is not None:
                for p, new in found:
                    replace_gradient(p, new)
                return []
        before = [_gradient_put(p, getattr(p, GRAD, None)) for p, _ in found]
        make(together([_gradient_put(p, new) for p, new in found]))
        return before

    def _recorded(
        self, capture: Capture, flat: DuckArray, weight: DuckArray, has: tuple[bool, ...]
    ) -> tuple[DuckArray, tuple[bool, ...]]:
        first, self._met_in = self._met_in() is not capture, ref(capture)
        mean, any_has = self._exchange.average(flat._array, weight._array, has, first=first)
        attrs = {"exchange": self._exchange, "first": first, "has": has, "expected": any_has}
        entry = capture.result(ALL_REDUCE, mean, (flat, weight), attrs)
        entry._requires_grad = False
        return entry, any_has

    # State that ranks share

    def _numbers(self) -> list[tuple[str, Array]]:
        capture = recorder().capture
        started = {} if capture is None else capture.started
        return [
            (name, np.asarray(getattr(x, DATA) if isinstance(x, Value) else x._array))
            if id(x) not in started
            else (name, started[id(x)])
            for name, x in self._shared()
        ]

    def _shared(self) -> Iterator[tuple[str, Any]]:
        state = self.optimizer.state
        for name, p in zip(self._names, self._params, strict=True):
            yield f"parameter {name!r}", p
            for slot, leaf in state[name].items():
                yield f"{slot} of {name!r}", leaf
        yield "the number of steps", self.optimizer._steps
        yield "the steps that parameters missed", self.optimizer._missed

    def _described(self) -> Iterator[str]:
        """Yield descriptions that must agree on all ranks, a line each."""
        optimizer = self.optimizer
        yield f"{len(self._names)} parameter{'s' * (len(self._names) > 1)}"
        rates = [optimizer._lr, *(group.lr for group in optimizer.groups)]
        options = {k: v for k, v in vars(optimizer).items() if not k.startswith("_")}
        options["lr"] = [x for x in rates if isinstance(x, float)]
        options["weight_decay"] = [group.weight_decay for group in optimizer.groups]
        yield f"{type(optimizer).__name__} with {options}"
        for name, leaf in self._shared():
            yield _signature(name, leaf)


def _send_out(comm: Communicator, leaves: Sequence[Leaf]) -> None:
    arrays = [np.array(data_of(leaf), order="C") for leaf in leaves]
    for array in arrays:
        comm.Bcast(array, root=0)
    pairs = list(zip(leaves, arrays, strict=True))
    tensors = [(leaf, a) for leaf, a in pairs if not isinstance(leaf, Value)]
    changes: list[Change] = [
        partial(setattr, leaf, DATA, float(a)) for leaf, a in pairs if isinstance(leaf, Value)
    ]
    changes += all_new_numbers([leaf for leaf, _ in tensors], [a for _, a in tensors])
    if comm.rank:
        make(together(changes))


def _of_kind(numbers: DuckArray, kind: Array) -> Cotangent:
    """Return part of a vector in a parameter's shape and dtype."""
    if kind.dtype.kind != "c":
        return numbers.reshape(kind.shape).astype(kind.dtype, copy=False)
    parts = numbers.reshape((*kind.shape, 2)).astype(real_dtype(kind.dtype), copy=False)
    return of_parts(parts)


def _signature(name: str, leaf: Leaf) -> str:
    array = data_of(leaf)
    return f"{name} of shape {array.shape} and dtype {array.dtype}"


def _gradient_put(p: Leaf, grad: Any) -> Change:
    if isinstance(p, Value):
        return partial(setattr, p, GRAD, float(grad))
    return partial(put_gradient, p, grad)


# A step under a strategy

_OP = "compile(strategy=)"


class _Shared:
    """The optimizers that workers share, each with its exchange, and the other shared leaves."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._parallels: list[DataParallel] = []
        self._others: list[Leaf] = []  # of no optimizer that has been met
        # Who steps in a rehearsal, in which nothing is averaged; None outside of one.
        self.met: list[Optimizer] | None = None

    def step(self, optimizer: Any) -> None:
        for parallel in self._parallels:
            if parallel.optimizer is optimizer and self.met is None:
                parallel._stepped(1.0, optimizer._step)
                return
        capture = recorder().capture
        if capture is None or not capture.is_state(optimizer._steps):
            place = "in a call that is not compiled" if capture is None else "it was made in"
            received = f"the first step of {type(optimizer).__name__} {place}"
            fix = "Make optimizers outside the step, and compile the first call of each."
            raise RuntimeError(message(_OP, received, "optimizers that all workers share", fix))
        if self.met is None:
            received = f"the first step of {type(optimizer).__name__} in a later call"
            raise RuntimeError(message(_OP, received, "the same steps in each call"))
        self.met.append(optimizer)
        optimizer._step()

    def average(self, params: Sequence[Leaf]) -> None:
        """Average the gradients of the optimizers that have one of these parameters."""
        wanted = set(map(id, params))
        for parallel in self._parallels if self.met is None else ():
            if not wanted.isdisjoint(map(id, parallel.optimizer.params)):
                parallel.all_reduce()

    def share(self, rehearsed: Trace, met: list[Optimizer]) -> None:
        """Let workers share the leaves that a call used, now that it is undone."""
        for optimizer in dict.fromkeys(met):
            if all(parallel.optimizer is not optimizer for parallel in self._parallels):
                self._parallels.append(DataParallel(optimizer, self._comm))
        self.check(rehearsed, averages=True)
        params, _ = _parameters(rehearsed)
        known = self._optimized().union(map(id, self._others))
        if new := [p for p in params if id(p) not in known]:
            lines = [_signature(f"parameter {i} of the step", p) for i, p in enumerate(new)]
            check_alike(_OP, self._comm, lines)
            _send_out(self._comm, new)
            self._others += new

    def check(self, trace: Trace, *, averages: bool) -> None:
        averaged = self._optimized() if averages else ()
        for p in _parameters(trace)[1]:
            if id(p) not in averaged:
                name = getattr(p, "name", None)
                which = f"the parameter {name!r}" if name else "a parameter"
                received = f"a step that changes {which} without an optimizer"
                fix = "Update it with an optimizer, whose gradients are averaged over the workers."
                raise RuntimeError(message(_OP, received, "the same change on every worker", fix))

    def _optimized(self) -> set[int]:
        return {id(p) for parallel in self._parallels for p in parallel.optimizer.params}


def _parameters(trace: Trace) -> tuple[list[Any], list[Any]]:
    """Return the parameters that a call has read, and those that it has changed."""
    program = trace.recording.program
    read: list[Any] = [p for slot, p in trace.state.items() if program.needs[slot]]
    changed: list[Any] = [trace.state[u.leaf] for u in program.updates if program.needs[u.leaf]]
    if trace.numbers is not None:
        read += _values(trace.numbers.read_from)
        changed += _values(trace.numbers.written_to)
    return read, changed


def _values(items: list[Item]) -> list[Value]:
    return [x for x, slot in items if isinstance(x, Value) and slot == DATA]


class OnWorkers(Compiled):
    """A function compiled under a strategy."""

    def __init__(self, fn: Any, *options: Any) -> None:
        super().__init__(fn, *options[:-1])
        self._options = options
        self._workers = options[-1]
        self._averages = True
        self._shared = _Shared(self._workers)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        inside = recorder().capture is not None or DIFFERENTIATING.value()
        if inside and AVERAGING.value() is not self._shared:
            received = f"a call of {self.__name__} inside another program"
            fix = "Pass the strategy to the outermost function."
            raise RuntimeError(message(_OP, received, "a call of its own", fix))
        with Scope(AVERAGING, self._shared):
            return super().__call__(*args, **kwargs)

    def _traced(self, witness: Witness, entry: Any, given: list[Any]) -> tuple[Trace, bool]:
        """Make a real call; before a trace's first one a rehearsal, by which workers share."""
        if entry.trace is not None:
            return super()._traced(witness, entry, given)
        plain = given[: len(given) - len(entry.view.fed)]
        met: list[Optimizer] = []
        self._shared.met = met
        try:
            rehearsed = self._call_anew(witness, entry, plain)
        finally:
            self._shared.met = None
        take_back(witness.undo)
        self._shared.share(rehearsed, met)
        trace, is_recorded = super()._traced(witness, entry, given)
        self._shared.check(trace, averages=trace.averages)
        trace.follows(rehearsed)
        return trace, is_recorded


def under_strategy(step: Compiled, strategy: object) -> Compiled:
    comm = communicator(_OP, strategy)
    return step if comm.size == 1 else OnWorkers(step._given, *step._options, comm)
