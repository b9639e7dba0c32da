"""Jacobians and Hessians in compiled functions: one sweep for all rows."""

from __future__ import annotations

import cProfile
import pstats

import numpy as np
import pytest

import tapegraph as tg
from tests.quick import thinned

X = np.array([0.3, -0.7, 1.1])
A = np.linspace(-1.0, 1.0, 12).reshape(4, 3)


def wave(steps):
    """The energy of a ring of masses with springs that are not linear, after some steps."""

    def energy(start):
        u, v = start, tg.tanh(0.1 * start)
        for _ in range(steps):
            bent = np.concatenate([u[1:], u[:1]]) - 2 * u + np.concatenate([u[-1:], u[:-1]])
            v = v + 0.1 * bent * (1.0 - 0.01 * u * u)
            u = u + 0.1 * v
        return tg.sum(u * u) + tg.sum(v * v)

    return energy


def rosenbrock(x):
    return tg.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def rosenbrock_hessian(x):
    H = np.diag(-400.0 * x[:-1], 1) + np.diag(-400.0 * x[:-1], -1)
    diagonal = np.zeros_like(x)
    diagonal[:-1] = 1200.0 * x[:-1] ** 2 - 400.0 * x[1:] + 2.0
    diagonal[1:] += 200.0
    return H + np.diag(diagonal)


def entries(step):
    """What one compiled function recorded, as lists of names of operations."""
    (entry,) = step._entries
    return [op.name for op in entry.trace.recording.program.ops]


def compiled(f, *args):
    """Return a compiled function after its first calls, and what its program gives."""
    step = tg.compile(lambda *given: f(*given), verify_every=None)
    for _ in range(2):
        step(*args)
    return step, np.asarray(step(*args).numpy())


