"""Steps compiled under a strategy: workers take the steps of one process with the whole batch."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import tapegraph as tg
from tests.distributed.ranks import ENGINES, TENSORFLOW, W, X, Y, needs_tensorflow, results

ROOT = Path(__file__).parents[2]
KINDS = {
    "momentum": lambda params: tg.SGD(params, 0.1, momentum=0.9),
    "adam": lambda params: tg.Adam(params, 0.05),
}


# ------------------------------------------------------------------ workers as threads


def train(comm, kind="adam", clip=None, steps=10, first=0.0):
    """Train on every second sample, or without a communicator on all."""
    w, b = tg.param(W + (comm.rank * first if comm else 0.0), name="w"), tg.param(np.zeros(3))
    optimizer = KINDS[kind]([w, b])
    part = slice(comm.rank, None, 2) if comm else slice(None)

    @tg.compile(**({"strategy": comm} if comm else {}))
    def step(x, y):
        loss = tg.mean((tg.tanh(x @ w) + b - y) ** 2)
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            tg.clip_grad_norm([w, b], clip)
            tg.clip_grad_value([b], clip / 10)
        optimizer.step()
        return loss

    losses = [step(X[part], Y[part]).item() for _ in range(steps)]
    return w.data.copy(), b.data.copy(), losses, comm and comm.calls


@pytest.mark.parametrize("engine", ENGINES, ids=str)
@pytest.mark.parametrize(
    ("kind", "clip"), [pytest.param("momentum", None, marks=pytest.mark.thorough), ("adam", 0.3)]
)
@pytest.mark.one_in(2)
def test_workers_take_the_steps_of_the_whole_batch(kind, clip, engine):
    w, b, losses, _ = train(None, kind, clip)
    both = results(lambda comm: train(comm, kind, clip, first=1.0), backend=engine)
    for got in both:
        np.testing.assert_allclose(got[0], w, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(got[1], b, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.mean([got[2] for got in both], axis=0), losses, rtol=1e-12)
    # An exchange a step, two more where there is clipping before, and one to compare optimizers.
    assert both[0][3] == 1 + 10 * (1 if clip is None else 3)


def game(comm, by_hand):
    """Two optimizers that take turns."""
    p, q = tg.param([0.5, -0.5], name="p"), tg.param([1.0, 2.0 + comm.rank], name="q")
    optimizers = [tg.SGD([p], 0.1), tg.Adam([q], 0.1)]
    parallels = (
        [tg.distributed.DataParallel(o, comm) for o in optimizers] if by_hand else optimizers
    )
    met = []

    @tg.compile(**({} if by_hand else {"strategy": comm}))
    def step(x, turn):
        loss = tg.sum(p * q * x) * (1 - 2 * turn)
        parallels[turn].zero_grad()
        loss.backward()
        try:
            parallels[turn].step()
        except Exception as error:
            met.append(error)
        return loss

    losses = [step(1.0 + comm.rank, i % 2).item() for i in range(12)]
    return p.data.copy(), q.data.copy(), losses, met


def test_optimizers_are_found_as_they_step():
    """From the first call on, workers hold what `DataParallel` gives them before."""
    expected = results(lambda comm: game(comm, by_hand=True))
    for got, want in zip(results(lambda comm: game(comm, by_hand=False)), expected, strict=True):
        np.testing.assert_array_equal(got[0], want[0])
        np.testing.assert_array_equal(got[1], want[1])
        assert (got[2], got[3]) == (want[2], [])


class Mirror:
    """A worker whose only other is alike."""

    rank, size = 0, 2

    def Allreduce(self, send, receive):
        receive[...] = 2 * send

    def Bcast(self, array, root=0):
        pass


def noisy(**options):
    tg.random.seed(1)
    w, v = tg.param([1.0, -2.0]), tg.param([0.5, 0.25])
    optimizers = [tg.Adam([w], 0.1), tg.Adam([v], 0.1)]

    @tg.compile(**options)
    def step(scale):
        loss = tg.sum((tg.random.normal(2) * w * v - scale) ** 2)
        loss.backward()  # gradients add up
        for optimizer in optimizers:
            optimizer.step()
        return loss

    losses = [step(0.1 * i).item() for i in range(6)]
    return losses, w.data.tolist(), v.data.tolist(), w.grad.tolist()


def test_a_call_in_which_something_is_met_leaves_nothing_behind():
    with tg.use_backend("native"):
        assert noisy(strategy=Mirror()) == noisy()


def test_methods_share_by_instance():
    def work(comm):
        class Model:
            def __init__(self):
                self.w = tg.param([1.0 + comm.rank])
                self.optimizer = tg.SGD([self.w], 0.5)

            @tg.compile(strategy=comm)
            def step(self, x):
                self.optimizer.zero_grad()
                tg.sum(self.w * x).backward()
                self.optimizer.step()

        models = [Model(), Model()]
        for model in models:
            for _ in range(3):
                model.step(2.0 * comm.rank)
        return [model.w.item() for model in models]

    assert results(work) == [[-0.5, -0.5]] * 2


def simplest(comm):
    """Return a parameter, and a compiled step of one optimizer that moves it."""
    w = tg.param([1.0])
    optimizer = tg.SGD([w], 0.5)

    @tg.compile(strategy=comm)
    def step(x):
        optimizer.zero_grad()
        tg.sum(w * x).backward()
        optimizer.step()

    return w, step


def test_later_calls_may_be_eager():
    def work(comm):
        w, step = simplest(comm)
        with tg.compile_disabled(), pytest.raises(RuntimeError, match="a call that is not comp"):
            step(1.0)
        step(1.0 + comm.rank)
        with tg.compile_disabled():
            step(1.0 + comm.rank)
        return w.item()

    assert results(work) == [-0.5, -0.5]


def by_hand(w, optimizer):
    with tg.no_grad():
        w.assign(w - 0.1 * w.grad)


def made_inside(w, optimizer):
    tg.SGD([w], 0.1).step()


def both(w, optimizer):
    optimizer.step()
    with tg.no_grad():
        w.assign(w * 0.5)


@pytest.mark.parametrize("hand", [False, True], ids=["optimizer", "by hand"])
def test_numbers_of_values(hand):
    def work(comm):
        v = tg.Value(1.0 + comm.rank)
        optimizer = tg.SGD([v], 0.1)

        @tg.compile(strategy=comm)
        def step(x):
            v.grad = 0.0
            (v * v * x).backward()
            if hand:
                v.data -= 0.1 * v.grad
            else:
                optimizer.step()

        if hand:
            with pytest.raises(RuntimeError, match="changes a parameter without an optimizer"):
                step(1.0)
            return v.data
        for _ in range(5):
            step(1.0 + comm.rank)
        return v.data

    np.testing.assert_allclose(results(work), [1.0, 2.0] if hand else [0.7**5] * 2)


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (by_hand, "changes the parameter 'w' without an optimizer; expected the same change"),
        (both, "changes the parameter 'w' without an optimizer"),
        (made_inside, "the first step of SGD it was made in; expected optimizers that all"),
    ],
)
def test_what_would_differ_between_workers_is_refused(update, message):
    def work(comm):
        w, v = tg.param([1.0], name="w"), tg.param([2.0])
        optimizer = tg.SGD([v], 0.1)

        @tg.compile(strategy=comm)
        def step():
            tg.sum(w * v * (1.0 + comm.rank)).backward()
            update(w, optimizer)

        with pytest.raises(RuntimeError, match=message):
            step()
        return w.item(), w.grad, optimizer.steps

    assert results(work) == [(1.0, None, 0)] * 2


def test_a_step_is_no_part_of_another_program():
    def work(comm):
        w, step = simplest(comm)
        with pytest.raises(RuntimeError, match="Pass the strategy to the outermost function"):
            tg.compile(lambda x: step(x))(1.0)
        again = tg.compile(step, max_traces=2)  # it stays one of all workers
        for _ in range(3):
            again(1.0 + comm.rank)
        return w.item()

    assert results(work) == [1.0 - 3 * 0.75] * 2


def test_other_parameters_are_refused_on_every_worker():
    def work(comm):
        w = tg.param(np.ones(2 + comm.rank), name="w")
        optimizer = tg.SGD([w], 0.5)

        @tg.compile(strategy=comm)
        def step():
            tg.sum(w).backward()
            optimizer.step()

        with pytest.raises(ValueError, match=r"parameter 'w' of shape \(3,\) .* on rank 1, and pa"):
            step()
        return w.data.tolist(), w.grad

    assert results(work) == [([1.0, 1.0], None), ([1.0, 1.0, 1.0], None)]


# ------------------------------------------------------------------ strategies


@needs_tensorflow
def test_a_strategy_of_one_replica_changes_nothing():
    import tensorflow as tf

    for make in (tf.distribute.MirroredStrategy, lambda: tf.distribute.OneDeviceStrategy("cpu:0")):
        for strategy in (make(), make):
            step = tg.compile(lambda x: x * 2.0, strategy=strategy)
            assert type(step) is type(tg.compile(lambda x: x))
            assert step(3.0).item() == 6.0


@needs_tensorflow
def test_other_strategies_are_refused():
    import tensorflow as tf

    def refused(kind, message, strategy):
        with pytest.raises(kind, match=message):
            tg.compile(lambda x: x, strategy=strategy)

    central = tf.distribute.experimental.CentralStorageStrategy()
    said = r"received CentralStorageStrategy.*; expected tf.distribute.MultiWorkerMirroredStrategy"
    refused(TypeError, said, central)
    refused(TypeError, "received int 2 without rank, .*; expected a communicator .* strategy", 2)
    refused(TypeError, "received str 'workers'; expected tf.dist", lambda: "workers")
    refused(RuntimeError, "^of its own$", raising(RuntimeError("of its own")))
    late = RuntimeError("Collective ops must be configured at program startup")
    refused(RuntimeError, "made after TensorFlow's first operation.*Make it first", raising(late))


@pytest.mark.skipif(TENSORFLOW, reason="TensorFlow is here")
def test_without_tensorflow_it_says_what_to_install():
    with pytest.raises(RuntimeError, match=r"pip install \"tensorflow>=2\.18\""):
        tg.compile(lambda x: x, strategy=lambda: None)


def raising(error):
    def make():
        raise error

    return make


@pytest.mark.thorough
@needs_tensorflow
def test_several_replicas_in_a_process_are_refused(run_python):
    out = run_python(
        """
        import tensorflow as tf
        import tapegraph as tg
        cpu = tf.config.list_physical_devices("CPU")[0]
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
        try:
            tg.compile(lambda x: x, strategy=tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]))
        except ValueError as error:
            print(error)
        """
    )
    assert (
        "MirroredStrategy with 2 replicas in this process; expected one replica in each"
        in out.stdout
    ), out


@pytest.mark.thorough
@needs_tensorflow
def test_a_strategy_that_is_made_too_late(run_python):
    """With workers' addresses TensorFlow refuses; these are the words that it does so in."""
    alone = {"cluster": {"worker": ["127.0.0.1:9"]}, "task": {"type": "worker", "index": 0}}
    out = run_python(
        """
        import tensorflow as tf
        import tapegraph as tg
        tf.constant(1.0)
        try:
            tg.compile(lambda x: x, strategy=tf.distribute.MultiWorkerMirroredStrategy)
        except RuntimeError as error:
            print(error)
        """,
        TF_CONFIG=json.dumps(alone),
    )
    said = "the strategy is made after TensorFlow's first operation (Collective ops"
    assert said in out.stdout, out


