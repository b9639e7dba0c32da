"""VJP rows run on Tensors: recorded, equal to those on arrays, and differentiated again.

Those of element-wise operations come from slopes, and are in ``test_slopes.py``.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from entries import difference, entries

import tapegraph as tg
from tapegraph import fallback
from tapegraph.capture import Capture
from tapegraph.differentiation.slopes import SLOPES
from tapegraph.fallback.rules import JointVJP, recorded_row, strong_zeros, to_ndarray
from tapegraph.fallback.sweep import unbroadcast
from tapegraph.recording.op import DEFINED, OPS, Outputs
from tapegraph.recording.record import apply
from tapegraph.row_sparse import RowSparse
from tests.cases import OF_COMPLEX
from tests.replay import replay

COMPOSED = sorted(set(fallback.VJPS) - set(SLOPES) - OF_COMPLEX)
# They read one triangle, and their gradients are spread over both.
SYMMETRIC = ("cholesky", "eigh", "eigvalsh")
DTYPES = (np.float64, np.float32)


@pytest.fixture(autouse=True)
def native_engine():
    tg.set_backend("native")
    with np.errstate(all="ignore"):
        yield


def each(function: Any, g: Any) -> Any:
    """Apply a function to a cotangent, or to those of several outputs."""
    return list(map(function, g)) if isinstance(g, (tuple, list)) else function(g)


def listed(g: Any) -> list[Any]:
    return list(g) if isinstance(g, (tuple, list)) else [g]


def carrying(op: str, inputs: list[Any]) -> list[bool]:
    """Tell which inputs carry a gradient."""
    flows = OPS[op].differentiable or ()
    return [
        isinstance(x, (np.ndarray, tg.Tensor)) and x.dtype.kind == "f" and all(flows[i : i + 1])
        for i, x in enumerate(inputs)
    ]


def run(row: Any, needs: list[bool], g: Any, y: Any, inputs: list[Any], attrs: Any) -> list[Any]:
    """Run a row for the inputs that need it, and undo broadcasting."""
    if isinstance(row, JointVJP):
        parts = row.rule(needs, g, y, *inputs, **attrs)
    else:
        parts = [
            rule and need and rule(g, y, *inputs, **attrs)
            for rule, need in zip(row, needs, strict=False)
        ]
    return [
        unbroadcast(part.dense() if isinstance(part, RowSparse) else part, x.shape)
        for part, x, needed in zip(parts, inputs, needs, strict=False)
        if needed
    ]


def on_forward(op: str, inputs: list[Any], attrs: Any) -> tuple[Any, Any]:
    """Return an operation's result on arrays, and what it saves."""
    out = OPS[op].forward(*inputs, **attrs)
    y, saved = out if OPS[op].saves else (out, None)
    return Outputs(map(np.asarray, y)) if OPS[op].several else np.asarray(y), saved


def on_arrays(op: str, g: Any, inputs: list[Any], attrs: Any) -> list[Any]:
    """Run the row as the sweep does: with strong zeros after a NaN."""
    y, saved = on_forward(op, inputs, attrs)
    attrs = {**attrs, "saved": saved} if OPS[op].saves else attrs
    row, needs = fallback.VJPS[op], carrying(op, inputs)
    parts = run(row, needs, g, y, inputs, attrs)
    if any(np.isnan(part).any() for part in parts):
        parts = run(row, needs, each(strong_zeros, g), y, inputs, attrs)
    return [to_ndarray(part) for part in parts]


def on_tensors(op: str, g: Any, inputs: list[Any], attrs: Any) -> list[Any]:
    needs = carrying(op, inputs)
    y = apply(OPS[op], tuple(inputs), attrs)
    return run(recorded_row(OPS[op]), needs, g, y, inputs, attrs)


def cotangent(y: Any) -> Any:
    if isinstance(y, Outputs):
        return each(cotangent, y)
    return np.linspace(0.5, 1.5, y.size, dtype=y.dtype).reshape(y.shape)


