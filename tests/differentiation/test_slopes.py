"""The table of slopes, and what is derived from it: one derivative, whatever carries it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from entries import Entry, difference, entries

import tapegraph as tg
from tapegraph import fallback
from tapegraph.differentiation.jvps import JVPS
from tapegraph.differentiation.slopes import SLOPES, Divisor, Linear
from tapegraph.fallback.rules import elementwise, recorded_row, rows_of
from tapegraph.fallback.strong_zero import StrongTensor, as_tensor, strong_zeros, to_ndarray
from tapegraph.ops import COMPOSED, FAMILIES
from tapegraph.recording.op import OPS
from tapegraph.recording.record import apply
from tapegraph.tensors import value
from tests.cases import OF_COMPLEX

inf, nan = math.inf, math.nan
# No quotient of three of them underflows in float32, where an infinite cotangent would show it.
SPECIAL = (nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 2.0, -3.0, 0.5, 1e-10, 1e10)
OF_REALS = [op for op in SLOPES if op not in OF_COMPLEX]
COTANGENTS = (1.0, -2.5, 0.0, inf, nan)
DTYPES = (np.float64, np.float32)


@pytest.fixture(autouse=True)
def native_engine():
    tg.set_backend("native")
    with np.errstate(all="ignore"):
        yield


ATTRS: dict[str, Any] = dict.fromkeys(("mul_strong", "div_strong"), {"absorbs": (True, False)})


def special_entries(op: str, dtype: type) -> Iterator[Entry]:
    """Yield the same at special numbers, all with all; the condition of `where` is one too."""
    operands = 2 if op == "where" else len(SLOPES[op])
    grid = np.array(list(itertools.product(SPECIAL, repeat=operands)), dtype).T
    inputs = [grid[0] > 0, *grid] if op == "where" else list(grid)
    yield OPS[op].forward(*inputs, **ATTRS.get(op, {})), inputs, ATTRS.get(op, {})
    if op == "pow":
        for exponent in (0, 1, 2, 3, -1, 0.5, 2.0):
            yield grid[0] ** exponent, [grid[0], exponent], {}


def swept(rule: Any, g: Any, y: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """What the sweep makes of a rule: once more with strong zeros after a NaN."""
    part = rule(g, y, *inputs, **attrs)
    if np.isnan(part).any():
        part = to_ndarray(rule(strong_zeros(g), y, *inputs, **attrs))
    return np.broadcast_to(part, y.shape).astype(y.dtype)


# ------------------------------------------------------------------ the table


def test_every_operation_of_the_elementwise_families_is_in_the_table():
    assert set(FAMILIES) - set(COMPOSED) == {"elementwise", "special"}
    assert set(SLOPES) == set(elementwise.VJPS) == set(elementwise.VJPS) & set(OPS)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", elementwise.FAST)
def test_fast_forms_are_the_rules_from_the_slopes(op, dtype):
    derived = rows_of(SLOPES)[op]
    compared = 0
    for y, inputs, attrs in itertools.chain(entries(op, dtype), special_entries(op, dtype)):
        for fast, rule, x in zip(elementwise.FAST[op], derived, inputs, strict=True):
            if fast is None or not isinstance(x, np.ndarray) or x.dtype.kind != "f":
                assert (fast is None) == (rule is None)
                continue
            for c in COTANGENTS:
                g = np.full(y.shape, c, y.dtype)
                want = swept(rule, g, y, inputs, attrs)
                got = swept(fast, g, y, inputs, attrs)
                close = 1e-12 if dtype is np.float64 else 2e-5
                np.testing.assert_allclose(got, want, rtol=close, atol=close, err_msg=f"g = {c}")
                compared += 1
    assert compared


# ------------------------------------------------------------------ on Tensors and Duals


def as_tensors(inputs: list[Any]) -> list[Any]:
    return [tg.param(x) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for x in inputs]


@pytest.mark.parametrize("op", OF_REALS)
def test_rules_from_slopes_run_on_tensors(op):
    """Values as on arrays; and the gradient of a gradient by finite differences."""
    few = list(itertools.islice(entries(op, smooth=True), 6))
    assert few or op == "round_to"  # which is all steps
    for (y, inputs, attrs), (i, rule) in itertools.product(few, enumerate(recorded_row(OPS[op]))):
        if rule is None or not isinstance(inputs[i], np.ndarray):
            continue
        g = np.linspace(0.5, 1.5, y.size).reshape(y.shape)

        def on_arrays(*arrays: Any, g: Any = g, rule: Any = rule, attrs: Any = attrs) -> Any:
            return rule(g, OPS[op].forward(*arrays, **attrs), *arrays, **attrs)

        leaves = as_tensors(inputs)
        part = rule(tg.param(g), apply(OPS[op], tuple(leaves), attrs), *leaves, **attrs)
        assert isinstance(part, tg.Tensor)
        want = np.broadcast_to(on_arrays(*inputs), part.shape)
        np.testing.assert_allclose(part.data, want, rtol=1e-12, atol=1e-14)
        if part.requires_grad:
            tg.sum(part).backward()
        for j, leaf in enumerate(leaves):
            if isinstance(leaf, tg.Tensor) and leaf.requires_grad:
                want = difference(on_arrays, inputs, j)
                got = np.zeros_like(want) if leaf.grad is None else leaf.grad
                np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("op", ["pow", "xlogy", "xlog1py"])
def test_mixed_second_derivatives_at_a_flat_point(op):
    # There the first derivative is 0 by rule, and its own derivative is not.
    by_base = {"pow": (0, [2.0, 0.0], 1 / 2.0), "xlogy": (1, [0.0, 2.0], 1 / 2.0)}
    i, point, want = by_base.get(op, (1, [0.0, 2.0], 1 / 3.0))
    function = tg.pow if op == "pow" else getattr(tg.special, op)
    a, b = map(tg.param, point)
    part = rows_of(SLOPES)[op][i](tg.tensor(1.0), function(a, b), a, b)
    assert part.item() == 0.0
    part.backward()
    np.testing.assert_allclose((b if op == "pow" else a).grad, want, rtol=1e-12)


ATTRIBUTES = {
    "astype": {"dtype": "float64"},
    "round": {"decimals": 0},
    "round_to": {"dtype": "float16"},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OF_REALS)
def test_tangent_is_gradient_times_direction(op, dtype):
    """The JVP row and the VJP row of one slope, at special numbers too."""
    row = SLOPES[op]
    if any(slope is None for slope in row) or op in ("polygamma", "bessel_i", "bessel_j"):
        pytest.skip("has a condition, or attributes: its cases compare the two")
    attrs = ATTRIBUTES.get(op, ATTRS.get(op, {}))
    grid = np.array(list(itertools.product(SPECIAL, repeat=len(row))), dtype).T
    y = OPS[op].forward(*grid, **attrs)
    for i, rule in enumerate(fallback.VJPS[op]):
        one = np.ones_like(y)
        tangents = tuple(tg.tensor(one) if j == i else None for j in range(len(row)))
        tangent = JVPS[op](tangents, tg.tensor(y), *map(tg.tensor, grid), **attrs)
        got = np.zeros_like(y) if tangent is None else tangent.data
        want = swept(rule, one, y, list(grid), attrs)
        close = 1e-12 if dtype is np.float64 else 2e-5
        np.testing.assert_allclose(got, want, rtol=close, atol=close)


@pytest.mark.parametrize("op", OF_REALS)
def test_recorded_rules_have_strong_zeros(op):
    """At special numbers they give what the sweep makes of the rules on arrays."""
    if op in ("polygamma", "bessel_i", "bessel_j", *ATTRIBUTES):
        pytest.skip("has attributes: its cases compare the two")
    compared = 0
    for y, inputs, attrs in special_entries(op, np.float64):
        leaves = as_tensors(inputs)
        out = apply(OPS[op], tuple(leaves), attrs)
        for rule, recorded, x in zip(fallback.VJPS[op], recorded_row(OPS[op]), inputs, strict=True):
            if rule is None or not isinstance(x, np.ndarray):
                continue
            for c in COTANGENTS:
                want = swept(rule, np.full(y.shape, c), y, inputs, attrs)
                g = StrongTensor(tg.param(np.full(y.shape, c)))
                got = np.broadcast_to(as_tensor(recorded(g, out, *leaves, **attrs)).data, y.shape)
                np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12, err_msg=f"g = {c}")
                compared += 1
    assert compared


def test_a_zero_cotangent_is_differentiated_where_the_slope_is_finite():
    (rule,) = recorded_row(OPS["exp"])
    x, g = tg.param([0.0, 1000.0]), tg.param([0.0, 0.0])
    part = as_tensor(rule(StrongTensor(g), np.exp(x), x))
    np.testing.assert_array_equal(part.data, 0.0)
    part.sum().backward()
    np.testing.assert_array_equal(g.grad, [1.0, 0.0])

    x = tg.param([0.0, 4.0])
    g = tg.param([0.0, 0.0])
    (rule,) = recorded_row(OPS["sqrt"])
    part = as_tensor(rule(StrongTensor(g), np.sqrt(x), x))
    np.testing.assert_array_equal(part.data, 0.0)
    part.sum().backward()
    np.testing.assert_array_equal(g.grad, [0.0, 0.25])
    np.testing.assert_array_equal(x.grad, 0.0)


# ------------------------------------------------------------------ Value


@pytest.mark.parametrize("op", [op for op in value._OPERATIONS if op not in ("gelu", "silu")])
def test_derivatives_of_values_are_the_slopes(op):
    row = SLOPES[op]
    for point in itertools.product((*SPECIAL, 700.0, -40.0), repeat=len(row)):
        node = getattr(tg, op)(*map(tg.Value, point))
        inputs = [np.array(x) for x in point]
        y = np.array(node.data)
        for local, slope in zip(node.local_grads, row, strict=True):
            if isinstance(slope, Linear):
                want = slope.of(1.0, y, *inputs)
            elif isinstance(slope, Divisor):
                want = 1.0 / np.asarray(slope.of(y, *inputs))
            else:
                want = np.asarray(slope(y, *inputs)) * 1.0
            np.testing.assert_allclose(local, want, rtol=1e-12, atol=1e-16, err_msg=str(point))


@pytest.mark.parametrize("op", ["gelu", "silu"])
def test_derivatives_of_composed_values_are_the_slopes(op):
    for point in (-3.0, -0.5, 0.0, 0.25, 2.0):
        x = tg.Value(point)
        getattr(tg, op)(x).backward()
        y = OPS[op].forward(np.array(point))
        np.testing.assert_allclose(x.grad, SLOPES[op][0](y, np.array(point)), rtol=1e-12)