FUNCTIONS = {
    "hessian": (tg.hessian(rosenbrock), X),
    "hessian of a wave": (tg.hessian(wave(6)), np.linspace(-1.0, 1.0, 7)),
    "hessian of a matrix": (tg.hessian(lambda m: tg.sum(tg.exp(m @ m))), A[:3] / 3),
    "rows": (tg.jacobian(lambda x: tg.tanh(A @ x), mode="reverse"), X),
    "matrix of rows": (tg.jacobian(lambda x: x[:, None] * tg.sin(x), mode="reverse"), X),
    "one row": (tg.jacobian(lambda x: x[:1] * x[1:2], mode="reverse"), X),
    "no row": (tg.jacobian(lambda x: x[:0] * 2.0, mode="reverse"), X),
    "a number": (tg.jacobian(lambda x: tg.sum(x**3), mode="reverse"), X),
    "what it does not depend on": (tg.jacobian(lambda x: tg.floor(x), mode="reverse"), X),
    "row by row": (tg.jacobian(lambda x: tg.cumprod(x * x + 1.0), mode="reverse"), X),
    "saved": (tg.jacobian(lambda x: tg.softmax(A @ x), mode="reverse"), X),
    "float32": (tg.hessian(rosenbrock), X.astype(np.float32)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_when_run_eagerly(name):
    f, x = FUNCTIONS[name]
    with tg.use_backend("native"):
        step, _ = compiled(f, x)
        for point in (x, x * np.asarray(0.5, x.dtype)):
            want, got = f(point), step(point).numpy()
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_array_equal(got, want)
    assert "gradient" not in entries(step)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", thinned([name for name in FUNCTIONS if "wave" not in name], 2))
def test_in_tensorflow(name, graph_backend):
    f, x = FUNCTIONS[name]
    with tg.use_backend("native"):
        want = f(x)
    with tg.use_backend(graph_backend):
        _, got = compiled(f, x)
        assert tg.last_backward().backend == graph_backend
    close = 1e-11 if x.dtype == np.float64 else 2e-4
    np.testing.assert_allclose(got, want, rtol=close, atol=close)


@pytest.fixture
def graph_backend():
    pytest.importorskip("tensorflow")
    return "tensorflow"


def test_a_closed_form():
    x = np.random.default_rng(0).normal(size=12)
    with tg.use_backend("native"):
        _, got = compiled(tg.hessian(rosenbrock), x)
    np.testing.assert_allclose(got, rosenbrock_hessian(x), rtol=1e-12, atol=1e-12)


def test_neither_entries_nor_lines_grow_with_the_rows():
    counts = []
    with tg.use_backend("native"):
        for n in (12, 40):  # of very few rows memory is given out in another order
            x = np.linspace(0.1, 1.0, n)
            step, _ = compiled(tg.hessian(wave(3)), x)
            counts.append((len(entries(step)), len(step.source().splitlines())))
    assert counts[0] == counts[1]


def test_making_a_plan_takes_calls_in_proportion_to_its_length():
    calls = []
    with tg.use_backend("native"):
        for steps in (2, 4):
            step = tg.compile(tg.hessian(wave(steps)))
            x = np.linspace(0.1, 1.0, 4)
            step(x)
            profile = cProfile.Profile()
            profile.runcall(step, x)
            calls.append(pstats.Stats(profile).total_calls)
    assert calls[1] < 2.1 * calls[0]


@pytest.mark.thorough
def test_a_long_plan_raises_what_a_rule_raises():
    def vjp(g, y, x):
        if not armed:
            return g
        raise OSError("no gradient today")

    armed = []
    same = tg.defop(lambda x: x * 1.0, vjp=vjp, jvp=lambda t, y, x: t[0], name="long_plan_same")
    with tg.use_backend("native"):
        step, _ = compiled(tg.jacobian(lambda x: same(wave(30)(x) * x), mode="reverse"), X)
        armed.append(1)
        with pytest.raises(OSError, match="no gradient today"):
            step(X)
        armed.clear()
        np.testing.assert_allclose(step(X).numpy().shape, (3, 3))


def test_zeros_absorb_infinities_in_rows():
    x = np.array([-1.0, 0.0, 4.0])
    with tg.use_backend("native"), np.errstate(invalid="ignore", divide="ignore"):
        root = tg.jacobian(lambda x: tg.where(x > 0, tg.sqrt(x), 0.0), mode="reverse")
        step, got = compiled(root, np.abs(x) + 1.0)
        np.testing.assert_array_equal(got, np.diag(0.5 / np.sqrt(np.abs(x) + 1.0)))
        np.testing.assert_array_equal(step(x).numpy(), np.diag([0.0, 0.0, 0.25]))
        step, _ = compiled(tg.hessian(lambda x: tg.sum(tg.where(x > 0, x**1.5, 0.0))), x)
        np.testing.assert_array_equal(step(x).numpy()[2], [0.0, 0.0, 0.375])
        np.testing.assert_array_equal(step(x).numpy()[0], [0.0, 0.0, 0.0])


def test_a_plan_looks_before_what_drops_a_nan():
    def capped(x):
        rows = tg.jacobian(lambda x: tg.where(x > 0, tg.sqrt(x), 0.0), mode="reverse")(x)
        return np.fmax(rows, -1.0)

    with tg.use_backend("native"), np.errstate(all="ignore"):
        step, _ = compiled(capped, np.array([1.0, 4.0]))
        np.testing.assert_array_equal(step(np.array([0.0, 4.0])).numpy(), [[0.0, 0.0], [0.0, 0.25]])


def test_a_run_that_meets_a_nan_leaves_the_state_of_an_eager_one():
    def step(w, x):
        H = tg.hessian(lambda x: tg.sum(tg.where(x > 0, x**1.5, 0.0)))(x)
        w.assign((w + tg.sum(H, axis=0)).detach())
        return tg.sum(H)

    w, v = tg.param(np.ones(2)), tg.param(np.ones(2))
    compiled_step = tg.compile(lambda x: step(w, x))
    with tg.use_backend("native"), np.errstate(all="ignore"):
        for x in ([1.0, 4.0], [1.0, 2.0], [0.0, 9.0], [4.0, 1.0]):
            got, want = compiled_step(np.array(x)), step(v, tg.tensor(x))
            np.testing.assert_array_equal(got.numpy(), want.numpy())
            np.testing.assert_array_equal(w.data, v.data)
    assert np.isfinite(w.data).all()


def test_zeros_absorb_infinities_in_the_graph(graph_backend):
    rows = tg.jacobian(lambda x: tg.sum(x) * tg.where(x > 0, tg.log(x), 0.0), mode="reverse")
    with tg.use_backend(graph_backend), np.errstate(invalid="ignore", divide="ignore"):
        step, _ = compiled(rows, X + 1.0)
        got = step(np.array([-1.0, 0.0, 4.0])).numpy()
        assert tg.last_backward().backend == graph_backend
    want = np.zeros((3, 3))
    want[2] = np.log(4.0) + np.array([0.0, 0.0, 0.75])
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_newton_step():
    w = tg.param(np.array([-0.5, 0.8, 0.2]))
    start = w.data.copy()

    @tg.compile
    def newton(scale):
        with tg.no_grad():
            H = tg.hessian(rosenbrock)(w)
        loss = rosenbrock(w) * scale
        w.zero_grad()
        loss.backward()
        w.assign((w - tg.solve(H, w.grad)).detach())
        return H

    with tg.use_backend("native"):
        for _ in range(4):
            grad = tg.grad(rosenbrock)(start)
            np.testing.assert_allclose(newton(1.0).data, rosenbrock_hessian(start), rtol=1e-12)
            start = start - np.linalg.solve(rosenbrock_hessian(start), grad)
            np.testing.assert_allclose(w.data, start, rtol=1e-9)


def test_a_second_look_at_a_gradient_behind_a_jacobian():
    w = tg.param(np.array([0.0, 1.0, 4.0]))

    @tg.compile
    def step(x):
        H = tg.hessian(lambda x: tg.sum(x**3))(x)
        loss = tg.sum(H @ tg.where(w > 0, tg.sqrt(w), 0.0))
        w.zero_grad()
        loss.backward()
        return loss

    with tg.use_backend("native"), np.errstate(all="ignore"):
        for _ in range(4):
            step(X)
            np.testing.assert_allclose(w.grad, [0.0, 3 * X[1], 6 * X[2] / 4], rtol=1e-12)


@pytest.mark.parametrize("backend", ["native", "tensorflow"])
def test_a_gradient_through_a_hessian_is_right(backend):
    if backend != "native":
        pytest.importorskip("tensorflow")
    w = tg.param(np.array([1.0, 2.0, 3.0]))

    @tg.compile
    def step(x):
        H = tg.hessian(lambda v: tg.sum((w * v) ** 3))(x)  # diagonal: 6 w^3 v
        loss = tg.sum(H * H)
        w.zero_grad()
        loss.backward()
        return loss

    with tg.use_backend(backend):
        for _ in range(4):
            loss = step(X)
            np.testing.assert_allclose(loss.item(), np.sum((6 * w.data**3 * X) ** 2), rtol=1e-12)
            np.testing.assert_allclose(w.grad, 216 * w.data**5 * X**2, rtol=1e-12)


def test_a_users_rule_is_given_arrays_of_one_row():
    seen = []

    def vjp(g, y, x):
        seen.append((type(g), g.shape))
        return g * 3.0 * x**2

    cube = tg.defop(lambda x: x**3, vjp=vjp, name="compiled_rows_cube")
    with tg.use_backend("native"):
        _, got = compiled(tg.jacobian(lambda x: tg.sin(cube(x)), mode="reverse"), X)
    np.testing.assert_allclose(got, np.diag(np.cos(X**3) * 3 * X**2), rtol=1e-12)
    assert set(seen) == {(np.ndarray, (3,))}


def test_blocks_of_several_arguments():
    def f(p, y):
        return tg.sum(p["a"] ** 2 * p["b"]) * y**2

    x, b, y = X, 2.0, 3.0
    step = tg.compile(lambda a: tg.hessian(f, (0, 1))({"a": a, "b": b}, y))
    with tg.use_backend("native"):
        for _ in range(3):
            found = step(x)
            want = tg.hessian(f, (0, 1))({"a": x, "b": b}, y)
            np.testing.assert_array_equal(found[0]["a"][0]["a"].numpy(), want[0]["a"][0]["a"])
            np.testing.assert_array_equal(found[0]["a"][1].numpy(), want[0]["a"][1])
            np.testing.assert_allclose(found[1][1].numpy(), 2 * np.sum(x**2) * b)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("make", [tg.grad, tg.value_and_grad, tg.elementwise_grad, tg.hessian])
@pytest.mark.parametrize("given", [X, tg.tensor(X), 0.5], ids=["array", "tensor", "number"])
def test_a_compiled_derivative_gives_numbers_for_numbers(make, given):
    f = make(lambda x: tg.sum(x**3))
    step = tg.compile(f)
    for _ in range(5):
        for got, want in zip(pair(step(given)), pair(f(given)), strict=True):
            assert type(got) is type(want)
            np.testing.assert_allclose(got, want, rtol=1e-12)
    assert step.traces == 1

    class Model:
        slope = tg.compile(make(lambda self, x: tg.sum(x**3), argnums=1))

    assert [type(x) for x in pair(Model().slope(given))] == [type(x) for x in pair(f(given))]


def pair(result):
    return result if isinstance(result, tuple) else (result,)


def test_a_callable_object_without_a_hash_is_no_derivative():
    class Halved:
        __hash__ = None

        def __call__(self, x):
            return x / 2.0

    assert type(tg.compile(Halved())(X)) is tg.Tensor


def test_a_scan_of_a_compiled_derivative_gives_arrays():
    step = tg.compile(tg.value_and_grad(lambda x: tg.sum(x**3)))
    for rows in (A, A + 1.0):
        values, slopes = step.scan(rows)
        assert (type(values), type(slopes)) == (np.ndarray, np.ndarray)
        np.testing.assert_allclose(values, np.sum(rows**3, 1), rtol=1e-12)
        np.testing.assert_allclose(slopes, 3.0 * rows**2, rtol=1e-12)


def test_scipy_minimises_a_compiled_function():
    minimize = pytest.importorskip("scipy.optimize").minimize
    objective = tg.compile(tg.value_and_grad(rosenbrock))
    hessian = tg.compile(tg.hessian(rosenbrock))
    for method, more in {"L-BFGS-B": {}, "SLSQP": {}, "trust-exact": {"hess": hessian}}.items():
        found = minimize(objective, np.zeros(4), jac=True, method=method, tol=1e-9, **more)
        np.testing.assert_allclose(found.x, np.ones(4), atol=1e-4)
    assert (objective.traces, hessian.traces) == (1, 1)


def test_what_a_compiled_derivative_gives_is_the_callers():
    given = np.linspace(0.0, 1.0, 5000)
    kept = tg.tensor(np.ones(5000))
    step = tg.compile(tg.value_and_grad(lambda x: (tg.sum(x * x), kept), has_aux=True))
    with tg.use_backend("native"):
        for _ in range(5):
            (_, aux), slope = step(given)
            np.testing.assert_array_equal(slope, 2.0 * given)
            aux[:] = slope[:] = np.nan
    assert not np.isnan(kept.data).any()
    assert given[-1] == 1.0


CHOSEN = {
    "jvp": (lambda f: lambda x: tg.jvp(f, (x,), (np.ones(3),))[1], 1),
    "jacfwd": (lambda f: lambda x: tg.sum(tg.jacfwd(f)(x), axis=1), 1),
    "hvp": (lambda f: lambda x: tg.hvp(lambda x: tg.sum(f(x)), (x,), (np.ones(3),)), 2),
    "scan": (
        lambda f: (
            lambda x: tg.scan(lambda c, _: (c, tg.jvp(f, (c,), (np.ones(3),))[1]), x, length=2)[1][
                1
            ]
        ),
        1,
    ),
}


@pytest.mark.one_in(2, of="tensorflow")
@pytest.mark.parametrize("derivative", CHOSEN)
def test_a_choice_in_forward_mode_is_made_in_every_run(derivative, backend):
    """Several calls have the same signs, so that traces agree; later calls have others."""
    of, order = CHOSEN[derivative]
    step = tg.compile(of(lambda x: np.where(x > 0.0, x**2, x**3)))
    for signs in ([1, 1, 1], [1, 1, 1], [1, 1, 1], [-1, 1, 1], [-1, -1, 1], [1, -1, -1]):
        x = np.array([0.5, 1.0, 2.0]) * signs
        expected = np.where(x > 0, 2 * x, 3 * x**2) if order == 1 else np.where(x > 0, 2.0, 6 * x)
        np.testing.assert_allclose(tg.tensor(step(x)).data, expected, rtol=1e-14)


def test_numbers_of_a_dual_do_not_leave_a_compiled_step():
    step = tg.compile(lambda x: tg.jvp(lambda x: x * len(np.flatnonzero(x)), (x,), (x,))[1])
    with pytest.raises(tg.ConcretizationError, match="which differ from run to run"):
        step(X)


SPECTRAL = {
    "eigvalsh": lambda a: np.linalg.eigvalsh(a)[1],
    "eigh": lambda a: np.linalg.eigh(a)[0][1],
    "eigvals": lambda a: np.max(np.real(np.linalg.eigvals(a))),
    "svd": lambda a: np.linalg.svd(a)[1][0],
    "norm": lambda a: np.linalg.norm(a, 2),
    "nuclear": lambda a: np.linalg.norm(a, "nuc") / 2,
}


@pytest.mark.parametrize("name", SPECTRAL)
@pytest.mark.one_in(11)
def test_hessians_of_spectra(name, backend):
    """The eigenvalues are ``m + r`` and ``m - r``, of opposite signs; only r is not linear."""
    f = lambda x: SPECTRAL[name](np.stack([x[:2], x[1:]]))  # noqa: E731
    second = {
        "hessian": tg.compile(tg.hessian(f)),
        "jacrev twice": tg.compile(tg.jacrev(tg.jacrev(f))),
        "jacfwd of jacrev": tg.compile(tg.jacfwd(tg.jacrev(f))),
        "jacrev of jacfwd": tg.compile(tg.jacrev(tg.jacfwd(f))),
    }
    examples = tg.compile(tg.vmap(tg.hessian(f)))
    turn = np.array([[0.5, 0.0, -0.5], [0.0, 1.0, 0.0]])
    for x in (np.array([1.0, 2.0, 0.3]), np.array([0.4, -1.5, 0.2])):
        d, b = turn @ x
        of_r = np.array([[b * b, -d * b], [-d * b, d * d]]) / np.hypot(d, b) ** 3
        expected = turn.T @ of_r @ turn
        for way, step in second.items():
            np.testing.assert_allclose(tg.tensor(step(x)).data, expected, 1e-9, 1e-9, err_msg=way)
        found = tg.tensor(examples(np.stack([x, 2 * x]))).data
        np.testing.assert_allclose(found, [expected, expected / 2], 1e-9, 1e-9)