def leaves_of(op: str, inputs: list[Any]) -> list[Any]:
    """Make tensors of the inputs, places and classes too."""
    needs = carrying(op, inputs)
    return [
        tg.param(x) if need else tg.tensor(x) if isinstance(x, np.ndarray) else x
        for x, need in zip(inputs, needs, strict=True)
    ]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", COMPOSED)
def test_rows_on_tensors_are_those_on_arrays(op, dtype):
    """At kinks and ties too; and none is a constant: each is linear in the cotangent."""
    compared = 0
    for y, inputs, attrs in entries(op, dtype):
        g = cotangent(y)
        want = on_arrays(op, g, inputs, attrs)
        got = on_tensors(op, each(tg.param, g), leaves_of(op, inputs), attrs)
        assert len(got) == len(want)
        for part, expected in zip(got, want, strict=True):
            assert isinstance(part, tg.Tensor)
            assert part.requires_grad
            assert part.dtype == expected.dtype
            close = 1e-11 if dtype is np.float64 else 2e-4
            np.testing.assert_allclose(part.data, expected, rtol=close, atol=close)
            compared += 1
    assert compared


PLAIN_CONV = {"stride": (1, 1), "pad": (0, 0), "dilation": (1, 1)}
EMPTY: tuple[tuple[str, list[tuple[int, ...]], dict[str, Any]], ...] = (
    ("det", [(2, 0, 0)], {}),
    ("slogdet", [(0, 0)], {}),
    ("eigh", [(0, 0)], {"uplo": "L"}),
    ("svd", [(0, 3, 3)], {}),
    ("prod", [(2, 0)], {"axis": (1,), "keepdims": False}),
    ("cumprod", [(0,)], {"axis": 0}),
    ("softmax_crossentropy", [(2, 0), (2, 0)], {}),
    (
        "conv2d",
        [(0, 1, 3, 3), (1, 1, 2, 2)],
        dict.fromkeys(("stride", "dilation"), (1, 1)) | {"pad": (0, 0)},
    ),
)


@pytest.mark.parametrize(("op", "shapes", "attrs"), EMPTY, ids=[row[0] for row in EMPTY])
def test_rows_on_empty_tensors_are_those_on_arrays(op, shapes, attrs):
    inputs = [np.zeros(shape) for shape in shapes]
    ones = each(np.ones_like, on_forward(op, inputs, attrs)[0])
    want = on_arrays(op, ones, inputs, attrs)
    got = on_tensors(op, each(tg.param, ones), leaves_of(op, inputs), attrs)
    for part, expected in zip(got, want, strict=True):
        np.testing.assert_array_equal(part.data, expected)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("op", COMPOSED)
def test_gradients_of_recorded_gradients(op, thorough):
    """By finite differences of the row on arrays, with respect to cotangent and inputs."""
    for y, inputs, attrs in itertools.islice(entries(op, smooth=True), None if thorough else 6):
        g, outputs = cotangent(y), len(listed(y))
        weights = [np.cos(1.0 + np.arange(x.size)).reshape(x.shape) for x in inputs]
        weights = [w for w, need in zip(weights, carrying(op, inputs), strict=True) if need]

        def total(
            *arrays: Any, n: int = outputs, weights: Any = weights, attrs: Any = attrs
        ) -> Any:
            g = list(arrays[:n]) if OPS[op].several else arrays[0]
            parts = on_arrays(op, g, list(arrays[n:]), attrs)
            return sum(np.sum(w * part) for w, part in zip(weights, parts, strict=True))

        given, moved = each(tg.param, g), leaves_of(op, inputs)
        leaves = [*listed(given), *moved]
        parts = on_tensors(op, given, moved, attrs)
        tg.backward(sum(tg.sum(w * part) for w, part in zip(weights, parts, strict=True)))
        for j, leaf in enumerate(leaves):
            if isinstance(leaf, tg.Tensor) and leaf.requires_grad:
                want = difference(total, [*listed(g), *inputs], j)
                if op in SYMMETRIC and j >= outputs:
                    want = (want + want.swapaxes(-1, -2)) / 2
                got = np.zeros_like(want) if leaf.grad is None else leaf.grad
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------ in a capture

