"""What holds for every operation, over every row of the table of cases."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tapegraph as tg
from tapegraph import fallback
from tapegraph.cases import CASES, Case
from tapegraph.ir import OPS, Op
from tapegraph.record import apply
from tapegraph.testing import check_gradients

SMOOTH = [case for case in CASES if case.smooth]
KINKED = [case for case in CASES if not case.smooth]
REFERENCED = [case for case in CASES if case.reference is not None]

# The dtype's rounding, with room for a few operations.
CLOSE = {np.float64: {"rtol": 1e-12, "atol": 1e-12}, np.float32: {"rtol": 1e-4, "atol": 1e-5}}


def over(cases: list[Case]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=[case.id for case in cases])


@pytest.fixture(autouse=True)
def native_engine():
    tg.set_backend("native")


def only_singular_points_warn(case: Case) -> np.errstate:
    return np.errstate(all=None if case.smooth else "ignore")


def run(case: Case, arrays: list[np.ndarray]) -> tuple[list[tg.Tensor], tg.Tensor]:
    """Call the case on parameters made of `arrays`."""
    leaves = [tg.param(a) for a in arrays]
    with only_singular_points_warn(case):
        return leaves, case.function(arrays[0].dtype)(*leaves)


def gradients(case: Case, arrays: list[np.ndarray], seed: Any = None) -> list[np.ndarray | None]:
    leaves, out = run(case, arrays)
    out.backward(seed)
    return [leaf.grad for leaf in leaves]


def random_like(array: Any, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 1.5, array.shape).astype(array.dtype)


def assert_close(got: list[Any], want: list[Any], dtype: type = np.float64) -> None:
    """Compare gradients one by one; None, for no gradient, equals None alone."""
    assert [g is None for g in got] == [w is None for w in want]
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if g is not None:
            np.testing.assert_allclose(g, w, **CLOSE[dtype], err_msg=f"input {i}", strict=True)


@over(CASES)
def test_records_the_operation_it_names(case):
    _, out = run(case, case.arrays())
    assert case.op in [entry.op for entry in tg.tape()]
    assert out.requires_grad


@over(REFERENCED)
def test_forward_agrees_with_numpy(case):
    arrays = case.arrays()
    _, out = run(case, arrays)
    want = np.asarray(case.reference(*arrays, *case.fixed()))
    np.testing.assert_allclose(out.numpy(), want, **CLOSE[np.float64], strict=True)


@over(SMOOTH)
def test_gradient_agrees_with_finite_differences(case):
    check_gradients(case.function(), *case.arrays(), backend="native")


@over(KINKED)
def test_gradient_at_a_kink_is_the_one_agreed(case):
    want = [None if w is None else np.array(w, dtype=np.float64) for w in case.expected]
    assert_close(gradients(case, case.arrays()), want)


@over(CASES)
def test_gradients_have_the_shape_and_dtype_of_their_leaf(case):
    for dtype in (np.float64, np.float32):
        leaves, out = run(case, case.arrays(dtype))
        out.backward()
        assert out.dtype == dtype
        for leaf in leaves:
            if leaf.grad is not None:
                assert (leaf.grad.shape, leaf.grad.dtype) == (leaf.shape, dtype)


@over(CASES)
def test_float32_agrees_with_float64(case):
    low = case.arrays(np.float32)
    high = [a.astype(np.float64) for a in low]
    _, out = run(case, low)
    _, want = run(case, high)
    np.testing.assert_allclose(out.numpy(), want.numpy(), **CLOSE[np.float32])
    wide = [None if g is None else g.astype(np.float64) for g in gradients(case, low)]
    assert_close(wide, gradients(case, high), np.float32)


@dataclass(frozen=True)
class Layout:
    """Another way to lay the same numbers out in memory, and the way back to them."""

    spread: Callable[[np.ndarray], np.ndarray]
    restore: Callable[[Any], Any]


LAYOUTS = {
    "fortran": Layout(lambda a: a.copy(order="F"), lambda x: x),
    "transposed": Layout(lambda a: a.T.copy(), tg.transpose),
    "strided": Layout(lambda a: a.repeat(2, axis=-1), lambda x: x[..., ::2]),
    "reversed": Layout(lambda a: a[..., ::-1].copy(), lambda x: x[..., ::-1]),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@over(CASES)
def test_memory_layout_changes_nothing(case, layout):
    arrays = case.arrays()
    seed = random_like(run(case, arrays)[1])
    leaves = [tg.param(layout.spread(a) if a.ndim else a) for a in arrays]
    views = [layout.restore(leaf) if leaf.ndim else leaf for leaf in leaves]
    with only_singular_points_warn(case):
        case.function()(*views).backward(seed.copy(order="F"))
    assert_close([restored_grad(layout, leaf) for leaf in leaves], gradients(case, arrays, seed))


def restored_grad(layout: Layout, leaf: tg.Tensor) -> np.ndarray | None:
    if leaf.grad is None or not leaf.ndim:
        return leaf.grad
    return layout.restore(tg.tensor(leaf.grad)).numpy()


@over(CASES)
def test_nothing_given_is_changed(case):
    arrays, fixed = case.arrays(), case.fixed()
    before = copy.deepcopy([arrays, fixed])
    leaves = [tg.param(a) for a in arrays]
    with only_singular_points_warn(case):
        out = case.run(*leaves, *fixed)
    seed, result = random_like(out), out.numpy()
    out.backward(seed)
    np.testing.assert_equal([arrays, fixed], before)
    np.testing.assert_equal([leaf.numpy() for leaf in leaves], before[0])
    np.testing.assert_array_equal(out.numpy(), result)
    np.testing.assert_array_equal(seed, random_like(out))


@over(SMOOTH)
def test_seed_weighs_the_outputs(case):
    arrays = case.arrays()
    leaves, out = run(case, arrays)
    seed = random_like(out)
    tg.sum(out * seed).backward()
    assert_close(gradients(case, arrays, seed), [leaf.grad for leaf in leaves])


@over(SMOOTH)
def test_gradient_is_linear_in_the_seed(case):
    arrays = case.arrays()
    one, two = (random_like(run(case, arrays)[1], seed) for seed in (1, 2))
    parts = zip(gradients(case, arrays, one), gradients(case, arrays, two), strict=True)
    assert_close(gradients(case, arrays, 3.0 * one - two), [3.0 * g - h for g, h in parts])


@over(CASES)
def test_backward_twice_adds_twice(case):
    leaves, out = run(case, case.arrays())
    out.backward()
    once = [None if leaf.grad is None else leaf.grad.copy() for leaf in leaves]
    out.backward()
    assert_close([leaf.grad for leaf in leaves], [None if g is None else g + g for g in once])


def test_a_rule_is_handed_what_its_operation_saved(monkeypatch, request):
    op = Op("saving", lambda x: (2.0 * x, x + 1.0), saves=True)
    request.addfinalizer(lambda: OPS.pop("saving"))
    monkeypatch.setitem(fallback.VJPS, "saving", (lambda g, y, x, *, saved: g * saved,))
    x = tg.param([3.0])
    apply(op, (x,)).backward()
    np.testing.assert_array_equal(x.grad, [4.0])
