"""Single operations: natively, in the graph, and PyTorch's, each library in a process of its own.

``forward`` is the call alone; ``gradient`` is the call and its gradient, for a given cotangent,
with respect to every input that takes one. Natively that is an eager call, which records, and
``backward``. In the graph it is one concrete function, traced beforehand, of the nodes that a
compiled step would hold (``emit`` of the operation recorded whole, and ``GradientTape``), whose
inputs are TensorFlow's own tensors and whose results stay there: nothing is recorded, copied or
fetched. In PyTorch it is the eager call and ``backward``.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from benchmarks import peers
from benchmarks.contenders import quiet
from benchmarks.operations import ROWS, Row
from benchmarks.processes import Process
from benchmarks.protocol import PAUSE_SECONDS, TOLERANCE, Array, Spread, ratio, spread

NATIVE, GRAPH, TORCH = "tapegraph native", "tapegraph tensorflow", "torch"
DTYPES = ("float32", "float64")
WHATS = ("forward", "gradient")
LONG_SECONDS = 0.1
# How many numbers of a result are compared.
COMPARED = 4096

Calls = dict[str, Callable[[], Any]]


# In the process of a library


class Library:
    """The operations of one library, one at a time."""

    def __init__(self, threads: int) -> None:
        self.pause = PAUSE_SECONDS if threads > 1 else 0.0  # one thread leaves no other spinning

    def prepare(self, number: int, dtype: str) -> tuple[dict[str, list[Array]], str | None]:
        """Make the calls of a row; return samples of what they give, or why there are none."""
        row, self.calls = ROWS[number], {}
        rng = np.random.default_rng(number)
        arrays = [np.asarray(sample(rng), dtype) for sample in row.inputs]
        fixed = [sample(rng) for sample in row.fixed]
        try:
            self.calls = self.made(row, arrays, fixed)
            given = {what: self.given(call()) for what, call in self.calls.items()}
        except Exception as error:
            self.calls = {}
            if type(error).__name__ != "NotLowered":
                raise
            return {}, str(error)
        self.last = dict.fromkeys(self.calls, 0.0)
        gc.collect()
        gc.freeze()  # what the libraries hold need not be searched for garbage in every turn
        return {what: [_sampled(a) for a in found] for what, found in given.items()}, None

    def turn(self, seconds: float) -> dict[str, float]:
        """Return the seconds of each call."""
        time.sleep(self.pause)
        gc.collect()
        for what, call in self.calls.items():
            if self.last[what] < LONG_SECONDS:
                call()  # so that it finds its caches warm
            count, start, elapsed = 0, time.perf_counter(), 0.0
            while elapsed < seconds:
                call()
                count += 1
                elapsed = time.perf_counter() - start
            self.last[what] = elapsed / count
        return self.last

    def made(self, row: Row, arrays: list[Array], fixed: list[Array]) -> Calls:
        """Return the calls to time."""
        raise NotImplementedError

    def given(self, result: Any) -> list[Any]:
        """Return what a call gave, as arrays."""
        raise NotImplementedError


def _sampled(array: Any) -> Array:
    flat = np.asarray(array).reshape(-1)
    return flat[:: max(1, flat.size // COMPARED)].astype(np.float64)


def cotangent(shape: Sequence[int], dtype: Any) -> Array:
    """Return what every library is given for the cotangent of a result."""
    return np.asarray(np.random.default_rng(1).uniform(0.5, 1.5, tuple(shape)), dtype)


class Native(Library):
    """tapegraph, eagerly."""

    def made(self, row: Row, arrays: list[Array], fixed: list[Array]) -> Calls:
        import tapegraph as tg

        tg.set_backend("native")
        make = tg.param if row.gradient else tg.tensor
        tensors = [make(a) for a in arrays]

        def forward() -> list[Any]:
            return [row.ours(tg, *tensors, *fixed)]

        if not row.gradient:
            return {"forward": forward}
        (y,) = forward()
        seed = cotangent(y.shape, y.dtype)

        def gradient() -> list[Any]:
            for x in tensors:
                x.zero_grad()
            y = row.ours(tg, *tensors, *fixed)
            y.backward(seed)
            return [y, *tensors]

        return {"forward": forward, "gradient": gradient}

    def given(self, result: Any) -> list[Any]:
        y, *tensors = result
        value = y.detach().numpy() if hasattr(y, "detach") else y
        return [value, *(x.grad for x in tensors)]


class Graph(Library):
    """tapegraph, the nodes of a compiled step."""

    def made(self, row: Row, arrays: list[Array], fixed: list[Array]) -> Calls:
        with peers.silence():
            import tensorflow as tf
        import tapegraph as tg
        from tapegraph.lowering.direct import DirectCall
        from tapegraph.lowering.translate import emit
        from tapegraph.recording.whole import Whole

        with Whole() as whole:
            inputs = [whole.input(a) for a in arrays]
            y = row.ours(tg, *inputs, *map(whole.input, fixed))
        recording = whole.recording([y])
        program = recording.program
        (out,) = program.outputs
        wanted = [next(s for s, n in enumerate(recording.nodes) if n is leaf) for leaf in inputs]
        numbers = {slot: recording.values[slot] for slot in program.scalars}
        seed = cotangent(program.shapes[out], program.dtypes[out])

        def traced(*feeds: Any) -> list[Any]:
            tensors: list[Any] = [None] * len(program)
            for slot, feed in zip(program.fed, feeds, strict=False):
                tensors[slot] = feed
            targets = [tensors[slot] for slot in wanted]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(targets)
                emit(tf, program, tensors, numbers, whole=True)
            grads = []
            if len(feeds) > len(program.fed):
                grads = tape.gradient(
                    tensors[out],
                    targets,
                    output_gradients=feeds[-1],
                    unconnected_gradients=tf.UnconnectedGradients.ZERO,
                )
            return [tf.identity(tensors[out]), *map(tf.convert_to_tensor, grads)]

        feeds = [tf.constant(recording.values[slot]) for slot in program.fed]
        calls = {"forward": feeds}
        if row.gradient:
            calls["gradient"] = [*feeds, tf.constant(seed)]
        made: Calls = {}
        for what, given in calls.items():
            types = [tf.TensorSpec(feed.shape, feed.dtype) for feed in given]
            function = tf.function(traced, input_signature=types, autograph=False)
            call = DirectCall(function.get_concrete_function(), len(program))
            made[what] = lambda call=call, given=given: call(given)
        return made

    def given(self, result: Any) -> list[Any]:
        return [np.asarray(tensor) for tensor in result]

    def empty(self) -> float:
        """Return the seconds of a call of a graph that does nothing."""
        import tensorflow as tf

        from tapegraph.lowering.direct import DirectCall

        types = [tf.TensorSpec((), tf.float32)]
        function = tf.function(tf.identity, input_signature=types, autograph=False)
        call, given = DirectCall(function.get_concrete_function(), 1), [tf.constant(1.0)]
        taken = []
        for _ in range(200):
            start = time.perf_counter()
            call(given)
            taken.append(time.perf_counter() - start)
        return float(np.median(taken))


class Torch(Library):
    """PyTorch, eagerly."""

    def made(self, row: Row, arrays: list[Array], fixed: list[Array]) -> Calls:
        import torch

        call: Any = row.theirs  # rows with a reason in its place are left out
        tensors = [torch.tensor(a, requires_grad=row.gradient) for a in arrays]
        others = [torch.tensor(a) for a in fixed]

        def forward() -> list[Any]:
            return [call(torch, *tensors, *others)]

        if not row.gradient or not row.their_gradient:
            return {"forward": forward}
        (y,) = forward()
        seed = torch.tensor(cotangent(y.shape, y.detach().numpy().dtype))

        def gradient() -> list[Any]:
            for x in tensors:
                x.grad = None
            y = call(torch, *tensors, *others)
            y.backward(seed)
            return [y, *tensors]

        return {"forward": forward, "gradient": gradient}

    def given(self, result: Any) -> list[Any]:
        y, *tensors = result
        return [y.detach().numpy(), *(x.grad.numpy() for x in tensors)]


LIBRARIES: dict[str, type[Library]] = {NATIVE: Native, GRAPH: Graph, TORCH: Torch}


def serving(name: str, threads: int) -> Library:
    """Return a library, in its process."""
    quiet()
    np.seterr(all="ignore")
    peer = {GRAPH: "tf.function", TORCH: "torch"}.get(name)
    if peer is not None:
        peers.prepare(threads, (peer,))
    return LIBRARIES[name](threads)


# In the process that measures


class Timing(NamedTuple):
    """One operation, one dtype, forward or with its gradient: seconds by library and round."""

    row: Row
    dtype: str
    what: str
    seconds: dict[str, list[float]]

    def ratio(self, ours: str) -> Spread:
        """Our time over PyTorch's."""
        return ratio(self.seconds[ours], self.seconds[TORCH])


