"""`DataParallel`: ranks with parts of a batch take the steps of one rank with all of it."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import tapegraph as tg
from tests.distributed.ranks import (
    ENGINES,
    Comm,
    Threads,
    W,
    X,
    Y,
    needs_tensorflow,
    on_ranks,
    results,
)

B = np.random.default_rng(1).normal(size=3)
PLACES = [0, 7, 12]  # where the ranks' uneven parts begin and end
eager_and_compiled = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])


@pytest.fixture(autouse=True)
def hook(monkeypatch):
    """Put the excepthook back."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


def alone():
    return Comm(Threads(1), 0)


def part(comm, *arrays):
    begin, end = PLACES[comm.rank : comm.rank + 2] if comm.size == 2 else (0, 12)
    return [a[begin:end] for a in arrays]


def train(comm, steps=6, compiled=False, kind=tg.Adam, loss=None, clip=None, dtype=float):
    """Train on a rank's part; return parameters, state, and losses."""
    w = tg.param(W.astype(dtype) + comm.rank, name="w")  # rank 0's count
    b = tg.param(B, name="b")
    optimizer = kind([w, b], lr=0.05)
    parallel = tg.distributed.DataParallel(optimizer, comm, check_every=2)
    x, y = part(comm, X, Y)

    def step(x, y):
        error = loss(w, b, x, y) if loss else tg.mean((tg.tanh(x @ w) + b - y) ** 2)
        parallel.zero_grad()
        error.backward()
        if clip is None:
            parallel.step(weight=len(x))
        else:
            parallel.all_reduce(len(x))
            tg.clip_grad_norm([w, b], clip)
            optimizer.step()
        return error

    run = tg.compile(step) if compiled else step
    losses = [run(x, y).item() for _ in range(steps)]
    state = {k: v.copy() for k, v in optimizer.state_dict()["state"]["w"].items()}
    return {"w": w.data.copy(), "b": b.data.copy(), "losses": losses, **state, "step": run}


def assert_as_one(of_ranks, one, tolerance=1e-12):
    """Ranks hold the same bits, and one rank's numbers but for the order of sums."""
    for name in set(one) - {"losses", "step"}:
        for got in of_ranks:
            np.testing.assert_allclose(got[name], one[name], rtol=tolerance, atol=tolerance)
    mean = np.average([got["losses"] for got in of_ranks], axis=0, weights=np.diff(PLACES))
    np.testing.assert_allclose(mean, one["losses"], rtol=tolerance)


@eager_and_compiled
@pytest.mark.parametrize("engine", ENGINES, ids=str)
def test_uneven_parts_give_the_steps_of_the_whole_batch(engine, compiled):
    one = train(alone())
    both = results(lambda comm: (train(comm, compiled=compiled), comm.calls), backend=engine)
    assert_as_one([got for got, _ in both], one)
    assert [calls for _, calls in both] == [7, 7]  # one to compare the ranks, and one a step
    if engine == "native":
        assert both[0][0]["w"].tobytes() == both[1][0]["w"].tobytes()
    if compiled and engine == "tensorflow":
        assert "ran in tensorflow" in both[0][0]["step"].explain()


@eager_and_compiled
def test_clipping_between_sees_the_whole_batch(compiled):
    both = results(lambda comm: train(comm, compiled=compiled, clip=0.1, kind=tg.SGD))
    assert_as_one(both, train(alone(), clip=0.1, kind=tg.SGD))


@eager_and_compiled
def test_types_travel_in_the_widest(compiled):
    both = results(lambda comm: train(comm, compiled=compiled, dtype=np.float32))
    assert both[0]["w"].dtype == np.float32
    assert_as_one(both, train(alone(), dtype=np.float32), 1e-4)


@eager_and_compiled
def test_complex_parameters_are_averaged_by_their_parts(compiled):
    rng = np.random.default_rng(0)
    a = rng.normal(size=(6, 2)) + 1j * rng.normal(size=(6, 2))
    b = rng.normal(size=6) + 1j * rng.normal(size=6)

    def trained(comm):
        z, scale = tg.param(np.full(2, 1.0 + comm.rank * 1j)), tg.param(np.float32([1.0]))
        optimizer = tg.distributed.DataParallel(tg.Adam([z, scale], lr=0.1), comm, check_every=2)
        part = slice(comm.rank, None, comm.size)

        def step():
            optimizer.zero_grad()
            tg.mean(tg.abs(a[part] @ (z * scale) - b[part]) ** 2).backward()
            optimizer.step()

        run = tg.compile(step) if compiled else step
        for _ in range(6):
            run()
        return z.numpy(), scale.numpy()

    both = results(trained)
    for got in both:
        for found, want in zip(got, trained(alone()), strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-5)