MERGED = {"Add": np.add, "Max": np.maximum, "Min": np.minimum, "Mul": np.multiply}


@needs_tensorflow
def test_numbers_add_up_and_bits_arrive_by_the_collective_of_tensorflow(monkeypatch):
    """Threads stand in for what it asks of the network; --thorough has processes."""
    import tensorflow as tf

    from tapegraph.lowering.collectives import Workers

    here = threading.local()

    def collective(*, input, group_size, group_key, instance_key, merge_op, final_op, **_):
        assert (group_size, final_op) == (2, "Id")
        arrays = here.comm._all((group_key, instance_key), input.numpy())
        return tf.constant(MERGED[merge_op](*arrays))

    monkeypatch.setattr(tf.raw_ops, "CollectiveReduceV2", collective)
    sent = np.array([1.5, -0.0, np.nan], np.float32), np.arange(-2, 3, dtype=np.int8)

    def work(comm):
        here.comm = comm
        workers = Workers(comm.rank, comm.size, "/device:CPU:0")
        total = np.empty_like(X)
        workers.Allreduce(X * (-3.0 if comm.rank else 2.0), total)
        arrived = [a.copy() if comm.rank else np.full_like(a, 7) for a in sent]
        for array in arrived:
            workers.Bcast(array, root=1)
        return total, *arrived

    for total, *arrived in results(work):
        np.testing.assert_array_equal(total, X * 2.0 + X * -3.0)
        assert [a.tobytes() for a in arrived] == [a.tobytes() for a in sent]


