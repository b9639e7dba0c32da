"""Random bodies of loops against the loop in Python: bit for bit, and their second derivatives."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tests.loops import in_python
from tests.same_bits import same_bits

SIZE = 3


class RandomBody:
    """A function of a carry and a row, made of operations that stay bounded."""

    def __init__(self, seed):
        draw = np.random.default_rng(seed)
        self.carries = int(draw.integers(1, 4))
        self.consts = int(draw.integers(0, 3))
        self.dtype = np.dtype(draw.choice([np.float32, np.float64]))
        self.rows = bool(draw.integers(0, 4))
        self.length = int(draw.integers(1, 6))
        self.reverse = bool(draw.integers(0, 2))
        self.checkpoint = [None, None, 2, 3, "sqrt"][draw.integers(0, 5)]
        self.steps = [tuple(draw.integers(0, 1000, 4)) for _ in range(draw.integers(1, 9))]
        # Each another one, and no const: of what is carried twice, or stays the same and is carried
        # too, the loop has one sum of gradients, and a scan has two.
        self.picks = draw.permutation(self.carries)
        self.stacked = draw.integers(0, 1000, draw.integers(0, 4))
        shapes = [(SIZE, SIZE) if draw.integers(0, 2) else (SIZE,) for _ in range(self.consts)]
        make = lambda shape: draw.normal(size=shape).astype(self.dtype)  # noqa: E731
        self.start = [make(SIZE) for _ in range(self.carries)]
        self.xs = make((self.length, SIZE))
        self.read = [make(shape) for shape in shapes]

    def __call__(self, consts, carry, x):
        pool = [*carry, *([] if x is None else [x]), *consts]
        vectors = [v for v in pool if v.ndim == 1]
        matrices = [v for v in pool if v.ndim == 2]
        for kind, i, j, k in self.steps:
            a, b = vectors[i % len(vectors)], vectors[j % len(vectors)]
            vectors.append(_combined(kind % 12, a, b, matrices, k))
        own = [v for v in vectors if all(v is not c for c in consts)]
        next_ = tuple(tg.tanh(own[-1 - p % len(own)]) for p in self.picks[:-1])
        last = own[-1 - self.picks[-1] % len(own)]  # perhaps what came in
        every = [*next_, last, *vectors]
        ys = [every[p % len(every)] for p in self.stacked]
        return (*next_, last), ys

    def run(self, scan, start, xs, consts, **options):
        """The loss of a run."""
        rows = xs if self.rows else None
        last, ys = scan(
            lambda c, x: self(consts, c, x),
            tuple(start),
            rows,
            None if self.rows else self.length,
            reverse=self.reverse,
            **options,
        )
        total = tg.sum(last[0] * last[0])
        for part in (*last[1:], *ys):
            total = total + tg.sum(tg.sin(part))
        return total


def _combined(kind, a, b, matrices, k):
    if kind == 0:
        return a + b
    if kind == 1:
        return a * b
    if kind == 2:
        return tg.tanh(a)
    if kind == 3:
        return tg.sin(a) * 0.5
    if kind == 4 and matrices:
        return tg.tanh(a @ matrices[k % len(matrices)])
    if kind == 5 and matrices:
        return tg.tanh(matrices[k % len(matrices)] @ a)
    if kind == 6:
        return tg.where(a > b, a, b * 0.5)
    if kind == 7:
        return a - tg.mean(b)
    if kind == 8:
        return tg.softmax(a) * b
    if kind == 9:
        return tg.concat([b[1:], a[:1]])
    if kind == 10:
        return tg.sqrt(a * a + 1.0)
    return a * tg.cond(tg.sum(b) > 0, lambda: tg.max(b), lambda: tg.sum(a)) if kind == 11 else a - b


def gradients(body, scan, **options):
    """The loss, and its gradients by all that it was made from."""
    params = [tg.param(x) for x in (*body.start, body.xs, *body.read)]
    start, xs, consts = params[: body.carries], params[body.carries], params[body.carries + 1 :]
    value = body.run(scan, start, xs, consts, **options)
    value.backward()
    return [value.data, *(p.grad for p in params)]


def check(seed):
    body = RandomBody(seed)
    with tg.use_backend("native"):
        found = gradients(body, tg.scan, checkpoint=body.checkpoint)
        wanted = gradients(body, in_python_with_if)
        for got, want in zip(found, wanted, strict=True):
            if want is None:
                assert got is None or not got.any()
            else:
                same_bits(got + 0.0, want + 0.0)  # but for the sign of zeros


def in_python_with_if(*args, **options):
    return in_python.scan(*args, **options)


def check_second(seed):
    body = RandomBody(seed)
    direction = [np.cos(np.arange(x.size)).reshape(x.shape).astype(x.dtype) for x in body.start]
    with tg.use_backend("native"):
        products = [
            tg.grad(
                lambda start, scan=scan: sum(
                    tg.sum(g * d)
                    for g, d in zip(
                        tg.grad(lambda s: body.run(scan, s, body.xs, body.read))(start),
                        direction,
                        strict=True,
                    )
                )
            )(tuple(body.start))
            for scan in (tg.scan, in_python.scan)
        ]
    exact = body.dtype == np.float64
    for got, want in zip(*products, strict=True):
        np.testing.assert_allclose(
            got, want, rtol=1e-9 if exact else 2e-3, atol=1e-9 if exact else 2e-3
        )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(50))
def test_bits_are_those_of_the_loop(seed):
    check(seed)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(10))
def test_second_derivatives_are_those_of_the_loop(seed):
    check_second(seed)


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(50, 1000, 50))
def test_bits_of_many_are_those_of_the_loop(first):
    for seed in range(first, first + 50):
        check(seed)


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(10, 100, 10))
def test_second_derivatives_of_many_are_those_of_the_loop(first):
    for seed in range(first, first + 10):
        check_second(seed)
