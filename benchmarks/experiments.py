"""What was tried, measured again: ``python -m benchmarks.experiments`` prints every figure quoted
in ``docs/performance-history.md``.

Each experiment times the ways of doing one thing in turns, and prints the median milliseconds and
the ratio to the way that the library takes, named first.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.contenders import load
from benchmarks.protocol import ratio

Ways = dict[str, Callable[[], object]]


def timed(
    ways: Ways, rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return the median milliseconds of each way, in turns after three warm-ups.

    The turns are in random order: who follows a way that empties the caches would pay for it.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    shuffler = random.Random(0)
    for turn in range(rounds + 3):
        for name, run in shuffler.sample(list(ways.items()), len(ways)):
            start = clock()
            run()
            if turn >= 3:
                seconds[name].append(clock() - start)
    return {name: float(np.median(s)) * 1e3 for name, s in seconds.items()}


def block_program():
    """Return the recording of one step of the transformer workload, and its seeds."""
    import tapegraph as tg
    from benchmarks.workloads import transformer
    from tapegraph.recording.recorder import Recorder

    recorded = []
    history = Recorder.graph

    def keep(here, ys):
        recorded.append(history(ys))
        return recorded[-1]

    tg.set_backend("native")
    Recorder.graph = keep
    try:
        transformer.with_tapegraph(transformer.problem()).step()
    finally:
        Recorder.graph = history
    recording = recorded[0].recording
    return recording, [np.ones_like(value) for value in recording.seeds()]


def compiled_step(workload: str):
    """Return a workload's compiled step, its graph and that with XLA, and what they are fed."""
    import importlib

    import tapegraph as tg
    from tapegraph.lowering.steps.step import Step

    ran = []
    run = Step.run
    Step.run = lambda step, values, *given: ran.append((step, values)) or run(step, values, *given)
    module = importlib.import_module(f"benchmarks.workloads.{workload}")
    try:
        with tg.use_backend("tensorflow"):
            trainer = module.CONTENDERS["tapegraph compiled"](module.problem())
            for _ in range(3):
                trainer.step()
    finally:
        Step.run = run
    ((step, values),) = ran
    return step.graphs.graph, step.graphs.with_xla, step.feeds(values)


def in_fresh_process(call: str, **environment: str) -> None:
    """Call a function of this module in a new interpreter."""
    code = f"from benchmarks import experiments; experiments.{call}"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **environment})


def gelu() -> Ways:
    """Tanh form, its sigmoid form, and both in blocks that fit the cache (1M float32)."""
    x = np.random.default_rng(0).normal(size=(8, 128, 1024)).astype(np.float32)
    scale, cubic = np.float32(np.sqrt(2 / np.pi)), np.float32(0.044715)

    def by_tanh(x):
        u = x * x * cubic
        u += 1
        u *= x
        u *= scale
        u = np.tanh(u)
        u += 1
        u *= x
        u *= 0.5
        return u

    def by_sigmoid(x):
        u = x * x
        u *= -2 * scale * cubic
        u -= 2 * scale
        u *= x
        np.minimum(u, 88, out=u)
        np.exp(u, out=u)
        u += 1
        return np.divide(x, u, out=u)

    def in_blocks(form, size=32768):
        out = np.empty_like(x)
        flat, result = x.reshape(-1), out.reshape(-1)
        for start in range(0, flat.size, size):
            result[start : start + size] = form(flat[start : start + size])
        return out

    return {
        "tanh, whole": lambda: by_tanh(x),
        "sigmoid, whole": lambda: by_sigmoid(x),
        "tanh, blocks of 32k": lambda: in_blocks(by_tanh),
        "sigmoid, blocks of 32k": lambda: in_blocks(by_sigmoid),
    }