# ------------------------------------------------------------------ workers as processes

START = """
import os
import signal
import sys
import time

import numpy as np
import tensorflow as tf

import tapegraph as tg
from tapegraph.lowering import collectives

tg.set_backend("tensorflow")
strategy = tf.distribute.MultiWorkerMirroredStrategy()
number = int(sys.argv[1])
X = np.random.default_rng(0).normal(size=(20, 6))
Y = np.tanh(X @ np.ones((6, 4)))
"""

TRAINS = (
    START
    + """
KINDS = {
    "adam": lambda params: tg.Adam(params, 0.05),
    "momentum": lambda params: tg.SGD(params, 0.1, momentum=0.9),
}


def train(kind, options, masked):
    w = tg.param(np.full((6, 4), 0.1 + (number if options else 0)), name="w")
    b = tg.param(np.full(4, 0.5), name="b")
    optimizer = KINDS[kind]([w, b])

    @tg.compile(**options)
    def step(x, y, z):
        loss = tg.mean((tg.tanh(x @ w) - y) ** 2)
        loss += tg.mean((tg.where(z > 0, tg.sqrt(z * b), b) - 1.0) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    part = slice(number, None, 2) if options else slice(None)
    for i in range(10):
        z = np.abs(X[:, :4]) + 0.1
        if masked and i == 5:
            z[1] = 0.0  # in the second worker's part: 0 * inf in its gradient
        step(X[part], Y[part], z[part])
    return np.concatenate([w.data.ravel(), b.data]), step.explain()


for kind in KINDS:
    for masked in (True, False):
        with tg.use_backend("native"):
            one, _ = train(kind, {}, masked)
        two, said = train(kind, {"strategy": strategy}, masked)
        error = abs(one - two).max()
        assert np.isfinite(one).all() and error <= 1e-12, (kind, masked, error)
        assert "ran in tensorflow" in said, said
print("alike", flush=True)
"""
)