@dataclass
class Measured:
    """What a run gave."""

    timings: list[Timing] = field(default_factory=list)
    # What has no counterpart in PyTorch, and what has no nodes; and why.
    without: dict[str, str] = field(default_factory=dict)
    not_lowered: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def ratios(self, ours: str) -> dict[tuple[str, str, str], Spread]:
        """Return the ratios of a library of ours, by label, what and dtype.

        A view in PyTorch touches no number, and takes a hundredth of the call of a graph: of those
        the graph counts with their gradient alone.
        """
        return {
            (t.row.label, t.what, t.dtype): t.ratio(ours)
            for t in self.timings
            if ours in t.seconds and not (ours == GRAPH and t.row.view and t.what == "forward")
        }

    def geometric_mean(self, ours: str) -> float:
        """Return the geometric mean of the median ratios; of none it is NaN."""
        medians = [found.median for found in self.ratios(ours).values()]
        return math.exp(sum(map(math.log, medians)) / len(medians)) if medians else math.nan


def run(
    names: Iterable[str],
    engines: Iterable[str],
    *,
    rounds: int,
    threads: int,
    warmups: int = 3,
    turn_seconds: float = 0.01,
    budget_seconds: float = 10.0,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Measured:
    """Measure operations, the libraries taking turns.

    No round of an operation after the fifth is begun once its budget is spent.
    """
    chosen, measured = set(names), Measured()
    numbers = [i for i, row in enumerate(ROWS) if not chosen or row.op in chosen]
    for row in (ROWS[i] for i in numbers):
        if isinstance(row.theirs, str):
            measured.without[row.label] = row.theirs
    numbers = [i for i in numbers if ROWS[i].label not in measured.without]
    libraries = {
        name: Process(f"{__name__}:serving", name, threads)
        for name in (*(f"tapegraph {engine}" for engine in engines), TORCH)
    }
    try:
        if GRAPH in libraries:
            empty = 1e6 * libraries[GRAPH].ask("empty")
            measured.notes.append(f"of every time in the graph, {empty:.0f} us is the call")
        for number in progress(numbers):
            for dtype in DTYPES:
                here = _prepared(libraries, number, dtype, measured)
                end = time.perf_counter() + budget_seconds
                taken: list[dict[str, dict[str, float]]] = []
                for i in range(-warmups, rounds):
                    turns = {n: lib.ask("turn", turn_seconds) for n, lib in here.items()}
                    if i >= 0:
                        taken.append(turns)
                    if i >= 4 and time.perf_counter() > end:
                        break
                for what in WHATS:
                    seconds = {n: [t[n][what] for t in taken] for n in here if what in taken[0][n]}
                    if len(seconds) > 1 and TORCH in seconds:
                        measured.timings.append(Timing(ROWS[number], dtype, what, seconds))
    finally:
        for library in libraries.values():
            library.end()
    return measured


def _prepared(
    libraries: dict[str, Process], number: int, dtype: str, measured: Measured
) -> dict[str, Process]:
    """Return the libraries that have an operation, and note where they do not agree."""
    row, found = ROWS[number], {}
    for name, library in libraries.items():
        given, reason = library.ask("prepare", number, dtype)
        if reason is None:
            found[name] = given
        else:
            measured.not_lowered[row.label] = reason
    for name in (n for n in found if n != TORCH):
        for what in (w for w in row.agrees if w in found[name] and w in found[TORCH]):
            worst = max(map(_difference, found[name][what], found[TORCH][what]))
            if not worst <= TOLERANCE[np.dtype(dtype)]:
                measured.notes.append(
                    f"{row.label}, {dtype}: the {what} of {name} and PyTorch's differ by "
                    f"{worst:.1g} of the largest number"
                )
    return {name: libraries[name] for name in found}


def _difference(a: Array, b: Array) -> float:
    if a.shape != b.shape:
        return math.inf
    scale = float(np.max(np.abs(b), initial=0.0))
    return float(np.max(np.abs(a - b), initial=0.0)) / scale if scale else float(np.abs(a).max())


def rows_of(measured: Measured, ours: str) -> list[list[str]]:
    """Return the table of one library of ours, the slowest operation first."""
    from benchmarks.report import significant

    ratios = measured.ratios(ours)
    columns = [(what, dtype) for what in WHATS for dtype in DTYPES]
    by_label: dict[str, list[float | None]] = {}
    for label in dict.fromkeys(label for label, _, _ in ratios):
        medians = [ratios.get((label, *column)) for column in columns]
        by_label[label] = [None if m is None else m.median for m in medians]
    worst = {label: max(m for m in found if m is not None) for label, found in by_label.items()}
    table = [[f"{ours} / torch", *(f"{what} {dtype}" for what, dtype in columns)]]
    for label in sorted(by_label, key=lambda label: -worst[label]):
        table.append([label, *("" if m is None else significant(m) for m in by_label[label])])
    return table


def table(measured: Measured, ours: str, *, markdown: bool = False) -> str:
    """Return the table of one library of ours with its geometric mean."""
    from benchmarks.report import as_markdown, as_text, significant

    mean = measured.geometric_mean(ours)
    slow = sum(found.median > 2 for found in measured.ratios(ours).values())
    lines = (as_markdown if markdown else as_text)(rows_of(measured, ours))
    count = len(measured.ratios(ours))
    return "\n".join(
        [*lines, "", f"geometric mean of {count}: {significant(mean)}; beyond 2: {slow}"]
    )


def remarks(measured: Measured) -> list[str]:
    """Return what is missing, and notes."""
    lines = [f"{label} has no counterpart: {why}" for label, why in measured.without.items()]
    lines += [f"{label} has no node: {why}" for label, why in measured.not_lowered.items()]
    return [f"- {line}" for line in (*lines, *measured.notes)]


def as_json(measured: Measured) -> dict[str, Any]:
    """Return everything measured, as plain data; times are in seconds."""
    ours = list(dict.fromkeys(n for t in measured.timings for n in t.seconds if n != TORCH))
    return {
        "operations": [
            {
                "op": t.row.op,
                "label": t.row.label,
                "dtype": t.dtype,
                "what": t.what,
                "rounds": len(t.seconds[TORCH]),
                "seconds": {name: spread(s)._asdict() for name, s in t.seconds.items()},
                "ratios": {n: t.ratio(n)._asdict() for n in ours if n in t.seconds},
            }
            for t in measured.timings
        ],
        "geometric_means": {name: measured.geometric_mean(name) for name in ours},
        "without_counterpart": measured.without,
        "not_lowered": measured.not_lowered,
        "notes": measured.notes,
    }