def rows() -> Ways:
    """Add 1,024 rows of 128 float32, few of them repeated, to a table of 50,000."""
    from tapegraph import row_sparse
    from tapegraph.arrays import keep_freed_memory
    from tapegraph.row_sparse import RowSparse

    keep_freed_memory()  # as any backward does
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 50_000, 1024)
    values = rng.normal(size=(1024, 128)).astype(np.float32)
    sparse = RowSparse(ids, values, (50_000, 128))
    table = np.zeros((50_000, 128), np.float32)

    def segments():
        order = np.argsort(ids, kind="stable")
        starts = np.flatnonzero(np.diff(ids[order], prepend=-1))
        table[ids[order[starts]]] += np.add.reduceat(values[order], starts, axis=0)

    def dense():
        np.add(table, sparse.dense(), out=table)

    def sorting():
        kept, row_sparse.MAX_KEPT_BYTES = (
            row_sparse.MAX_KEPT_BYTES,
            0,
        )  # as if the table were too large
        sparse.add_to(table)
        row_sparse.MAX_KEPT_BYTES = kept

    return {
        "assigned, repeated rows in rounds": lambda: sparse.add_to(table),
        "the same, repeats found by sorting": sorting,
        "np.add.reduceat": segments,
        "np.add.at": lambda: np.add.at(table, ids, values),
        "dense gradient": dense,
    }


def squares() -> Ways:
    """Mean-square loss of 1,024 x 128 float32 and its gradient, natively."""
    import tapegraph as tg

    tg.set_backend("native")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 1024, 128)).astype(np.float32)
    leaf, target = tg.param(x), tg.tensor(y)
    return {
        "mse_loss(x, y)": lambda: tg.mse_loss(leaf, target).backward(),
        "mean((x - y)**2)": lambda: tg.mean((leaf - target) ** 2).backward(),
    }


def relu() -> Ways:
    """Set the negative ones of 131k float32 to zero, and keep NaN."""
    x = np.random.default_rng(0).normal(size=131_072).astype(np.float32)
    return {
        "np.clip(x, 0, inf)": lambda: np.clip(x, 0, np.inf),
        "np.maximum(x, 0)": lambda: np.maximum(x, 0),
        "x * (x > 0) (inf is lost)": lambda: x * (x > 0),
    }


def nan() -> Ways:
    """Look for a NaN in 400k float32."""
    x = np.random.default_rng(0).normal(size=401_408).astype(np.float32)
    return {
        "x . x": lambda: np.isnan(np.dot(x, x)),
        "sum(x)": lambda: np.isnan(np.sum(x)),
        "isnan(x).any()": lambda: np.isnan(x).any(),
    }


def stacks() -> Ways:
    """Gradient of a stack (8, 128, 256) times one matrix (256, 1024) by the matrix."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(8, 128, 256)).astype(np.float32)
    g = rng.normal(size=(8, 128, 1024)).astype(np.float32)
    return {
        "one product of all rows": lambda: a.reshape(-1, 256).T @ g.reshape(-1, 1024),
        "a product a matrix, summed": lambda: (a.swapaxes(1, 2) @ g).sum(axis=0),
    }


def graphs() -> Ways:
    """Backward of the transformer block: sweep, and graphs of it."""
    from tapegraph import fallback
    from tapegraph.lowering.backward import Graph, results_fed

    recording, seeds = block_program()
    ways: Ways = {"native sweep": lambda: fallback.gradients(recording, seeds)}
    for name, results in {
        "graph, results fed": results_fed(recording),
        "graph, forward recomputed": [],
    }.items():
        graph = Graph(recording, results=results)
        ways[name] = lambda graph=graph: graph(recording, seeds)
    return ways


def background() -> Ways:
    """Compile a graph of the transformer block and take ten steps, in turn or side by side."""
    from threading import Thread

    from benchmarks.workloads import transformer
    from tapegraph.lowering.backward import Graph, results_fed

    recording, seeds = block_program()
    results = results_fed(recording)
    step = transformer.with_tapegraph(transformer.problem()).step

    def compiled() -> None:
        Graph(recording, results=results)(recording, seeds)

    def in_turn() -> None:
        compiled()
        for _ in range(10):
            step()

    def beside() -> None:
        thread = Thread(target=compiled)
        thread.start()
        for _ in range(10):
            step()
        thread.join()

    return {"in turn": in_turn, "in a background thread": beside}


def calls() -> Ways:
    """Call a concrete function as an op or by Python: one of nothing, and tiny's compiled step."""
    import tensorflow as tf

    from tapegraph.lowering.calls import DirectCall

    nothing = DirectCall(tf.function(lambda: tf.constant(True)).get_concrete_function(), 1)
    graph, with_xla, feeds = compiled_step("tiny")
    feeds_of_xla = [*feeds, *with_xla._fed_constants]
    return {
        "nothing, as an op": lambda: nothing([]),
        "nothing, by Python": lambda: nothing.function(),
        "tiny, as an op": lambda: graph.call(feeds),
        "tiny, by Python": lambda: graph.call.function(*feeds),
        "tiny with XLA, as an op": lambda: with_xla.call(feeds_of_xla),
        "tiny with XLA, by Python": lambda: with_xla.call.function(*feeds_of_xla),
    }