@eager_and_compiled
def test_a_gradient_of_rows_is_made_dense(compiled):
    places = np.array([0, 3, 3, 1, 0, 2, 3, 1, 0, 4, 4, 2])

    def loss(w, b, x, y):
        rows = places[: len(x)] if len(x) != 5 else places[7:]
        return tg.mean((tg.gather(w, rows) + b - y) ** 2)

    both = results(lambda comm: train(comm, compiled=compiled, loss=loss, kind=tg.SGD))
    assert_as_one(both, train(alone(), loss=loss, kind=tg.SGD))


@eager_and_compiled
def test_values_are_averaged_too(compiled):
    def work(comm):
        a, b = tg.Value(2.0 + comm.rank, label="a"), tg.Value(1.0)
        parallel = tg.distributed.DataParallel(tg.SGD([a, b], 0.1), comm, check_every=1)
        scale = 1.0 + comm.rank

        def step(scale):
            parallel.zero_grad()
            (a * b * scale).backward()
            parallel.step()

        run = tg.compile(step) if compiled else step
        for _ in range(5):
            run(scale)
        return a.data, b.data

    a, b = 2.0, 1.0
    for _ in range(5):
        a, b = a - 0.1 * 1.5 * b, b - 0.1 * 1.5 * a
    np.testing.assert_allclose(results(work), [(a, b)] * 2, rtol=1e-14)


# ------------------------------------------------------------------ what runs twice, is sent once


@needs_tensorflow
@pytest.mark.parametrize("engine", ["tensorflow", ("native", "tensorflow")], ids=str)
def test_a_nan_that_is_a_zero_keeps_the_ranks_in_step(engine):
    """Rank 1 has a masked number that is none: its graph does not stand, and NumPy's plan runs."""

    def loss(w, b, x, y):
        z = b * b * (np.nan if len(x) == 5 else 1.0)
        return tg.mean((x @ w - y) ** 2) + tg.sum(tg.where(z > 0, tg.sqrt(z), 0.0)) + tg.sum(b * b)

    both = results(lambda comm: (train(comm, 9, True, loss=loss), comm.calls), backend=engine)
    eagerly = results(lambda comm: train(comm, 9, loss=loss))  # nothing is lost
    assert np.isfinite(eagerly[0]["b"]).all()
    for (got, calls), expected in zip(both, eagerly, strict=True):
        np.testing.assert_allclose(got["w"], expected["w"], rtol=1e-12)
        np.testing.assert_allclose(got["b"], expected["b"], rtol=1e-12)
        assert calls == 10


def two_players(comm, compiled, masked=None, steps=9):
    """Two optimizers in one step, each with an all-reduce; a NaN to look at again in one."""
    p, q = tg.param([0.5, -0.5], name="p"), tg.param([1.0, 2.0], name="q")
    first = tg.distributed.DataParallel(tg.SGD([p], 0.1), comm, check_every=2)
    second = tg.distributed.DataParallel(tg.SGD([q], 0.1), comm, check_every=3)
    on = {w: np.nan if masked == w and comm.rank else 1.0 for w in "pq"}
    share = 1.0 + comm.rank

    def root(x, name):
        z = (x * x) * on[name]
        return tg.sum(tg.where(z > 0, tg.sqrt(z), 0.0))

    def step(share):
        loss = tg.sum(p * q) * share + root(p, "p")
        first.zero_grad()
        loss.backward()
        first.step()
        loss = -tg.sum(p * q) * share + root(q, "q")
        second.zero_grad()
        loss.backward()
        second.step()
        return loss

    run = tg.compile(step) if compiled else step
    for _ in range(steps):
        run(share)
    return p.data.copy(), q.data.copy()


@pytest.mark.parametrize(
    "masked", ["p", *(pytest.param(name, marks=pytest.mark.thorough) for name in (None, "q"))]
)
@pytest.mark.parametrize("engine", ENGINES, ids=str)
@pytest.mark.one_in(2)
def test_two_exchanges_in_one_step(engine, masked):
    expected = results(lambda comm: two_players(comm, False, masked))
    got = results(lambda comm: two_players(comm, True, masked), backend=engine)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    np.testing.assert_array_equal(expected[0], expected[1])


