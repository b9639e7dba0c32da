"""The calls that ``--ops`` times, of each library, in a process of its own.

``forward`` is the call alone; ``gradient`` is the call and its gradient, for a given cotangent,
with respect to every input that takes one. Natively that is an eager call, which records, and
``backward``. In the graph it is one concrete function, traced beforehand, of the nodes that a
compiled step would hold (``emit`` of the operation captured, and ``GradientTape``), whose
inputs are TensorFlow's own tensors and whose results stay there: nothing is recorded, copied or
fetched. In PyTorch it is the eager call and ``backward``. Both of ours let the allocator keep what
is freed, as the first backward and the first compiled step of a program do.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.contenders import quiet
from benchmarks.operations import ROWS, Row
from benchmarks.protocol import LONG_SECONDS, PAUSE_SECONDS, Array

NATIVE, GRAPH, TORCH = "tapegraph native", "tapegraph tensorflow", "torch"
# How many numbers of a result are compared.
SAMPLED = 4096

Calls = dict[str, Callable[[], Any]]


class Library:
    """The operations of one library, one at a time."""

    def __init__(self, threads: int, clock: str) -> None:
        self.clock = time.process_time if clock == "cpu" else time.perf_counter
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
            count, start, elapsed = 0, self.clock(), 0.0
            while elapsed < seconds:
                call()
                count += 1
                elapsed = self.clock() - start
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
    return flat[:: max(1, flat.size // SAMPLED)].astype(np.float64)


def cotangent(shape: Sequence[int], dtype: Any) -> Array:
    """Return what every library is given for the cotangent of a result."""
    return np.asarray(np.random.default_rng(1).uniform(0.5, 1.5, tuple(shape)), dtype)


class Native(Library):
    """tapegraph, eagerly."""

    def made(self, row: Row, arrays: list[Array], fixed: list[Array]) -> Calls:
        import tapegraph as tg
        from tapegraph.arrays import keep_freed_memory

        keep_freed_memory()
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
        from tapegraph.arrays import keep_freed_memory
        from tapegraph.capture import Capture
        from tapegraph.lowering.calls import DirectCall
        from tapegraph.lowering.translate import Translator

        keep_freed_memory()
        with Capture() as capture:
            inputs = [capture.input(a) for a in arrays]
            y = row.ours(tg, *inputs, *map(capture.input, fixed))
        recording = capture.recording([y])
        program = recording.program
        (out,) = program.outputs
        wanted = [next(s for s, n in enumerate(recording.nodes) if n is leaf) for leaf in inputs]
        seed = cotangent(program.shapes[out], program.dtypes[out])

        def traced(*feeds: Any) -> list[Any]:
            leaves = dict(zip(program.fed, feeds, strict=False))
            targets = [leaves[slot] for slot in wanted]
            translator = Translator(recording, whole=True)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(targets)
                translator.run(leaves)
            result, grads = translator.values[out], []
            if len(feeds) > len(program.fed):
                grads = tape.gradient(
                    result,
                    targets,
                    output_gradients=feeds[-1],
                    unconnected_gradients=tf.UnconnectedGradients.ZERO,
                )
            return [tf.identity(result), *map(tf.convert_to_tensor, grads)]

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

        from tapegraph.lowering.calls import DirectCall

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


def serving(name: str, threads: int, clock: str) -> Library:
    """Return a library, in its process."""
    quiet()
    np.seterr(all="ignore")
    peer = {GRAPH: "tf.function", TORCH: "torch"}.get(name)
    if peer is not None:
        peers.prepare(threads, (peer,))
    return LIBRARIES[name](threads, clock)