def guards() -> None:
    """What it costs to see that nothing has changed of what a step sees besides its arguments."""
    import timeit

    import tapegraph as tg
    from tapegraph.compiling.guards import look

    params = [tg.param(np.ones(3)) for _ in range(20)]
    optimizer = tg.SGD(params, lr=0.1)

    def in_a_list(x):
        loss = tg.sum(sum(p * x for p in params))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    class Layer:
        def __init__(self):
            self.w, self.b, self.training = tg.param(np.ones(3)), tg.param(np.ones(3)), True

        def __call__(self, x):
            return tg.dropout(self.w * x + self.b, 0.5) if self.training else self.w * x + self.b

    layers = [Layer() for _ in range(10)]

    def in_ten_layers(x):
        for layer in layers:
            x = layer(x)
        return tg.sum(x)

    for step in (in_a_list, in_ten_layers):
        view = look(step)
        name = f"twenty parameters {step.__name__.replace('_', ' ')}"
        again = lambda: look(step, view.known)  # noqa: B023, E731
        for what, call in (("the same", view.holds), ("looked at anew", again)):
            seconds = min(timeit.repeat(call, number=20, repeat=500)) / 20
            print(f"  {name + ', ' + what:50} {seconds * 1e6:8.2f} us")


def steps() -> None:
    """The graph of a workload's compiled step, and the same compiled with XLA."""
    for workload in ("tiny", "mlp", "embedding"):
        graph, with_xla, feeds = compiled_step(workload)
        ways = {workload: graph, f"{workload}, XLA": with_xla}
        calls = {
            name: partial(graph, feeds, lambda outputs: iter(())) for name, graph in ways.items()
        }
        medians = timed(calls, 101)
        for name, ms in medians.items():
            print(f"  {name:34} {ms:8.3f} ms  {ms / medians[workload]:6.2f} x")


def given() -> Ways:
    """A compiled step in TensorFlow; a tf.function of its arrays; and of tensors that are held."""
    import tapegraph as tg

    tg.set_backend("tensorflow")
    ways: Ways = {}
    for name in ("mlp", "cnn"):
        workload = load(name)
        problem = workload.problem()
        step = workload.with_tapegraph(problem, compiled=True).step
        for _ in range(5):  # recorded, and compiled
            step()
        ways[f"{name}, compiled"] = step
        for of, held in (("arrays", False), ("tensors", True)):
            trainer = workload.with_tf_function(problem, held=held)
            ways[f"{name}, tf.function of {of}"] = trainer.step
    return ways