@needs_tensorflow
def test_an_engine_that_fails_after_the_exchange_sends_nothing_twice(monkeypatch):
    from tapegraph.lowering.steps import step_graph

    outputs = step_graph.StepGraph.__call__
    failed = []

    def fails(self, feeds, changes):
        if not failed:
            failed.append(1)

            def broken(outputs):
                yield from ()
                raise RuntimeError("a kernel failed")

            return outputs(self, feeds, broken)
        return outputs(self, feeds, changes)

    monkeypatch.setattr(step_graph.StepGraph, "__call__", fails)
    expected = results(lambda comm: train(comm))
    with pytest.warns(RuntimeWarning, match="a kernel failed"):
        both = results(lambda comm: (train(comm, compiled=True), comm.calls), backend="tensorflow")
    for (got, calls), want in zip(both, expected, strict=True):
        np.testing.assert_allclose(got["w"], want["w"], rtol=1e-12)
        assert calls == 7


@pytest.mark.parametrize("engine", ENGINES[:2], ids=str)
def test_a_run_that_fails_after_the_exchange_sends_nothing_twice(engine):
    comm = alone()
    w = tg.param([1.0, 2.0])
    parallel = tg.distributed.DataParallel(tg.SGD([w], 0.5), comm)

    @tg.compile
    def step(x, places):
        parallel.zero_grad()
        tg.sum(w * x).backward()
        parallel.step()
        return tg.gather(w, places)

    with tg.use_backend(engine):
        for _ in range(4):
            step(1.0, np.array([0, 1]))
        calls, before = comm.calls, w.numpy()
        with pytest.raises(IndexError):
            step(1.0, np.array([0, 7]))
    assert comm.calls == calls + 1
    np.testing.assert_array_equal(w.numpy(), before)


def test_a_loss_of_before_an_exchange_is_differentiated_after_it():
    """As two players do who share one forward: the second part of the step goes through it."""

    def work(comm, compiled):
        p, q = tg.param([0.5, -0.5]), tg.param([1.0, 2.0])
        first = tg.distributed.DataParallel(tg.SGD([p], 0.1), comm)
        second = tg.distributed.DataParallel(tg.Adam([q], 0.1), comm)

        def step(x):
            hidden = tg.tanh(q * x)
            one, two = tg.sum(p * hidden), tg.sum(hidden**3)
            first.zero_grad()
            one.backward()
            first.step()
            second.zero_grad()
            two.backward()
            second.step()
            return one, two

        run = tg.compile(step) if compiled else step
        losses = [[loss.item() for loss in run(1.0 + comm.rank)] for _ in range(6)]
        assert not compiled or run.source().count("def plan") == 3
        return p.numpy(), q.numpy(), losses

    for got, want in zip(
        results(lambda comm: work(comm, True)), results(lambda comm: work(comm, False)), strict=True
    ):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_new_trace_on_one_rank_alone():
    """The last part of an epoch is short on one rank: a real call there, a replay elsewhere."""

    def work(comm, compiled):
        w = tg.param(W)
        parallel = tg.distributed.DataParallel(tg.Adam([w], 0.05), comm, check_every=1)

        def step(x, y):
            loss = tg.mean((x @ w - y) ** 2)
            parallel.zero_grad()
            loss.backward()
            parallel.step(len(x))

        run = tg.compile(step) if compiled else step
        for n in [5, 5, 5, 4, 5, 5, 4, 4, 4, 5]:
            run(*(a[: n if comm.rank else 5] for a in part(comm, X, Y)))
        return w.data.copy()

    expected = results(lambda comm: work(comm, False))
    np.testing.assert_array_equal(results(lambda comm: work(comm, True)), expected)


def test_a_float_that_is_fed_on_one_rank_alone_makes_no_exchange_more():
    def work(comm, compiled):
        held, w = SimpleNamespace(k=1.0), tg.param(W)
        parallel = tg.distributed.DataParallel(tg.SGD([w], 0.05), comm)

        def step(x, y):
            loss = held.k * tg.mean((x @ w - y) ** 2)
            parallel.zero_grad()
            loss.backward()
            parallel.step(len(x))

        run = tg.compile(step) if compiled else step
        for i in range(9):
            held.k = 1.0 - 0.1 * i * comm.rank
            run(*part(comm, X, Y))
            assert type(held.k) is float
        return w.data.copy(), comm.calls

    expected = results(lambda comm: work(comm, False))
    for got, want in zip(results(lambda comm: work(comm, True)), expected, strict=True):
        np.testing.assert_array_equal(got[0], want[0])
        assert got[1] == want[1]


