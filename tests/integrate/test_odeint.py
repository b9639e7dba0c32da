"""`odeint` against SciPy and closed forms, its derivatives against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.loops import scan_entry

START, K = np.array([1.0, 0.5]), np.array([1.0, 0.5])
TIMES = np.linspace(0.0, 4.0, 5)
WAYS = [
    {},
    {"adjoint": True},
    {"method": "rk4", "steps": 60},
    {"method": "rk4", "steps": 60, "adjoint": True},
]


def rate(y, t, k):
    """A predator and its prey, and a force that varies with the time."""
    return np.stack([y[0] * (k[0] - y[1]) + 0.1 * np.sin(t), y[1] * (y[0] - k[1])])


def by_scipy(y, t, k):
    integrate = pytest.importorskip("scipy.integrate")
    span = (t[0], t[-1])
    options = {"t_eval": t, "rtol": 1e-12, "atol": 1e-12, "method": "DOP853"}
    return integrate.solve_ivp(lambda t, y: rate(y, t, k), span, y, **options).y.T


def loss(solver, **options):
    return lambda y, t, k: tg.sum(solver(rate, y, t, k, **options) ** 2)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("options", WAYS)
def test_states_are_scipys(options):
    found = tg.integrate.odeint(rate, START, TIMES, K, **options)
    assert type(found) is np.ndarray
    np.testing.assert_allclose(found, by_scipy(START, TIMES, K), atol=2e-7)
    falling = tg.integrate.odeint(rate, found[-1], TIMES[::-1], K, **options)
    np.testing.assert_allclose(falling[-1], START, atol=1e-6)


@pytest.mark.parametrize(
    "options", [*WAYS[:2], *(pytest.param(way, marks=pytest.mark.thorough) for way in WAYS[2:])]
)
@pytest.mark.one_in(2)
def test_gradients_by_states_times_and_arguments(options):
    found = tg.grad(loss(tg.integrate.odeint, **options), (0, 1, 2))(START, TIMES, K)
    given, h = (START, TIMES, K), 1e-5
    for i, x in enumerate(given):
        for j in range(x.size):
            moved = []
            for sign in (1, -1):
                point = list(given)
                point[i] = x + sign * h * np.eye(x.size)[j]
                moved.append(np.sum(by_scipy(*point) ** 2))
            slope = (moved[0] - moved[1]) / (2 * h)
            np.testing.assert_allclose(found[i][j], slope, rtol=2e-6, atol=2e-6)


def decay(k, **options):
    return tg.integrate.odeint(lambda y, t: -k * y, 1.0, [0.0, 0.5, 1.0], **options)[-1]


@pytest.mark.parametrize("options", [{"max_steps": 20}, {"method": "rk4", "steps": 40}])
@pytest.mark.parametrize("outer", [tg.grad, lambda f: lambda k: tg.jvp(f, (k,), (1.0,))[1]])
@pytest.mark.one_in(4, start=1)
def test_second_derivatives(options, outer):
    found = outer(tg.grad(lambda k: decay(k, **options)))(2.0)
    np.testing.assert_allclose(found, np.exp(-2.0), rtol=1e-5)


@pytest.mark.thorough
def test_tangents_and_examples():
    value, tangent = tg.jvp(decay, (2.0,), (1.0,))
    np.testing.assert_allclose([value, tangent], [np.exp(-2.0), -np.exp(-2.0)], rtol=1e-6)
    k = np.array([0.5, 1.0, 2.0])
    np.testing.assert_allclose(tg.vmap(decay)(k), np.exp(-k), rtol=1e-6)
    np.testing.assert_allclose(tg.vmap(tg.grad(decay))(k), -np.exp(-k), rtol=1e-6)


@pytest.mark.parametrize("options", [{}, pytest.param(WAYS[1], marks=pytest.mark.thorough)])
@pytest.mark.thorough
def test_more_rows_of_a_jacobian_run_no_more_loops(options, monkeypatch):
    backward, runs = scan_entry.scan_vjp, []  # of a while_loop too

    def counted(*args, **attrs):
        runs.append(1)
        return backward(*args, **attrs)

    monkeypatch.setattr(scan_entry, "scan_vjp", counted)

    def states(k):
        return tg.integrate.odeint(rate, START, TIMES, k, **options)

    counts = []
    for last in (2, 5):  # the first traces too
        before, found = len(runs), tg.jacrev(lambda k, n=last: states(k)[-n:])(K)
        counts.append(len(runs) - before)
    assert counts[0] >= counts[1]
    h = 1e-5
    for j, step in enumerate(h * np.eye(2)):
        up, down = (by_scipy(START, TIMES, K + s * step) for s in (1, -1))
        np.testing.assert_allclose(found[..., j], (up - down) / (2 * h), rtol=2e-5, atol=2e-5)


# A pendulum that hangs, and one on its head; each beside a state that moves.
PENDULUMS = [np.array([[0.0, 1.0], [-9.81, -0.2]]), np.array([[0.0, 1.0], [9.81, -0.2]])]


@pytest.mark.parametrize(
    ("linear", "near", "moves"),
    [
        (PENDULUMS[0], 0.0, True),
        pytest.param(PENDULUMS[1], 1e-9, False, marks=pytest.mark.thorough),
        pytest.param(PENDULUMS[0], 1e-9, False, marks=pytest.mark.thorough),
        pytest.param(PENDULUMS[1], 0.0, True, marks=pytest.mark.thorough),
    ],
)
def test_derivatives_of_a_solution_at_rest(linear, near, moves):
    linalg = pytest.importorskip("scipy.linalg")

    def f(y, t, force):
        pulse = force * np.where((t > 0.4) & (t < 0.6), np.sin(5 * np.pi * (t - 0.4)), 0.0)
        swing = linear[1, 0] * np.sin(y[0]) + linear[1, 1] * y[1]
        return np.stack([y[1] + pulse, swing + pulse, -0.3 * y[2] * moves])

    def after(y0, force):
        return tg.integrate.odeint(f, y0, [0.0, 1.0], force)[-1]

    rest = np.array([near, 0.0, 1.0])
    expected = linalg.expm(linear)
    by_state, by_force = tg.jacobian(after, (0, 1))(rest, 0.0)
    np.testing.assert_allclose(by_state[:2, :2], expected, rtol=1e-5, atol=1e-6)
    tangent = tg.jvp(lambda y0: after(y0, 0.0), (rest,), (np.array([1.0, 0.0, 0.0]),))[1]
    np.testing.assert_allclose(tangent[:2], expected[:, 0], rtol=1e-5, atol=1e-6)
    # The response to the pulse: an integral, by Simpson's rule.
    s = np.linspace(0.4, 0.6, 201)
    weights = np.array([1.0, *[4.0, 2.0] * 99, 4.0, 1.0]) * (s[1] - s[0]) / 3
    parts = [
        linalg.expm((1.0 - x) * linear) @ [1.0, 1.0] * np.sin(5 * np.pi * (x - 0.4)) for x in s
    ]
    np.testing.assert_allclose(by_force[:2], weights @ parts, rtol=1e-4, atol=1e-6)


def test_closed_over_parameters_and_trees():
    k = tg.param([1.0, 0.5])

    def f(state, t):
        y = rate(np.stack([state["prey"], state["hunter"][0]]), t, k)
        return {"prey": y[0], "hunter": (y[1],)}

    for options in WAYS[1:3]:
        found = tg.integrate.odeint(f, {"prey": 1.0, "hunter": (0.5,)}, TIMES, **options)
        expected = by_scipy(START, TIMES, K)
        np.testing.assert_allclose(found["prey"].data, expected[:, 0], atol=2e-7)
        tg.sum(found["hunter"][0][-1]).backward()
        h = 1e-5
        for j in range(2):
            up, down = (by_scipy(START, TIMES, K + s * h * np.eye(2)[j])[-1, 1] for s in (1, -1))
            np.testing.assert_allclose(k.grad[j], (up - down) / (2 * h), rtol=2e-6)
        tg.zero_grad([k])


TURN = np.array([[0.0, 1.0], [-1.0, 0.0]])
TURNS = {
    "an array": lambda y, t: np.stack([y[1], -y[0]]),
    "a product": lambda y, t: TURN @ y,
    "a multiple": lambda y, t: -1 * (-TURN @ y),
}


@pytest.mark.parametrize("f", TURNS.values(), ids=TURNS)
@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.one_in(10)
def test_a_list_of_numbers_is_a_vector_where_the_derivative_is_one(f, kind):
    times = [0.0, 0.5, 2.0]
    expected = np.stack([np.cos(times), -np.sin(times)], 1)
    found = tg.integrate.odeint(f, kind([1.0, 0]), times)
    assert type(found) is np.ndarray
    np.testing.assert_allclose(found, expected, atol=1e-7)
    scaled = lambda a: tg.integrate.odeint(f, kind([a, 0.0]), times)  # noqa: E731
    np.testing.assert_allclose(tg.jacobian(scaled)(3.0), expected, atol=1e-7)


def test_a_list_of_numbers_is_a_structure_where_the_derivative_is_one():
    times = [0.0, 0.5, 2.0]
    for f in (lambda y, t: [y[1], -y[0]], lambda y, t: tg.tree.map(np.negative, [-y[1], y[0]])):
        found = tg.integrate.odeint(f, [1.0, 0.0], times)
        assert type(found) is list
        np.testing.assert_allclose(found, [np.cos(times), -np.sin(times)], atol=1e-7)
    state = [1.0, np.zeros(1)]
    with pytest.raises(ValueError, match=r"structure \*; expected the structure of y0, \[\*, \*\]"):
        tg.integrate.odeint(lambda y, t: np.stack([y[1][0], -y[0]]), state, times)


def test_an_operation_without_a_tangent():
    negated = tg.defop(lambda x: -x, vjp=lambda g, y, x: -g, name="negated")
    found = tg.grad(lambda k: tg.integrate.odeint(lambda y, t: k * negated(y), 1.0, [0.0, 1.0])[-1])
    np.testing.assert_allclose(found(2.0), -np.exp(-2.0), rtol=1e-6)


def test_a_compiled_step():
    f = tg.value_and_grad(lambda k: tg.sum(tg.integrate.odeint(rate, START, TIMES, k) ** 2))
    with tg.use_backend("native"):
        step = tg.compile(f)
        for n in range(1, 4):
            value, slope = step(tg.tensor(K * (1 + 0.1 * n)))
            expected = f(tg.tensor(K * (1 + 0.1 * n)))
            np.testing.assert_allclose(value.item(), expected[0].item(), rtol=1e-12)
            np.testing.assert_allclose(slope.numpy(), expected[1].numpy(), rtol=1e-10)


def test_float32_and_one_time():
    found = tg.integrate.odeint(
        lambda y, t: -y, np.ones(2, np.float32), np.array([0.0, 1.0]), rtol=1e-4, atol=1e-4
    )
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[-1], np.exp(-1.0), rtol=1e-3)
    assert tg.integrate.odeint(lambda y, t: y, 2.0, [3.0]).tolist() == [2.0]


# ------------------------------------------------------------------ what is refused


def test_a_time_that_is_not_reached():
    with pytest.raises(RuntimeError, match=r"steps reached t=1, not the next time, t=2\. Give a"):
        tg.integrate.odeint(lambda y, t: y * y, 1.0, [0.0, 0.5, 2.0], max_steps=300)
    with tg.use_backend("native"):
        step = tg.compile(
            lambda y: tg.integrate.odeint(lambda y, t: y * y, y, [0.0, 2.0], max_steps=300)
        )
        for _ in range(4):
            assert np.isnan(step(tg.tensor(1.0)).numpy()[-1])


@pytest.mark.parametrize("adjoint", [False, True])
def test_times_that_turn_back_are_no_solution(adjoint):
    def f(y, t):
        return -y

    for turned in ([0.0, 2.0, 1.0], [0.0, -1.0, -0.5], [0.0, 1.0, -1.0]):
        with pytest.raises(ValueError, match=r"received t=.*expected times that all rise"):
            tg.integrate.odeint(f, 1.0, turned, adjoint=adjoint)
        found = tg.integrate.odeint(f, 1.0, turned, method="rk4", steps=50)
        np.testing.assert_allclose(found, np.exp(-np.array(turned)), rtol=1e-6)
    for once in ([0.0, 0.0, 1.0], [1.0, 1.0, 0.0]):
        found = tg.integrate.odeint(f, 1.0, once, adjoint=adjoint)
        np.testing.assert_allclose(found, np.exp(once[0] - np.array(once)), rtol=1e-6)
    with tg.use_backend("native"):
        step = tg.compile(lambda t: tg.integrate.odeint(f, 1.0, t, adjoint=adjoint))
        for t in ([0.0, 1.0, 2.0],) * 4 + ([0.0, 2.0, 1.0],):
            found = np.asarray(step(np.array(t)))
        np.testing.assert_allclose(found[:2], np.exp([0.0, -2.0]), rtol=1e-6)
        assert np.isnan(found[2])


@pytest.mark.parametrize("method", ["dopri5", "rk4"])
def test_times_are_finite(method):
    for t in ([0.0, np.nan, 1.0], [0.0, np.inf]):
        with pytest.raises(ValueError, match="expected finite times"):
            tg.integrate.odeint(lambda y, t: -y, 1.0, t, method=method)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_derivative_that_is_not_a_number_is_told():
    said = r"reached t=0, not the next time, t=1\. The derivative is NaN there\."
    with pytest.raises(RuntimeError, match=said):
        tg.integrate.odeint(lambda y, t: -np.sqrt(y - 1.5), 1.0, [0.0, 1.0])
    with pytest.raises(RuntimeError, match=said):
        tg.integrate.odeint(lambda y, t: -y, np.nan, [0.0, 1.0])
    with pytest.raises(RuntimeError, match=r"t=0\.5, .*The steps have shrunk to nothing"):
        tg.integrate.odeint(lambda y, t: np.sqrt(0.5 - t), 1.0, [0.0, 1.0])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: tg.integrate.odeint(lambda y, t: y, 1.0, 2.0), ValueError, "one or more times"),
        (lambda: tg.integrate.odeint(lambda y, t: y, 1j, [0.0]), TypeError, "complex numbers"),
        (
            lambda: tg.integrate.odeint(rate, START, TIMES, args=(K,)),
            TypeError,
            r"argument 'args'\. Did you mean odeint\(f, y0, t, \*args\)\?",
        ),
        (
            lambda: tg.integrate.odeint(rate, START, TIMES, K, hmax=1.0),
            TypeError,
            r"odeint: unexpected keyword argument 'hmax'\. \(at",
        ),
        (lambda: tg.integrate.odeint(lambda y, t: y, [], [0.0]), ValueError, "one number or more"),
        (lambda: tg.integrate.odeint(lambda y, t: [y], 1.0, [0.0, 1.0]), ValueError, "structure"),
        (
            lambda: tg.integrate.odeint(lambda y, t: [-y[1], y[0]], START, [0.0, 1.0]),
            ValueError,
            r"structure \[\*, \*\].*return np\.stack\(\[\.\.\.\]\)",
        ),
        (
            lambda: tg.integrate.odeint(lambda y, t: tg.stack([y, y]), 1.0, [0.0, 1.0]),
            ValueError,
            r"a derivative of shape \(2,\) for y0",
        ),
        (
            lambda: tg.integrate.odeint(lambda y, t: y, 1.0, [0.0], method="lsoda"),
            ValueError,
            '"dopri5" or "rk4"',
        ),
        (
            lambda: tg.integrate.odeint(lambda y, t: y + tg.random.normal(), 1.0, [0.0, 1.0]),
            RuntimeError,
            "draws random numbers",
        ),
    ],
)
def test_what_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_float_that_changes_in_a_compiled_step():
    def f(k):
        return tg.integrate.odeint(
            lambda y, t, k: -k * y, k, [0.0, 1.0], k, method="rk4", steps=60
        )[-1]

    with tg.use_backend("native"):
        step = tg.compile(f)
        for k in (1.0, 2.0, 3.0, 0.5, 0.25):
            np.testing.assert_allclose(step(k).item(), k * np.exp(-k), rtol=1e-5)