def plans() -> None:
    """A step natively, eager and compiled, in turns: the quotient of each turn."""
    import tapegraph as tg

    tg.set_backend("native")
    for name in ("mlp", "transformer", "cnn", "tiny", "embedding", "gpt"):
        workload = load(name)
        problem = workload.problem()
        eager, compiled = (workload.with_tapegraph(problem, compiled=c).step for c in (False, True))
        seconds: list[tuple[float, float]] = []
        for turn in range(26):
            start = time.process_time()
            eager()
            between = time.process_time()
            compiled()
            if turn >= 5:  # recorded, and made
                seconds.append((time.process_time() - between, between - start))
        low, median, high = ratio(*zip(*seconds, strict=True))
        print(f"  {name:34} {median:8.3f} of the eager step ({low:.3f} to {high:.3f})")


def products() -> Ways:
    """A step of the mlp workload, and its eight matrix products alone, all in NumPy."""
    import tapegraph as tg
    from benchmarks.workloads import mlp

    tg.set_backend("native")
    problem = mlp.problem()
    step = mlp.with_tapegraph(problem).step
    w1, _, w2, _, w3, _ = problem.weights
    x = problem.data[0]
    h1 = np.maximum(x @ w1, 0)
    h2 = np.maximum(h1 @ w2, 0)
    g3 = h2 @ w3

    def alone() -> None:
        x @ w1, h1 @ w2, h2 @ w3
        g2, g1 = g3 @ w3.T, h2 @ w2.T
        h2.T @ g3, h1.T @ g2, x.T @ g1

    return {"a step": step, "its products alone": alone}


def threads() -> Ways:
    """A step of the transformer block; gelu, softmax and their gradients on one thread or two."""
    from concurrent.futures import ThreadPoolExecutor

    import tapegraph as tg
    from benchmarks.workloads import transformer
    from tapegraph.fallback.rules import VJPS

    tg.set_backend("native")
    trainer = transformer.with_tapegraph(transformer.problem())
    recording, _ = block_program()
    pool = ThreadPoolExecutor(1)

    def in_halves(function):
        def run(*arrays, **attrs):
            half = len(arrays[0]) // 2
            rest = pool.submit(function, *(a[half:] for a in arrays), **attrs)
            first = function(*(a[:half] for a in arrays), **attrs)
            return np.concatenate([first, rest.result()])

        return run

    ops = [op for op in recording.program.ops if op.name in {"gelu", "softmax"}]
    whole = [(op, op.forward, VJPS[op.name]) for op in ops]
    halves = [(op, in_halves(run), (in_halves(rule),)) for op, run, (rule,) in whole]

    def take(ways):
        for op, run, rules in ways:
            op.forward, VJPS[op.name] = run, rules

    def step_in_halves():
        take(halves)
        trainer.step()
        take(whole)  # other experiments come after this one

    return {"one": trainer.step, "two": step_in_halves}


def descent() -> Ways:
    """Update 784 x 512 float32 parameters by SGD: whole, and in blocks that fit the cache."""
    rng = np.random.default_rng(0)
    p, g = rng.normal(size=(2, 784 * 512)).astype(np.float32)
    block = 1 << 14
    scratch = np.empty(block, np.float32)

    def in_blocks() -> None:
        for i in range(0, p.size, block):
            part, own = g[i : i + block], p[i : i + block]
            moved = np.multiply(part, 1e-6, out=scratch[: part.size])
            np.subtract(own, moved, out=own)

    return {"whole": lambda: np.subtract(p, g * 1e-6, out=p), "blocks of 16k": in_blocks}