# ------------------------------------------------------------------ gradients that are not there


def branches(comm, parts, compiled=False):
    """Steps in which rank r uses the parameters parts[r][i] of three."""
    params = {name: tg.param([1.0, 2.0]) for name in "abc"}
    optimizer = tg.SGD(params, 0.5, weight_decay=0.1)
    parallel = tg.distributed.DataParallel(optimizer, comm)

    def step(used, x):
        for p in params.values():
            p.grad = None
        sum(tg.sum(params[name] * x) for name in used).backward()
        parallel.step()

    run = tg.compile(step) if compiled else step
    for used in parts[comm.rank]:
        run(used, np.array([1.0, 3.0]))
    return {name: p.data.tolist() for name, p in params.items()}, params["c"].grad


def test_none_counts_as_zero_where_another_rank_has_one():
    both = results(lambda comm: branches(comm, [["a"], ["ab"]]))
    new = lambda g: [1 - 0.5 * (g + 0.1), 2 - 0.5 * (3 * g + 0.2)]  # noqa: E731
    for params, grad in both:
        np.testing.assert_allclose(params["a"], new(1.0))
        np.testing.assert_allclose(params["b"], new(0.5))
        assert params["c"] == [1.0, 2.0]  # nobody's: left alone, by weight decay too
        assert grad is None


def test_compiled_branches_of_the_ranks_may_differ():
    parts = [["a"] * 6, ["ab"] * 6]
    expected = results(lambda comm: branches(comm, parts))
    assert results(lambda comm: branches(comm, parts, True)) == expected


def test_a_gradient_that_no_rank_had_when_it_was_recorded():
    out = on_ranks(lambda comm: branches(comm, [["a"] * 3, ["a", "a", "ab"]], True))
    assert isinstance(out[0], RuntimeError)  # whose step was recorded without one of b
    said = "a gradient of 'b' on any rank, and none when recorded; expected"
    assert said in str(out[0])


# ------------------------------------------------------------------ weights


def test_a_rank_without_data_counts_for_nothing():
    def work(comm):
        w = tg.param([1.0, 2.0])
        parallel = tg.distributed.DataParallel(tg.SGD([w], 0.5), comm)
        (tg.sum(w) * (np.nan if comm.rank else 1.0)).backward()  # the mean of nothing
        parallel.step(weight=1 - comm.rank)
        return w.data.tolist()

    assert results(work) == [[0.5, 1.5]] * 2


def test_a_weight_may_be_a_tensor_or_an_argument():
    def work(comm):
        w = tg.param(1.0)
        parallel = tg.distributed.DataParallel(tg.SGD([w], 1.0), comm)

        @tg.compile
        def step(x, weight, mask):
            parallel.zero_grad()
            (w * x).backward()
            parallel.step(weight)
            (w * x).backward()
            parallel.step(tg.sum(mask))

        for i in range(5):
            step(1.0 + comm.rank, 0.5 + comm.rank * i, np.array([1.0, comm.rank]))
        return w.item()

    w = 1.0
    for i in range(5):
        first = (0.5 + 2 * (0.5 + i)) / (1.0 + i)
        w -= first
        w -= ((first + 1) + 2 * (first + 2)) / 3
    np.testing.assert_allclose(results(work), [w, w])


@pytest.mark.parametrize(
    ("weight", "error", "message"),
    [
        (-1, ValueError, r"the weight -1.0 on rank 0; expected a finite number, not negative"),
        (np.nan, ValueError, r"the weight nan on rank 0"),
        (0, RuntimeError, r"the weight 0 on every rank; expected one above 0"),
        ("2", TypeError, r"all_reduce: received str '2' for 'weight'; expected a number"),
        (tg.tensor([1.0, 2.0]), ValueError, r"a weight of shape \(2,\); expected one number"),
    ],
    ids=["negative", "nan", "zero", "text", "vector"],
)
def test_weights_that_are_none(weight, error, message):
    w = tg.param(1.0)
    parallel = tg.distributed.DataParallel(tg.SGD([w], 1.0), alone())
    (w * 2.0).backward()
    with pytest.raises(error, match=message):
        parallel.step(weight)
    assert (w.item(), float(w.grad)) == (1.0, 2.0)


# ------------------------------------------------------------------ what fails


class Broken(Comm):
    """A communicator whose network fails at one of its calls."""

    fails_at = 0

    def Allreduce(self, send, receive):
        if self.calls + 1 == self.fails_at:
            self.calls += 1
            raise ConnectionError("the network is down")
        super().Allreduce(send, receive)


