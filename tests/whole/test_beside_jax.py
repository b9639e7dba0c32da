"""Programs that nest loops, branches, batches and derivatives, beside the same code in JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from optional import optional

import tapegraph as tg

jax = optional("jax")

# Decompositions have no node in TensorFlow.
pytestmark = [pytest.mark.thorough, pytest.mark.filterwarnings("ignore:.*native engine")]

rng = np.random.default_rng(0)
OURS = SimpleNamespace(
    np=np,
    **{name: getattr(tg, name) for name in ("checkpoint", "grad", "hessian", "jacobian", "jvp")},
    **{name: getattr(tg, name) for name in ("cond", "fori_loop", "logsumexp", "scan", "switch")},
    vmap=tg.vmap,
)


def theirs() -> SimpleNamespace:
    names = ("checkpoint", "grad", "hessian", "jacobian", "jvp", "vmap")
    loops = ("cond", "fori_loop", "scan", "switch")
    return SimpleNamespace(
        np=jax.numpy,
        logsumexp=jax.scipy.special.logsumexp,
        **{name: getattr(jax, name) for name in names},
        **{name: getattr(jax.lax, name) for name in loops},
    )


def kalman_filter(lib: Any, A: Any, C: Any, ys: Any) -> Any:
    np = lib.np

    def step(carry: Any, y: Any) -> Any:
        mean, covariance, likelihood = carry
        mean, covariance = A @ mean, A @ covariance @ A.T + 0.1 * np.eye(3)
        spread = C @ covariance @ C.T + 0.5 * np.eye(2)
        error = y - C @ mean
        gain = np.linalg.solve(spread, C @ covariance).T
        likelihood = likelihood - 0.5 * error @ np.linalg.solve(spread, error)
        likelihood = likelihood - 0.5 * np.linalg.slogdet(spread)[1]
        return (mean + gain @ error, covariance - gain @ spread @ gain.T, likelihood), mean

    (_, _, likelihood), means = lib.scan(step, (np.zeros(3), np.eye(3), 0.0), ys)
    return likelihood + np.sum(np.sin(means))


def hidden_markov_model(lib: Any, transitions: Any, emissions: Any) -> Any:
    log_a = transitions - lib.logsumexp(transitions, axis=1, keepdims=True)
    log_b = emissions - lib.logsumexp(emissions, axis=1, keepdims=True)

    def step(alpha: Any, seen: Any) -> Any:
        return lib.logsumexp(alpha[:, None] + log_a, axis=0) + log_b[:, seen], None

    alpha, _ = lib.scan(step, log_b[:, 0], np.array([3, 2, 1, 4, 4, 0]))
    return lib.logsumexp(alpha, axis=0)


def learning_to_learn(lib: Any, w: Any, xs: Any, ys: Any) -> Any:
    np = lib.np

    def loss(w: Any, x: Any, y: Any) -> Any:
        return np.mean((np.tanh(x @ w) - y) ** 2)

    def adapted(x: Any, y: Any) -> Any:
        return loss(lib.fori_loop(0, 3, lambda i, w: w - 0.1 * lib.grad(loss)(w, x, y), w), x, y)

    return np.mean(lib.vmap(adapted)(xs, ys))


def hyperparameter(lib: Any, penalty: Any, x: Any, y: Any) -> Any:
    np = lib.np

    def training(w: Any) -> Any:
        return np.mean((x @ w - y) ** 2) + np.exp(penalty) * np.sum(w**2)

    def step(carry: Any, _: Any) -> Any:
        w, velocity = carry
        velocity = 0.9 * velocity - 0.05 * lib.grad(training)(w)
        return (w + velocity, velocity), None

    (w, _), _ = lib.scan(step, (np.zeros(4), np.zeros(4)), None, length=15)
    return np.mean((x @ w - 1.1 * y) ** 2)


def branches_in_a_loop_in_a_batch(lib: Any, starts: Any, rows: Any) -> Any:
    np = lib.np

    def one(x: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            carry = lib.cond(
                np.sum(carry) > 0, lambda c: np.sin(c) + row, lambda c: c * c - 0.5 * row, carry
            )
            return carry, np.max(carry)

        end, tops = lib.scan(step, x, rows)
        return np.sum(end * end) + np.sum(tops)

    return np.sum(lib.vmap(one)(starts))


def laplacian_in_a_loss(lib: Any, w: Any, v: Any, points: Any) -> Any:
    np = lib.np

    def laplacian(x: Any) -> Any:
        return np.trace(lib.hessian(lambda x: np.sum(np.tanh(x @ w) @ v))(x))

    return np.mean((lib.vmap(laplacian)(points) - 1.0) ** 2)


def third_derivatives(lib: Any, x: Any, v: Any) -> Any:
    np = lib.np
    slope = lib.grad(lambda x: np.sum(np.exp(np.sin(x)) * np.cumsum(x)))

    def moved(x: Any) -> Any:
        return lib.jvp(slope, (x,), (v,))[1]

    return np.sum(moved(x) * slope(x)) + np.sum(lib.jvp(moved, (x,), (v,))[1])


def loops_in_loops_backwards(lib: Any, rows: Any, w: Any) -> Any:
    np = lib.np

    def outer(carry: Any, row: Any) -> Any:
        def inner(carry: Any, x: Any) -> Any:
            carry = np.sin(carry * x + row)
            return carry, {"carry": carry, "sum": (np.sum(carry),)}

        return lib.scan(inner, np.tanh(carry @ w), row, reverse=True)

    end, stacked = lib.scan(outer, np.zeros(3), rows, reverse=True)
    return np.sum(end) + np.sum(stacked["carry"] ** 2) + np.prod(stacked["sum"][0][0])


def switches_and_checkpoints(lib: Any, x: Any) -> Any:
    np = lib.np
    logistic = lib.checkpoint(lambda c: 3.2 * c * (1 - c))
    functions = [np.sin, lambda c: c * c, lambda c: logistic(1 / (1 + np.exp(-c)))]

    def step(carry: Any, index: Any) -> Any:
        return lib.switch(index, functions, carry), carry

    end, stacked = lib.scan(step, x, np.array([0, 1, 2, 1, 0]))
    return np.sum(end * np.arange(6.0)) + np.sum(stacked * stacked[::-1])


def decompositions_in_a_batch(lib: Any, xs: Any, w: Any) -> Any:
    np = lib.np

    def one(x: Any) -> Any:
        matrix = np.outer(x, x) + 2.0 * np.eye(3) + w @ w.T
        total = np.sum(np.log(np.linalg.eigh(matrix)[0])) + np.linalg.norm(np.linalg.inv(matrix))
        return total + np.sum(np.linalg.cholesky(matrix)[1:, 0])

    return np.sum(lib.vmap(one)(xs))


def jacobian_in_a_loss(lib: Any, x: Any, b: Any) -> Any:
    np = lib.np

    def f(z: Any) -> Any:
        return np.tanh(b.T @ z) * np.sum(z)

    values = np.linalg.svd(lib.jacobian(f)(x), compute_uv=False)
    return np.sum(values) + np.sum(lib.hessian(lambda z: np.sum(f(z) ** 2))(x) ** 2)


def spectrum_of_a_filter(lib: Any, noise: Any, weights: Any) -> Any:
    np = lib.np

    def step(last: Any, e: Any) -> Any:
        y = 0.3 * last @ weights + e
        return np.concatenate([last[1:], y[None]]), y

    _, ys = lib.scan(step, np.zeros(3), noise)
    return np.sum(np.abs(np.fft.rfft(ys)) ** 2 * np.arange(7))


def sorted_rows(lib: Any, rows: Any) -> Any:
    np = lib.np

    def one(x: Any) -> Any:
        chosen = np.take(x, np.argmax(x)) + np.interp(0.3, np.linspace(-1, 1, 8), x)
        above = np.sum(np.where(x > np.mean(x), x**2, 0.0))
        return chosen + above + np.sum(np.sort(x)[::-1] * np.linspace(0, 1, 8))

    return np.sum(lib.vmap(one)(rows))


def trees_and_axes(lib: Any, a: Any, b: Any) -> Any:
    np = lib.np

    def f(d: Any, s: Any) -> Any:
        return {"u": d["x"] * d["y"] + s, "v": np.cumsum(d["x"])}

    out = lib.vmap(f, in_axes=({"x": 1, "y": None}, 0), out_axes=1)({"x": a, "y": b[:4]}, b)
    return np.sum(out["u"] * np.arange(4.0)[:, None]) + np.sum(out["v"] ** 2)


def drawn(*shapes: tuple[int, ...]) -> list[Any]:
    return [rng.normal(size=shape) for shape in shapes]


PROGRAMS: dict[Callable[..., Any], list[Any]] = {
    kalman_filter: [0.3 * rng.normal(size=(3, 3)), *drawn((2, 3), (20, 2))],
    hidden_markov_model: drawn((4, 4), (4, 5)),
    learning_to_learn: drawn((3, 2), (5, 6, 3), (5, 6, 2)),
    hyperparameter: drawn((), (30, 4), (30,)),
    branches_in_a_loop_in_a_batch: drawn((7, 6), (6, 6)),
    laplacian_in_a_loss: drawn((3, 4), (4, 1), (10, 3)),
    third_derivatives: drawn((3,), (3,)),
    loops_in_loops_backwards: drawn((4, 3), (3, 3)),
    switches_and_checkpoints: drawn((6,)),
    decompositions_in_a_batch: drawn((4, 3), (3, 3)),
    jacobian_in_a_loss: drawn((5,), (5, 2)),
    spectrum_of_a_filter: drawn((12,), (3,)),
    sorted_rows: drawn((3, 8)),
    trees_and_axes: drawn((4, 6), (6,)),
}


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def assert_close(found: Any, expected: Any) -> None:
    for ours, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients(program: Callable[..., Any], backend: str) -> None:
    args, lib = PROGRAMS[program], theirs()
    places = tuple(range(len(args)))
    value, gradients = jax.value_and_grad(lambda *args: program(lib, *args), places)(*args)
    params = list(map(tg.param, args))
    loss = program(OURS, *params)
    loss.backward()
    assert_close([loss.item(), *(p.grad for p in params)], [value, *gradients])
    step = tg.compile(tg.value_and_grad(lambda *args: program(OURS, *args), places))
    for _ in range(4):
        found, slopes = step(*args)
        assert_close([found, *slopes], [value, *gradients])


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_derivatives_of_derivatives(program: Callable[..., Any]) -> None:
    (first, *rest), lib = PROGRAMS[program], theirs()

    def ours(x: Any) -> Any:
        return program(OURS, x, *rest)

    def other(x: Any) -> Any:
        return program(lib, x, *rest)

    tangent = rng.normal(size=np.shape(first))
    expected = jax.jvp(jax.grad(other), (first,), (tangent,))[1]
    assert_close([tg.hvp(ours, (first,), (tangent,))], [expected])
    many = first + 0.1 * rng.normal(size=(3, *np.shape(first)))
    assert_close([tg.vmap(tg.grad(ours))(many)], [jax.vmap(jax.grad(other))(many)])