def flat() -> Ways:
    """Adam on the 53 parameters of the gpt workload: one by one, or in one flat array each."""
    from benchmarks.workloads import gpt

    params = gpt.problem().weights
    grads, means, squares = ([np.abs(p) + 1e-3 for p in params] for _ in range(3))
    size = sum(p.size for p in params)
    p, g, m, v = (np.concatenate([a.ravel() for a in x]) for x in (params, grads, means, squares))
    one, two = np.empty((2, size), np.float32)

    def rule(p, g, m, v, one, two):  # type: ignore[no-untyped-def]
        m = np.add(np.multiply(m, 0.9, one), np.multiply(g, 0.1, two))
        np.multiply(np.multiply(g, g, two), 0.001, two)
        v = np.add(np.multiply(v, 0.999, one), two)
        np.divide(np.multiply(m, 0.01, one), np.add(np.sqrt(v, two), 1e-8, two), one)
        return np.subtract(p, one), m, v

    def one_by_one() -> None:
        for arrays in zip(params, grads, means, squares, strict=True):
            n = arrays[0].size
            spare = (x[:n].reshape(arrays[0].shape) for x in (one, two))
            rule(*arrays, *spare)

    def gathered() -> None:
        np.concatenate([a.ravel() for a in grads], out=g)
        rule(p, g, m, v, one, two)

    return {
        "one by one": one_by_one,
        "flat, gradients gathered": gathered,
        "flat, gradients there already": lambda: rule(p, g, m, v, one, two),
    }


