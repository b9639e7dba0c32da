"""What holds for every operation, over every row of the table of cases."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from promises import named

import tapegraph as tg
from tapegraph import fallback
from tapegraph.recording.linearize import linearize
from tapegraph.recording.op import OPS, Op
from tapegraph.recording.record import apply
from tapegraph.testing import check_gradients
from tests.cases import CASES, Case
from tests.quick import a_few_each, check_each, each_operation

# The dtype's rounding, with room for a few operations.
CLOSE = {np.float64: {"rtol": 1e-12, "atol": 1e-12}, np.float32: {"rtol": 1e-4, "atol": 1e-5}}


@pytest.fixture(autouse=True)
def native_engine():
    tg.set_backend("native")


def only_singular_points_warn(case: Case) -> np.errstate:
    return np.errstate(all=None if case.smooth else "ignore")


class Run:
    """One case, recorded once on parameters; every promise below looks at it."""

    def __init__(self, case: Case, dtype: type = np.float64, arrays: Any = None) -> None:
        self.case = case
        self.arrays = case.arrays(dtype) if arrays is None else arrays
        self.fixed = case.fixed(self.arrays[0].dtype)
        self.before = copy.deepcopy([self.arrays, self.fixed])
        self.leaves = [tg.param(a) for a in self.arrays]
        with only_singular_points_warn(case):
            self.out = case.run(*self.leaves, *self.fixed)
        self.result = self.out.numpy()

    def gradients(self, seed: Any = None) -> list[np.ndarray | None]:
        for leaf in self.leaves:
            leaf.grad = None
        self.out.backward(seed)
        return [leaf.grad for leaf in self.leaves]


def random_like(array: Any, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 1.5, array.shape).astype(array.dtype)


def assert_close(got: list[Any], want: list[Any], dtype: type = np.float64) -> None:
    """Compare gradients one by one; None, for no gradient, equals None alone."""
    assert [g is None for g in got] == [w is None for w in want]
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if g is not None:
            np.testing.assert_allclose(g, w, **CLOSE[dtype], err_msg=f"input {i}", strict=True)


# ------------------------------------------------------------------ what every case promises


def the_operation_it_names_is_recorded(run: Run) -> None:
    assert run.case.op in [entry.op for entry in tg.tape()]
    assert run.out.requires_grad


def forward_agrees_with_numpy(run: Run) -> None:
    if run.case.reference is not None:
        want = np.asarray(run.case.reference(*run.arrays, *run.fixed))
        np.testing.assert_allclose(run.result, want, **CLOSE[np.float64], strict=True)


def gradient_is_the_derivative(run: Run) -> None:
    """By finite differences; at a kink, the one agreed."""
    if run.case.smooth:
        check_gradients(run.case.function(), *run.arrays, backend="native")
    else:
        want = [None if w is None else np.array(w, dtype=np.float64) for w in run.case.expected]
        assert_close(run.gradients(), want)


def gradients_have_the_shape_and_dtype_of_their_leaf(run: Run) -> None:
    assert run.out.dtype == run.arrays[0].dtype
    for leaf, grad in zip(run.leaves, run.gradients(), strict=True):
        if grad is not None:
            assert (grad.shape, grad.dtype) == (leaf.shape, leaf.dtype)


def backward_twice_adds_twice(run: Run) -> None:
    once = [None if g is None else g.copy() for g in run.gradients()]
    run.out.backward()
    assert_close([leaf.grad for leaf in run.leaves], [None if g is None else g + g for g in once])


def seed_weighs_the_outputs(run: Run) -> None:
    if run.case.smooth:
        seed = random_like(run.out)
        direct = run.gradients(seed)
        for leaf in run.leaves:
            leaf.grad = None
        tg.sum(run.out * seed).backward()
        assert_close(direct, [leaf.grad for leaf in run.leaves])


def gradient_is_linear_in_the_seed(run: Run) -> None:
    if run.case.smooth:
        one, two = (random_like(run.out, seed) for seed in (1, 2))
        parts = zip(run.gradients(one), run.gradients(two), strict=True)
        assert_close(run.gradients(3.0 * one - two), [3.0 * g - h for g, h in parts])


def nothing_given_is_changed(run: Run) -> None:
    """Looked at last: not by forward, and not by any backward until here."""
    seed = random_like(run.out)
    run.gradients(seed)
    np.testing.assert_array_equal(seed, random_like(run.out))
    np.testing.assert_equal([run.arrays, run.fixed], run.before)
    np.testing.assert_equal([leaf.numpy() for leaf in run.leaves], run.before[0])
    np.testing.assert_array_equal(run.out.numpy(), run.result)


PROMISES = (
    the_operation_it_names_is_recorded,
    forward_agrees_with_numpy,
    gradient_is_the_derivative,
    gradients_have_the_shape_and_dtype_of_their_leaf,
)
# They hang on the operation more than on the case: tried on three at most.
OF_THE_OPERATION = (
    backward_twice_adds_twice,
    seed_weighs_the_outputs,
    gradient_is_linear_in_the_seed,
    nothing_given_is_changed,
)


def float32_agrees_with_float64(low: Run) -> None:
    high = Run(low.case, arrays=[a.astype(np.float64) for a in low.arrays])
    np.testing.assert_allclose(low.result, high.result, **CLOSE[np.float32])
    wide = [None if g is None else g.astype(np.float64) for g in low.gradients()]
    assert_close(wide, high.gradients(), np.float32)


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


def memory_layout_changes_nothing(run: Run, layout: Layout) -> None:
    seed = random_like(run.out)
    leaves = [tg.param(layout.spread(a) if a.ndim else a) for a in run.arrays]
    views = [layout.restore(leaf) if leaf.ndim else leaf for leaf in leaves]
    with only_singular_points_warn(run.case):
        run.case.function()(*views).backward(seed.copy(order="F"))
    assert_close([restored_grad(layout, leaf) for leaf in leaves], run.gradients(seed))


def restored_grad(layout: Layout, leaf: tg.Tensor) -> np.ndarray | None:
    if leaf.grad is None or not leaf.ndim:
        return leaf.grad
    return layout.restore(tg.tensor(leaf.grad)).numpy()


def layouts_of(case: Case, thorough: bool) -> list[str]:
    """All layouts, or the one that falls to this case."""
    names = list(LAYOUTS)
    return names if thorough else [names[zlib.crc32(case.id.encode()) % len(names)]]


FIRST = {case.id for case in a_few_each(CASES, most=2)}


@each_operation(CASES)
def test_case_keeps_every_promise(op, thorough):
    check_each(op, CASES, lambda case: keeps_every_promise(case, thorough))


def keeps_every_promise(case: Case, thorough: bool) -> None:
    run = Run(case)
    whole = thorough or case.id in FIRST
    for promise in PROMISES + (OF_THE_OPERATION if whole else ()):
        with named(promise.__name__):
            promise(run)
    for name in layouts_of(case, thorough) if whole else ():
        with named(f"memory_layout_changes_nothing ({name})"):
            memory_layout_changes_nothing(run, LAYOUTS[name])
    low = Run(case, np.float32)
    for promise in (gradients_have_the_shape_and_dtype_of_their_leaf, float32_agrees_with_float64):
        with named(f"{promise.__name__} (float32)"):
            promise(low)


def test_a_rule_is_handed_what_its_operation_saved(monkeypatch, request):
    op = Op("saving", lambda x: (2.0 * x, x + 1.0), saves=True)
    request.addfinalizer(lambda: OPS.pop("saving"))
    monkeypatch.setitem(fallback.VJPS, "saving", (lambda g, y, x, *, saved: g * saved,))
    x = tg.param([3.0])
    apply(op, (x,)).backward()
    np.testing.assert_array_equal(x.grad, [4.0])


def test_a_cotangent_has_the_dtype_of_its_value():
    x, wide = tg.param(np.float32([0.1, 0.7])), np.array([1.0, 2.0]) / 3.0
    (grad,) = fallback.gradients(linearize([tg.sin(x) * wide]), [np.ones(2)])
    np.testing.assert_array_equal(grad, wide.astype(np.float32) * np.cos(x.data), strict=True)