@pytest.mark.parametrize("engine", ENGINES[:2], ids=str)
@eager_and_compiled
def test_an_exchange_that_fails_changes_nothing(engine, compiled):
    comm = Broken(Threads(1), 0)
    w = tg.param(W, name="w")
    optimizer = tg.Adam([w], 0.1)
    parallel = tg.distributed.DataParallel(optimizer, comm)

    def step(x, y):
        parallel.zero_grad()
        tg.mean((x @ w - y) ** 2).backward()
        parallel.step()

    run = tg.compile(step) if compiled else step
    with tg.use_backend(engine):
        for _ in range(3):
            run(X, Y)
        before = optimizer.state_dict(), w.data.copy(), w.grad.copy()
        comm.fails_at = comm.calls + 1
        with pytest.raises(ConnectionError, match="the network is down"):
            run(X + 1, Y)
        assert comm.calls == comm.fails_at
        after = optimizer.state_dict(), w.data, w.grad
        np.testing.assert_equal(after[:2], before[:2])
        if compiled:  # eagerly backward() has its own effect, and is done
            np.testing.assert_equal(after[2], before[2])
        run(X, Y)
        assert optimizer.steps == 4


def test_a_rule_that_fails_leaves_the_gradients_of_the_rank():
    class Refuses(tg.Optimizer):
        def update(self, p, g, state, lr):
            raise ArithmeticError("no")

    def work(comm):
        w = tg.param(1.0)
        parallel = tg.distributed.DataParallel(Refuses([w], 0.1), comm)
        (w * (1.0 + comm.rank)).backward()
        with pytest.raises(ArithmeticError):
            parallel.step()
        return float(w.grad)

    assert results(work) == [1.0, 2.0]


DIFFERENT = {
    "shapes": (
        lambda rank: tg.SGD({"w": tg.param(np.ones((2, 3 + rank)))}, 0.1),
        r"parameter 'w' of shape \(2, 4\) and dtype float64 on rank 1, and "
        r"parameter 'w' of shape \(2, 3\) and dtype float64 on rank 0",
    ),
    "names": (
        lambda rank: tg.SGD({"wv"[rank]: tg.param(1.0)}, 0.1),
        r"parameter 'v' of shape \(\) and dtype float64 on rank 1, and parameter 'w'",
    ),
    "dtypes": (
        lambda rank: tg.SGD({"w": tg.param(1.0, dtype=["f4", "f8"][rank])}, 0.1),
        r"dtype float64 on rank 1, and parameter 'w' of shape \(\) and dtype float32 on rank 0",
    ),
    "rates": (lambda rank: tg.SGD([tg.param(1.0)], 0.1 + rank), r"'lr': \[1.1\].* on rank 1"),
    "options": (
        lambda rank: tg.Adam([tg.param(1.0)], betas=(0.9, 0.9 + rank / 100)),
        r"0.91.* on rank 1",
    ),
    "optimizers": (
        lambda rank: [tg.SGD, tg.RMSprop][rank]([tg.param(1.0)], 0.1),
        r"RMSprop with .* on rank 1, and SGD with .* on rank 0",
    ),
    "counts": (
        lambda rank: tg.SGD([tg.param(1.0) for _ in range(1 + rank)], 0.1),
        r"2 parameters on rank 1, and 1 parameter on rank 0; expected the same on every rank",
    ),
    "fewer": (
        lambda rank: tg.Adam({name: tg.param(1.0) for name in "abc"[: 3 - rank]}),
        r"received 2 parameters on rank 1, and 3 parameters on rank 0; expected",
    ),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_other_parameters_are_refused_on_every_rank(what):
    make, message = DIFFERENT[what]

    def work(comm):
        with pytest.raises(ValueError, match=message):
            tg.distributed.DataParallel(make(comm.rank), comm)

    results(work)


@eager_and_compiled
def test_ranks_that_have_drifted_apart_are_found(compiled):
    def work(comm, far):
        w, b = tg.param(W, name="w"), tg.param(B, name="b")
        parallel = tg.distributed.DataParallel(tg.SGD([w, b], 0.1), comm, check_every=3)

        def step():
            parallel.zero_grad()
            tg.sum(w * w + b).backward()
            parallel.step()

        run = tg.compile(step) if compiled else step
        run()
        if comm.rank == 1:
            b.assign(b.data + far * np.abs(b.data).max())
        run()
        try:
            run()
        except RuntimeError as error:
            return str(error)
        parallel.broadcast()
        return b.data.tolist()

    for said in results(lambda comm: work(comm, 1e-6)):
        assert re.search(r"parameter 'b' on rank 1 with other numbers than on rank 0", said)
        assert "broadcast()" in said
    one, two = results(lambda comm: work(comm, 1e-13))  # as far as engines round apart
    assert one == two


class Nothing:
    rank, size = 0, 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([], None), TypeError, "DataParallel: received list.*; expected an optimizer"),
        ((None, Nothing()), TypeError, "without Allreduce, Bcast; expected a communicator"),
        ((None, alone(), 0), ValueError, "check_every=0; expected a number of steps from 1"),
    ],
    ids=["optimizer", "communicator", "check_every"],
)
def test_arguments_are_checked(arguments, error, message):
    optimizer, comm, *check = arguments
    optimizer = tg.SGD([tg.param(1.0)], 0.1) if optimizer is None else optimizer
    with pytest.raises(error, match=message):
        tg.distributed.DataParallel(optimizer, comm, **({"check_every": check[0]} if check else {}))


