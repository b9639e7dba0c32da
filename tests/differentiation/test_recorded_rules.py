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
from tapegraph.arrays.row_sparse import RowSparse
from tapegraph.differentiation.slopes import SLOPES
from tapegraph.fallback.rules import Joint, recorded_row
from tapegraph.fallback.sweep import unbroadcast
from tapegraph.recording.op import OPS
from tapegraph.recording.record import apply

COMPOSED = sorted(set(fallback.VJPS) - set(SLOPES))
# They read one triangle, and their gradients are spread over both.
SYMMETRIC = ("cholesky", "eigh", "eigvalsh")
DTYPES = (np.float64, np.float32)


@pytest.fixture(autouse=True)
def native_engine():
    tg.set_backend("native")
    with np.errstate(all="ignore"):
        yield


def carrying(op: str, inputs: list[Any]) -> list[bool]:
    """Tell which inputs carry a gradient."""
    flows = OPS[op].differentiable or ()
    return [
        isinstance(x, np.ndarray) and x.dtype.kind == "f" and all(flows[i : i + 1])
        for i, x in enumerate(inputs)
    ]


def run(row: Any, needs: list[bool], g: Any, y: Any, inputs: list[Any], attrs: Any) -> list[Any]:
    """Run a row as the sweep does."""
    if isinstance(row, Joint):
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


def on_arrays(op: str, g: Any, inputs: list[Any], attrs: Any) -> list[Any]:
    out = OPS[op].forward(*inputs, **attrs)
    y, saved = out if OPS[op].saves else (out, None)
    attrs = {**attrs, "saved": saved} if OPS[op].saves else attrs
    return run(fallback.VJPS[op], carrying(op, inputs), g, np.asarray(y), inputs, attrs)


def on_tensors(op: str, g: Any, inputs: list[Any], attrs: Any) -> list[Any]:
    needs = carrying(op, [x.data if isinstance(x, tg.Tensor) else x for x in inputs])
    y = apply(OPS[op], tuple(inputs), attrs)
    return run(recorded_row(OPS[op]), needs, g, y, inputs, attrs)


def cotangent(y: Any) -> np.ndarray:
    return np.linspace(0.5, 1.5, y.size, dtype=y.dtype).reshape(y.shape)


def leaves_of(op: str, inputs: list[Any]) -> list[Any]:
    """Make tensors of the inputs, places and classes too."""
    needs = carrying(op, inputs)
    return [
        tg.param(x) if need else tg.tensor(x) if isinstance(x, np.ndarray) else x
        for x, need in zip(inputs, needs, strict=True)
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", COMPOSED)
def test_rows_on_tensors_are_those_on_arrays(op, dtype):
    """At kinks and ties too; and none is a constant: each is linear in the cotangent."""
    compared = 0
    for y, inputs, attrs in entries(op, dtype):
        g = cotangent(y)
        want = on_arrays(op, g, inputs, attrs)
        got = on_tensors(op, tg.param(g), leaves_of(op, inputs), attrs)
        assert len(got) == len(want)
        for part, expected in zip(got, want, strict=True):
            assert isinstance(part, tg.Tensor)
            assert part.requires_grad
            assert part.dtype == expected.dtype
            close = 1e-11 if dtype is np.float64 else 2e-4
            np.testing.assert_allclose(part.data, expected, rtol=close, atol=close)
            compared += 1
    assert compared


@pytest.mark.parametrize("op", COMPOSED)
def test_gradients_of_recorded_gradients(op, thorough):
    """By finite differences of the row on arrays, with respect to cotangent and inputs."""
    found = entries(op, smooth=True)
    for y, inputs, attrs in found if thorough else itertools.islice(found, 6):
        g = cotangent(y)
        weights = [np.cos(1.0 + np.arange(x.size)).reshape(x.shape) for x in inputs]
        weights = [w for w, need in zip(weights, carrying(op, inputs), strict=True) if need]

        def total(g: Any, *inputs: Any, weights: Any = weights, attrs: Any = attrs) -> Any:
            parts = on_arrays(op, g, list(inputs), attrs)
            return sum(np.sum(w * part) for w, part in zip(weights, parts, strict=True))

        leaves = [tg.param(g), *leaves_of(op, inputs)]
        parts = on_tensors(op, leaves[0], leaves[1:], attrs)
        tg.backward(sum(tg.sum(w * part) for w, part in zip(weights, parts, strict=True)))
        for j, leaf in enumerate(leaves):
            if isinstance(leaf, tg.Tensor) and leaf.requires_grad:
                want = difference(total, [g, *inputs], j)
                if op in SYMMETRIC and j:
                    want = (want + want.swapaxes(-1, -2)) / 2
                got = np.zeros_like(want) if leaf.grad is None else leaf.grad
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
