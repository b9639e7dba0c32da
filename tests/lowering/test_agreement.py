"""XLA beside the graph without it: what rows say of it, measured over the whole range of the dtype.

A function is compiled once in each way and run on every number, and every pair of numbers, of a
grid of zeros, subnormal, tiny, middling, huge and infinite ones and NaN: values and gradients.
Whatever XLA gives must be the graph's, or not be finite, for then a run does not count. So it is
for each operation that is given to it unasked, and for each pair that one may compute with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.lowering.steps import step_graph, xla
from tapegraph.lowering.steps.step_graph import StepGraph
from tapegraph.recording.linearize import linearize
from tests.cases.case import operation
from tests.optional import optional

optional("tensorflow")

pytestmark = pytest.mark.versions

ONE: dict[str, Callable[..., Any]] = {
    **{
        name: operation(name)
        for name in (
            "abs arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil cos cosh exp exp2 expm1 "
            "floor gelu log log10 log1p log2 neg relu rint sigmoid sign silu sin sinh sqrt tanh "
            "trunc"
        ).split()
    },
    "erf": tg.special.erf,
    "erfc": tg.special.erfc,
    "a square": lambda x: x**2,
    "a cube": lambda x: x**3,
    "a root": lambda x: x**0.5,
    "an inverse": lambda x: x**-1.0,
    "an inverse square": lambda x: x**-2,
    "an inverse root": lambda x: x**-0.5,
    "a broken power": lambda x: x**2.5,
    "a third": lambda x: x / 3.0,
    "three over it": lambda x: 3.0 / x,
    "clip": lambda x: tg.clip(x, -1.5, 2.0),
    "the largest": lambda x: tg.max(tg.stack([x, 1.0 - x]), axis=0),
    "softplus": lambda x: tg.log(1.0 + tg.exp(x)),
    "logistic": lambda x: 1.0 / (1.0 + tg.exp(-x)),
    "log of a logistic": lambda x: tg.log(tg.sigmoid(x)),
    "log of a root": lambda x: tg.log(x**0.5),
    "log of an exponential": lambda x: tg.log(tg.exp(x)),
    "exponential of one": lambda x: tg.exp(tg.exp(x)),
    "exponential of one and more": lambda x: tg.exp(tg.exp(x) + 80.0),
    "a root of an exponential": lambda x: tg.exp(x) ** 0.5,
    "a square of an exponential": lambda x: tg.exp(x) ** 2,
    "a power of a power": lambda x: (x**0.5) ** 2.5,
}
TWO: dict[str, Callable[..., Any]] = {
    "sum": lambda a, b: a + b,
    "product": lambda a, b: a * b,
    "quotient": lambda a, b: a / b,
    "power": lambda a, b: a**b,
    "maximum": tg.maximum,
    "minimum": tg.minimum,
    "product of exponentials": lambda a, b: tg.exp(a) * tg.exp(b),
    "product of scaled exponentials": lambda a, b: tg.exp(a) * (3.0 * tg.exp(b)),
    "quotient of exponentials": lambda a, b: tg.exp(a) / tg.exp(b),
    "over an exponential": lambda a, b: a / tg.exp(b),
    "times an exponential": lambda a, b: a * tg.exp(b),
    "log of a product": lambda a, b: tg.log(a * b),
    "log of a quotient": lambda a, b: tg.log(a / b),
    "difference of logs": lambda a, b: tg.log(a) - tg.log(b),
    "log of a sum of exponentials": lambda a, b: tg.log(tg.exp(a) + tg.exp(b)),
    "over a root": lambda a, b: a / tg.sqrt(b),
    "over a power": lambda a, b: a / b**2.5,
    "over a square": lambda a, b: a / b**2,
    "product of roots": lambda a, b: tg.sqrt(a) * tg.sqrt(b),
    "times and over": lambda a, b: a * b / b.detach(),  # no sum that cancels
    "over and times": lambda a, b: (a / b) * b.detach(),
    "over a quotient": lambda a, b: a.detach() / (a / b),
    "over twice": lambda a, b: a / b / a.detach(),
    "over, more, and over": lambda a, b: (a / b + 1.0) / b,
    "hypot": operation("hypot"),
    "arctan2": operation("arctan2"),
}
FUNCTIONS = ONE | TWO
QUICK = ("tanh", "product", "quotient", "log of an exponential")
# Flags of rows: what these are made of is not given to XLA unasked.
REFUSED = {
    *"arcsin arctan2 cbrt cosh erf exp exp2 hypot log log10 log1p log2 maximum minimum".split(),
    *"power quotient sinh softplus logistic sqrt".split(),
    *("a broken power", "a power of a power", "a root", "an inverse", "an inverse root"),
    *("an inverse square", "exponential of one"),
    *("exponential of one and more", "log of a quotient", "log of a root", "the largest"),
    *("log of a sum of exponentials", "log of an exponential", "over a power", "three over it"),
    *("over a quotient", "over a root", "over a square", "over an exponential", "over and times"),
    *("over twice", "over, more, and over", "product of exponentials", "product of roots"),
    *("product of scaled exponentials", "quotient of exponentials", "times an exponential"),
    *("times and over", "a root of an exponential", "a square of an exponential"),
    *("difference of logs", "log of a logistic", "log of a product"),
}
# What differs, and is why its operations are refused: exp, sqrt, log, quotients, powers, choices.
DIFFERS = (
    *("arctan2", "hypot", "erf", "maximum", "minimum", "power", "quotient", "log of a product"),
    *("log of an exponential", "product of exponentials", "quotient of exponentials"),
    *("over an exponential", "a root of an exponential", "exponential of one and more"),
    *("a power of a power", "log of a root", "over twice"),
)
RTOL = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-9}


def grid(dtype: Any) -> Any:
    info = np.finfo(dtype)
    exponents = np.array([1e-3, 0.3, 1.0, 2.7, 17.0, 30.0, 80.0, 88.5, 88.8, 104.0, 1e4])
    middling = [0.5, 0.99, 1.01, 1.5, 2.0, 10.0, 100.0]
    extreme = [0.0, info.smallest_subnormal * 3, info.tiny * 1.5, info.max / 2, info.max, np.inf]
    powers = np.ldexp(1.1, np.linspace(info.minexp, info.maxexp - 1, 14).astype(int))
    exponents = exponents * (np.log(float(info.max)) / 88.722839)
    numbers = np.concatenate([exponents, middling, np.float64(extreme), powers])
    return np.concatenate([numbers, -numbers, [np.nan]]).astype(dtype)


def points(name: str, dtype: Any) -> list[Any]:
    numbers = grid(dtype)
    return [numbers] if name in ONE else [x.ravel() for x in np.meshgrid(numbers, numbers)]


@pytest.fixture
def run_step(monkeypatch):
    """Return what runs a step in one of the graphs: whether its numbers stand, and the numbers."""
    ran: list[Any] = []

    def commit(result: Any, tensors: list[Any], *_: Any) -> Any:
        tensors[:] = result
        right, *numbers = map(np.array, tensors)
        ran.append((bool(right), numbers))
        return np.array(True).data  # whatever is found, the step stays in the graph

    def init(graph: Any, *given: Any, **options: Any) -> None:
        original(graph, *given, **options | {"careful": True})

    original = StepGraph.__init__
    monkeypatch.setattr(step_graph, "_commit", commit)
    monkeypatch.setattr(StepGraph, "__init__", init)

    def compiled(step: Any, *, xla: bool) -> Callable[..., Any]:
        step = tg.compile(step, verify_every=None, xla=xla)

        def in_the_graph(*arrays: Any) -> Any:
            with tg.use_backend("tensorflow"), np.errstate(all="ignore"):
                ran.clear()
                while not ran:
                    step(*arrays)
            return ran[0]

        return in_the_graph

    return compiled


@pytest.fixture
def run(run_step):
    """Return what does so with a function: the numbers are its result and its gradients."""

    def compiled(f: Any, *, xla: bool) -> Callable[..., Any]:
        def step(*given: Any) -> Any:
            leaves = [tg.param(x) for x in given]
            y = f(*leaves)
            tg.sum(y).backward()
            return y.detach(), *(x.grad for x in leaves)

        return run_step(step, xla=xla)

    return compiled


def refusal(f: Any, count: int) -> str:
    leaves = [tg.param(np.full(2, 0.5)) for _ in range(count)]
    with np.errstate(all="ignore"):
        return xla.refusal(linearize([f(*leaves)]), "auto")


def differ(got: Any, want: Any) -> Any:
    """Return where numbers differ by more than the last bits."""
    info = np.finfo(want.dtype)
    with np.errstate(all="ignore"):
        close = np.abs(got - want) <= RTOL[want.dtype] * np.abs(want) + 16 * info.eps
    return ~(close | (got == want) | (np.isnan(got) & np.isnan(want)))


def cases() -> list[Any]:
    return [
        pytest.param(name, dtype, marks=[] if quick else pytest.mark.thorough, id=f"{name}-{dtype}")
        for name in FUNCTIONS
        for dtype in ("float32", "float64")
        for quick in [name in QUICK and dtype == "float32"]
    ]


@pytest.mark.parametrize(("name", "dtype"), cases())
def test_what_is_given_to_xla_agrees_or_is_not_finite(name, dtype, run):
    f, arrays = FUNCTIONS[name], points(name, dtype)
    assert bool(refusal(f, len(arrays))) == (name in REFUSED)
    if name in REFUSED:
        return
    _, want = run(f, xla=False)(*arrays)
    _, got = run(f, xla=True)(*arrays)
    assert [x.shape for x in got] == [arrays[0].shape] * (1 + len(arrays))
    # What is not finite has every run refused, and is so by itself as well.
    suspect = np.any([differ(x, y) & np.isfinite(x) for x, y in zip(got, want, strict=True)], 0)
    alone = run(f, xla=True)
    for place in np.flatnonzero(suspect):
        given = [x[place : place + 1] for x in arrays]
        stands, found = alone(*given)
        numbers = [x[place] for x in want], [x[0] for x in found]
        assert not stands, f"{name} of {given}: {numbers[0]} in the graph, {numbers[1]} with XLA"


@pytest.mark.thorough
@pytest.mark.parametrize("name", DIFFERS)
def test_what_is_refused_differs(name, run):
    assert name in REFUSED
    f, differs = FUNCTIONS[name], False
    for dtype in ("float32", "float64"):
        arrays = points(name, dtype)
        _, want = run(f, xla=False)(*arrays)
        _, got = run(f, xla=True)(*arrays)
        pairs = zip(got, want, strict=True)
        differs |= any((differ(x, y) & np.isfinite(x)).any() for x, y in pairs)
    assert differs


# ------------------------------------------------------------------ one after another

INNER = {name: f for name, f in ONE.items() if name not in REFUSED} | {"itself": lambda x: x + 0.0}
# Of sines, signs and the like the last bit of a large number decides.
OUTER = {
    name: f
    for name, f in INNER.items()
    if name not in ("ceil", "cos", "floor", "rint", "sign", "sin", "tan", "trunc", "itself")
}


def joined(f: Any) -> Any:
    """Return a step of one function of each other one: the results, and their gradients."""

    def step(*given: Any) -> Any:
        found = []
        for g in INNER.values():
            of = [tg.param(x) for x in given]
            y = f(*map(g, of))
            tg.sum(y).backward()
            found += [y.detach(), *(x.grad for x in of)]
        return tuple(found)

    return step


@pytest.mark.thorough
@pytest.mark.parametrize("outer", [*OUTER, "product"])
def test_no_two_that_are_given_to_xla_are_joined(outer, run_step):
    """A rewritten formula differs by far where what is in between overflows, vanishes or is NaN."""
    f = FUNCTIONS[outer]
    arrays = points(outer, "float32")
    step = joined(f)
    want, got = (run_step(step, xla=xla)(*arrays)[1] for xla in (False, True))
    count = 1 + len(arrays)
    for i, inner in enumerate(INNER):
        pairs = list(zip(*(x[i * count :][:count] for x in (got, want)), strict=True))
        stands = np.all([np.isfinite(x) for x, _ in pairs], 0)
        for x, y in pairs:
            with np.errstate(all="ignore"):
                close = np.abs(x - y) <= 0.01 * np.abs(y) + 1e-3
            # A gradient that is NaN in the graph is the native engine's, which keeps zeros.
            wrong = stands & ~close & ~(np.isnan(y) & (x == 0.0))
            assert not wrong.any(), f"{outer} of {inner} at {[a[wrong][:3] for a in arrays]}"