class WithoutLibrary:
    """As mpi4py is where it finds no MPI."""

    @property
    def MPI(self):
        raise RuntimeError("cannot load MPI library")


@pytest.mark.parametrize("mpi4py", [None, WithoutLibrary()])
def test_without_mpi_it_says_what_to_install(monkeypatch, mpi4py):
    monkeypatch.setitem(sys.modules, "mpi4py", mpi4py)
    with pytest.raises(ImportError, match=r"pip install mpi4py mpich"):
        tg.distributed.DataParallel(tg.SGD([tg.param(1.0)], 0.1))


def test_what_is_for_outside_is_refused_in_a_step():
    w = tg.param(1.0)
    parallel = tg.distributed.DataParallel(tg.SGD([w], 0.1), alone())
    for name, call in {
        "broadcast": parallel.broadcast,
        "DataParallel": lambda: tg.distributed.DataParallel(tg.SGD([w], 0.1), alone()),
    }.items():
        with pytest.raises(RuntimeError, match=f"{name}: a compiled step cannot do this"):
            tg.compile(call)()


def test_an_uncaught_exception_aborts_after_its_traceback(capsys):
    class Job(Comm):
        def Abort(self, status):
            print("abort", status, file=sys.stderr)

    def work(comm):
        return tg.distributed.DataParallel(tg.SGD([tg.param(1.0)], 0.1), comm)

    made = results(lambda comm: work(Job(comm.job, comm.rank)))
    assert repr(made[1]) == "<DataParallel of SGD, rank 1 of 2>"
    try:
        raise ValueError("of this rank")
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)
    said = capsys.readouterr().err
    assert said.index("ValueError: of this rank") < said.index("abort 1")


def test_a_hook_that_is_set_later_runs_before_the_abort(capsys):
    class Job(Comm):
        def Abort(self, status):
            print("abort", status, file=sys.stderr)

    def work(comm):
        w = tg.param(1.0)
        parallel = tg.distributed.DataParallel(tg.SGD([w], 0.1), Job(comm.job, comm.rank))
        comm.job.barrier.wait()
        if comm.rank == 0:
            before = sys.excepthook

            def report(*error):
                before(*error)
                print("reported", file=sys.stderr)

            sys.excepthook = report
        comm.job.barrier.wait()
        (w * 2.0).backward()
        parallel.step()

    results(work)
    sys.excepthook(ValueError, ValueError("of this rank"), None)
    said = capsys.readouterr().err
    assert said.index("of this rank") < said.index("reported") < said.index("abort 1")
    assert said.count("reported") == said.count("of this rank") == 1


def test_anomaly_on_one_rank_averages_as_often_as_the_others_do():
    def job(comm):
        w = tg.param(np.array([1.0, 2.0]))
        parallel = tg.distributed.DataParallel(tg.SGD([w], lr=0.1), comm)

        @tg.compile
        def step(x):
            loss = tg.sum(w * x)
            parallel.zero_grad()
            loss.backward()
            parallel.step()
            return tg.log(tg.sum(w) * x)  # after the average: not finite on rank 0 alone

        for _ in range(4):
            step(np.ones(2))
        calls = comm.calls
        given = np.array([1.0, float(comm.rank)])
        if comm.rank:
            step(given)
        else:
            with tg.anomaly(), pytest.raises(FloatingPointError, match="log"):
                step(given)
        return comm.calls - calls

    assert results(job) == [1, 1]