# `DataParallel` over the same workers, with parts of 13 and 7 samples.
WEIGHS = (
    START
    + """
def train(comm, compiled):
    w = tg.param(np.full((6, 4), 0.1 + number), name="w", dtype="float32")
    b = tg.param(np.float64(-0.0 if number == 0 else 1.0), name="b")
    optimizer = tg.Adam([w, b], 0.05)
    parallel = tg.distributed.DataParallel(optimizer, comm, check_every=3) if comm else optimizer
    sent = np.signbit(b.data)
    if comm:
        assert (parallel.rank, parallel.size) == (number, 2)
    part = [slice(13), slice(13, 20)][number] if comm else slice(20)

    def step(x, y):
        loss = tg.mean((tg.tanh(x @ w) - y) ** 2) + b * b
        optimizer.zero_grad()
        loss.backward()
        parallel.step(*([len(x)] if comm else []))

    run = tg.compile(step) if compiled else step
    for _ in range(8):
        run(X[part], Y[part])
    return sent, np.append(w.data.ravel(), b.data)


number, own = 0, number
expected = train(None, False)
number = own
for compiled in (False, True):
    for backend in ("native", "tensorflow", ["native", "tensorflow"][number]):
        tg.set_backend(backend)
        sent, got = train(strategy, compiled)
        assert sent and abs(got - expected[1]).max() < 1e-6, (compiled, backend, sent)
print("alike", flush=True)
"""
)