# Other offsets would reach outside.
FIXED_PLACES = ("getitem", "tensor_slice")


def others(op: str, x: np.ndarray) -> np.ndarray:
    """The same numbers in another order, and as good: symmetric, or within range."""
    if x.dtype.kind != "f":
        return x if op in FIXED_PLACES or not x.ndim else np.roll(x, 1, axis=0)
    return np.asarray(x * 0.75) if op in SYMMETRIC or not x.ndim else np.roll(x[::-1], 1)


@pytest.mark.parametrize("op", sorted(set(fallback.VJPS) - OF_COMPLEX))
def test_recorded_whole_a_row_has_no_frozen_numbers(op):
    """Run again with other numbers, and other places, it gives what a new run gives."""
    for y, inputs, attrs in entries(op):
        arrays, outputs = [*listed(cotangent(y)), *inputs], len(listed(y))
        with Capture() as capture:
            leaves = [capture.input(x) if isinstance(x, np.ndarray) else x for x in arrays]
            g = leaves[:outputs] if OPS[op].several else leaves[0]
            parts = on_tensors(op, g, leaves[outputs:], attrs)
        moved = [others(op, x) if isinstance(x, np.ndarray) else x for x in arrays]
        fed = {id(leaf): value for leaf, value in zip(leaves, moved, strict=True)}
        recording = capture.recording(parts)
        again = {
            slot: fed.get(id(recording.nodes[slot]), recording.values[slot])
            for slot in recording.program.leaves
        }
        got = replay(recording.program, again).outputs
        g = moved[:outputs] if OPS[op].several else moved[0]
        for part, want in zip(got, on_arrays(op, g, moved[outputs:], attrs), strict=True):
            np.testing.assert_allclose(part, want, rtol=1e-10, atol=1e-10)


# ------------------------------------------------------------------ where there is none


def test_an_operation_without_a_gradient_has_no_recorded_row():
    with pytest.raises(NotImplementedError, match=r"argsort: .* no gradient rule"):
        recorded_row(OPS["argsort"])


def test_a_rule_for_arrays_alone_is_refused_by_name():
    @tg.defop(vjp=lambda g, y, x: g * 2.0 * x)
    def squared_by_hand(x):
        return x * x

    try:
        with pytest.raises(NotImplementedError, match=r"squared_by_hand: .* rule for arrays"):
            recorded_row(DEFINED["squared_by_hand"])
    finally:
        del DEFINED["squared_by_hand"]


@pytest.mark.parametrize("op", ["eigh", "svd"])
def test_vectors_of_equal_values_have_no_second_derivative(op):
    """Where only the values are asked for the gradient is known, and its own is NaN, not 0."""
    inputs = [np.eye(3)]
    attrs = {"uplo": "L"} if op == "eigh" else {}
    g = [np.full_like(y, y.ndim == 1) for y in OPS[op].forward(*inputs, **attrs)]  # the values'
    leaves, x = each(tg.param, g), tg.param(inputs[0])
    (part,) = on_tensors(op, leaves, [x], attrs)
    np.testing.assert_allclose(part.data, on_arrays(op, g, inputs, attrs)[0], atol=1e-12)
    tg.sum(np.arange(9.0).reshape(3, 3) * part).backward()
    assert all(np.isnan(leaf.grad).any() for leaf in leaves if leaf.ndim == 2)
    assert np.isnan(x.grad).any()


def test_a_singular_matrix_has_the_gradient_of_its_determinant_differentiated():
    """All its cofactors are linear in each element off their row and column."""
    a = tg.param(np.diag([2.0, 3.0, 0.0]))
    (part,) = on_tensors("det", tg.tensor(1.0), [a], {})
    np.testing.assert_allclose(part.data, np.diag([0.0, 0.0, 6.0]), atol=1e-12)
    part[2, 2].backward()  # a00 a11 - a01 a10
    np.testing.assert_allclose(a.grad, np.diag([3.0, 2.0, 0.0]), atol=1e-12)