def heads() -> Ways:
    """Attention's products (8, 4, 128, ...) of float32, on heads that lie side by side in rows."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(8, 4, 128, 128)).astype(np.float32)
    rows = rng.normal(size=(2, 8, 128, 4, 64)).astype(np.float32)
    q, k = rows.transpose(0, 1, 3, 2, 4)
    apart, side_by_side = np.empty((8, 4, 128, 64), np.float32), np.empty((8, 128, 256), np.float32)
    among = side_by_side.reshape(8, 128, 4, 64).transpose(0, 2, 1, 3)
    scores = np.empty_like(weights)

    def copied() -> None:
        np.matmul(weights, k, apart).transpose(0, 2, 1, 3).reshape(8, 128, 256)

    def laid_out() -> None:
        np.matmul(q, np.ascontiguousarray(k.swapaxes(-1, -2)), scores)

    return {
        "weights @ values, then copied": copied,
        "written where the copy would lie": lambda: np.matmul(weights, k, among),
        "queries @ keys, transposed views": lambda: np.matmul(q, k.swapaxes(-1, -2), scores),
        "keys copied transposed first": laid_out,
    }


def masks() -> Ways:
    """Keep half of 500k float32, and set the others to zero."""
    from tapegraph.ops.elementwise import select_bits

    rng = np.random.default_rng(0)
    g, mask = rng.normal(size=500_000).astype(np.float32), rng.random(500_000) < 0.5
    zero = np.zeros((), np.float32)
    return {
        "bits times mask": lambda: select_bits(g, mask),
        "np.where": lambda: np.where(mask, g, zero),
        "g * mask (NaN and inf spread)": lambda: g * mask,
    }


def images() -> Ways:
    """Relu and 2x2 max-pool of (64, 16, 24, 24) float32, forward and backward, by memory order."""
    import tapegraph as tg

    tg.set_backend("native")
    rng = np.random.default_rng(0)
    first = rng.normal(size=(64, 16, 24, 24)).astype(np.float32)
    last = np.ascontiguousarray(first.transpose(1, 2, 3, 0)).transpose(3, 0, 1, 2)

    def way(x):
        leaf = tg.param(first)
        leaf._array = x  # param copies to C order
        return lambda: tg.sum(tg.max_pool2d(tg.relu(leaf), 2)).backward()

    return {"images last in memory": way(last), "images first": way(first)}


def imports() -> None:
    """Import TensorFlow before 50 steps of the transformer block, or in a thread beside them."""
    for beside in (False, True):
        in_fresh_process(f"import_beside({beside})")


def import_beside(beside: bool) -> None:
    """Print the seconds of an import and 50 steps, and the longest wait between two steps."""
    from threading import Thread

    import tapegraph as tg
    from benchmarks.workloads import transformer

    tg.set_backend("native")
    step = transformer.with_tapegraph(transformer.problem()).step
    for _ in range(5):
        step()
    thread = Thread(target=__import__, args=("tensorflow",))
    ends = [time.perf_counter()]
    thread.start()
    if not beside:
        thread.join()
    for _ in range(50):
        step()
        ends.append(time.perf_counter())
    thread.join()
    total = time.perf_counter() - ends[0]
    name = "in a background thread" if beside else "before the steps"
    print(f"  {name:34} {total:8.2f} s   {np.diff(ends).max():8.2f} s the longest wait")


def spinning() -> None:
    """Steps of two workloads by OPENBLAS_THREAD_TIMEOUT, natively and in TensorFlow."""
    for timeout in (14, 4, 26):
        in_fresh_process(f"steps_spinning({timeout})", OPENBLAS_THREAD_TIMEOUT=str(timeout))


def steps_spinning(timeout: int) -> None:
    """Print the median milliseconds of a step of each workload on each engine."""
    import tapegraph as tg
    from benchmarks.workloads import mlp, transformer

    for workload in (mlp, transformer):
        problem = workload.problem()
        figures = []
        for engine in ("native", "tensorflow"):
            with tg.use_backend(engine):
                step = workload.with_tapegraph(problem).step
                end = time.perf_counter() + (1 if engine == "native" else 10)
                while time.perf_counter() < end:  # until the fastest graph has been found
                    step()
                (milliseconds,) = timed({"": step}, 45).values()
            figures.append(f"{engine} {milliseconds:8.3f} ms")
        name = workload.__name__.rpartition(".")[2]
        print(f"  2^{timeout:<3} {name:12} {'   '.join(figures)}")


def pages() -> None:
    """Faults and time of the native backward, with and without freed memory kept."""
    for kept in (True, False):
        in_fresh_process(f"fault_count({kept})")


def fault_count(kept: bool) -> None:
    """Print page faults and milliseconds a native backward of the transformer block."""
    from tapegraph import arrays, fallback

    arrays._kept = not kept  # already done: it is then not done again
    recording, seeds = block_program()
    fallback.gradients(recording, seeds)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    (milliseconds,) = timed({"": lambda: fallback.gradients(recording, seeds)}, 7).values()
    faults = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 10
    name = "freed memory kept" if kept else "given back"
    print(f"  {name:34} {milliseconds:8.3f} ms  {faults:8.0f} page faults")


EXPERIMENTS = {
    "gelu": gelu,
    "rows": rows,
    "squares": squares,
    "relu": relu,
    "nan": nan,
    "stacks": stacks,
    "graphs": graphs,
    "background": background,
    "calls": calls,
    "guards": guards,
    "steps": steps,
    "given": given,
    "plans": plans,
    "imports": imports,
    "products": products,
    "threads": threads,
    "descent": descent,
    "flat": flat,
    "heads": heads,
    "masks": masks,
    "images": images,
    "pages": pages,
    "spinning": spinning,
}


def main() -> int:
    p = argparse.ArgumentParser(prog="python -m benchmarks.experiments", description=__doc__)
    p.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(EXPERIMENTS)}")
    p.add_argument("--rounds", type=int, default=15, metavar="N")
    p.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="which time counts")
    options = p.parse_args()
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    if unknown := set(options.names) - set(EXPERIMENTS):
        p.error(f"no experiment named {', '.join(sorted(unknown))}")
    print(f"OPENBLAS_THREAD_TIMEOUT={os.environ.get('OPENBLAS_THREAD_TIMEOUT', '(not set)')}")
    for name in options.names or EXPERIMENTS:
        print(f"\n{name}: {EXPERIMENTS[name].__doc__}")
        try:
            ways = EXPERIMENTS[name]()
        except ModuleNotFoundError as error:
            print(f"  left out: {error}")
            continue
        if ways is not None:
            medians = timed(ways, options.rounds, clock)
            first = next(iter(medians.values()))
            for way, ms in medians.items():
                print(f"  {way:34} {ms:8.3f} ms  {ms / first:6.2f} x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