# The second worker ends, or is late, or has other parameters.
ENDS = (
    START
    + """
if sys.argv[2] == "is late":
    collectives.TIMEOUT = 4.0
w = tg.param(np.ones(2 + number * (sys.argv[2] == "differs")), name="w")
optimizer = tg.SGD([w], 0.1)


@tg.compile(strategy=strategy)
def step():
    optimizer.zero_grad()
    tg.sum(w * w).backward()
    optimizer.step()


for i in range(20):
    if i == 5 and number == 1:
        if sys.argv[2] == "raises":
            raise ValueError("this worker has met bad data")
        if sys.argv[2] == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(9)
    before = w.data.copy(), optimizer.steps
    try:
        step()
    finally:
        now = w.data.copy(), optimizer.steps
        if i == 5:
            print("as before", np.array_equal(before[0], now[0]) and before[1] == now[1])
print("went on", flush=True)
"""
)


def cluster(tmp_path, program, *arguments, timeout=90):
    """Run a program as two workers; return the status of each, and what it printed."""
    script = tmp_path / "script.py"
    script.write_text(program)
    with ExitStack() as taken:
        sockets = [taken.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    settings = {"PYTHONPATH": str(ROOT), "TF_NUM_INTRAOP_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    workers = []
    for number in range(2):
        task = {"type": "worker", "index": number}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        command = [sys.executable, str(script), str(number), *arguments]
        with (tmp_path / f"worker{number}.txt").open("w") as output:
            how = {"stdout": output, "stderr": subprocess.STDOUT}
            how["env"] = {**os.environ, **settings, "TF_CONFIG": config}
            workers.append(subprocess.Popen(command, **how))
    end = time.monotonic() + timeout
    try:
        for worker in workers:
            worker.wait(max(end - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        pytest.fail("the workers did not end: " + str(outputs(tmp_path)))
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return [worker.returncode for worker in workers], outputs(tmp_path)


def outputs(tmp_path):
    return [(tmp_path / f"worker{number}.txt").read_text() for number in range(2)]


@pytest.mark.thorough
@needs_tensorflow
def test_two_workers_are_one_with_the_whole_batch(tmp_path):
    statuses, out = cluster(tmp_path, TRAINS)
    assert statuses == [0, 0], out
    assert all("alike" in said for said in out), out


@pytest.mark.thorough
@needs_tensorflow
def test_optimizers_by_hand_over_a_strategy(tmp_path):
    statuses, out = cluster(tmp_path, WEIGHS)
    assert statuses == [0, 0], out
    assert all("alike" in said for said in out), out


@pytest.mark.thorough
@needs_tensorflow
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", "ConnectionError: all_reduce: the all-reduce over 2 workers failed"),
        ("is killed", "ConnectionError: all_reduce: the all-reduce over 2 workers failed"),
        ("is late", r"ConnectionError: all_reduce: .* \(?[Cc]ollective has timed out"),
        ("differs", r"ValueError: .*parameter 'w' of shape \(3,\) and dtype float64 on rank 1"),
    ],
)
def test_one_worker_ends_the_others(tmp_path, how, said):
    """TensorFlow hears of an end within some ten seconds."""
    statuses, out = cluster(tmp_path, ENDS, how)
    assert 0 not in statuses
    assert "went on" not in out[0] + out[1]
    assert re.search(said, out[0]), out
    assert how == "differs" or "as before True" in out[0], out
