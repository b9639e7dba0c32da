"""Checks for users: gradients against finite differences, and one engine against the other."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tapegraph import pytree
from tapegraph.differentiation.gradients import backward
from tapegraph.engines.backend import get_backend, use_backend
from tapegraph.errors import kind_of, message, sentence
from tapegraph.kinds import Dual
from tapegraph.recording.linearize import linearize
from tapegraph.recording.node import Node, numeric
from tapegraph.recording.scopes import no_grad
from tapegraph.tensors.tensor import Tensor, param
from tapegraph.typed import Array, ArrayLike, Backend, Fun, Pytree

__all__ = ["GradientReport", "ParityReport", "check_gradients", "check_parity"]

# Agreement between the engines, by the dtype of the leaf: (rtol, atol).
PARITY_TOLERANCE = {
    **dict.fromkeys(("float64", "complex128"), (1e-9, 1e-12)),
    **dict.fromkeys(("float32", "complex64"), (1e-4, 1e-5)),
}


@dataclass(frozen=True)
class GradientReport:
    """The report of `check_gradients`.

    :ivar gradients, numeric: Gradients of the sum of ``f``'s result, by autograd and by finite
        differences: one array per input, or per leaf of a structure.
    :ivar max_abs_error, max_rel_error: The worst over all elements and both cotangents.
    :ivar checked: The number of elements.
    """

    gradients: list[Array]
    numeric: list[Array]
    max_abs_error: float
    max_rel_error: float
    checked: int


def check_gradients(
    f: Callable[..., Tensor | Dual],
    *inputs: Pytree,
    eps: float | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-7,
    backend: Backend | None = None,
    seed: int = 0,
) -> GradientReport:
    """Compare autograd with two-sided finite differences, element by element.

    The differences ``(f(x + h) - f(x - h)) / 2h`` of each input element ``x`` are contracted with
    two cotangents: ones, which the report shows, and random numbers of both signs, so that every
    output element counts and a rule must be linear in its cotangent.

    :param f: Takes one tensor per input, returns a tensor of any shape.
    :param *inputs: The points, in float64, or complex128, of which both parts move. Of dicts,
        dataclasses and lists of parameters each array moves.
    :param eps: ``h`` relative to ``max(1, |x|)``; by default the cube root of float64's precision.
    :param rtol, atol: Agreement is ``|a - n| <= atol + rtol * |n|``, or equality if not finite.
    :param backend: The engine to check; by default the one in force.
    :param seed: The random cotangent's seed.
    :returns: GradientReport.
    :raises AssertionError: A gradient disagrees; the message names the input, the index, the
        cotangent and both numbers.
    :raises TypeError: ``f`` returns no tensor, or there are no inputs.

    >>> report = tg.testing.check_gradients(lambda x: tg.sin(x) * x, [0.5, 1.0])
    >>> report.checked
    2
    """
    named: list[tuple[str, Any]] = []
    for i, x in enumerate(inputs):
        place = f"inputs[{i}]"
        named += pytree.leaves(x, place) if pytree.is_no_array(x) else [(place, x)]
    if not named:
        fix = "Pass the parameters: check_gradients(lambda w: ..., w), whose f reads its arguments."
        raise TypeError(message("check_gradients", "no inputs", "one or more", fix))
    given = [(place, x._array if isinstance(x, Node) else x) for place, x in named]
    points = [_doubled(numeric(x, "check_gradients", place)) for place, x in given]

    def run(leaves: Iterable[Any]) -> Any:
        content = iter(leaves)
        return f(
            *(
                pytree.replaced(x, content) if pytree.is_no_array(x) else next(content)
                for x in inputs
            )
        )

    leaves = [param(p) for p in points]
    out = run(leaves)
    if not isinstance(out, Tensor):
        raise TypeError(message("check_gradients", f"f returning {kind_of(out)}", "a Tensor"))
    cotangents = {
        "of ones": np.ones(out._array.shape),
        f"drawn with seed {seed}": _both_signs(out._array.shape, seed),
    }
    if out._array.dtype.kind == "c":
        turned = 1j * _both_signs(out._array.shape, seed + 1)
        cotangents = {name: drawn + turned for name, drawn in cotangents.items()}
    found = [_gradients(out, leaves, g, backend) for g in cotangents.values()]
    slopes = _differences(run, points, list(cotangents.values()), 6e-6 if eps is None else eps)
    worst_abs = worst_rel = 0.0
    for described, gradients, numbers in zip(cotangents, found, slopes, strict=True):
        for (place, _), got, want in zip(named, gradients, numbers, strict=True):
            with np.errstate(invalid="ignore"):
                error = np.where(got == want, 0.0, np.abs(got - want))
                right = (error <= atol + rtol * np.abs(want)) & (np.isfinite(want) | (error == 0))
            if not right.all():
                where = tuple(int(k) for k in np.argwhere(~right)[0])
                raise AssertionError(
                    f"check_gradients: {place} at index {where}: autograd gives {got[where]!r}, "
                    f"finite differences give {want[where]!r} for the cotangent {described} "
                    f"(rtol={rtol}, atol={atol})"
                )
            if error.size:
                worst_abs = max(worst_abs, float(error.max()))
                worst_rel = max(worst_rel, float((error / np.maximum(np.abs(want), 1e-12)).max()))
    checked = sum(p.size for p in points)
    return GradientReport(found[0], slopes[0], worst_abs, worst_rel, checked)


def _doubled(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _both_signs(shape: tuple[int, ...], seed: int) -> Array:
    """Draw numbers between 0.5 and 1.5 in size, of either sign, the first of them negative."""
    rng = np.random.default_rng(seed)
    sizes, signs = rng.uniform(0.5, 1.5, shape), rng.choice([-1.0, 1.0], shape)
    drawn = np.array(sizes * signs)
    drawn.flat[:1] = -np.abs(drawn.flat[:1])
    return drawn


def _gradients(out: Tensor, leaves: list[Any], g: Array, backend: Backend | None) -> list[Array]:
    for leaf in leaves:
        leaf.grad = None
    if out._requires_grad:
        with use_backend(backend or get_backend()):
            backward(out, g)
    return [
        np.zeros_like(leaf._array) if leaf.grad is None else leaf.grad.copy() for leaf in leaves
    ]


def _differences(
    run: Fun, points: list[Array], cotangents: list[Array], step: float
) -> list[list[Array]]:
    def value(moved: list[Array]) -> Array:
        with no_grad():
            return _doubled(run(map(param, moved))._array)

    slopes = [[np.zeros_like(point) for point in points] for _ in cotangents]
    for i, point in enumerate(points):
        for where in np.ndindex(point.shape):
            h = step * max(1.0, float(np.abs(point[where])))
            for unit in (1.0, 1j) if point.dtype.kind == "c" else (1.0,):
                sides = []
                for sign in (1.0, -1.0):
                    moved = list(points)
                    moved[i] = point.copy()
                    moved[i][where] += sign * h * unit
                    sides.append(value(moved))
                change = (sides[0] - sides[1]) / (2.0 * h)
                for found, g in zip(slopes, cotangents, strict=True):
                    # With g a complex result counts as the real part of conj(g) * result.
                    found[i][where] += unit * np.sum(change * np.conj(g)).real
    return slopes


@dataclass(frozen=True)
class ParityReport:
    """The report of `check_parity`.

    :ivar backend: ``"tensorflow"`` if both engines ran, ``"native"`` if the tape has no lowering.
    :ivar reason: Why the tape has no lowering.
    :ivar max_abs_difference, max_rel_difference: The worst; 0 if nothing was compared.
    :ivar gradients: The native ones, one per input.
    """

    backend: Literal["tensorflow", "native"]
    reason: str | None
    max_abs_difference: float
    max_rel_difference: float
    gradients: list[Array]


def check_parity(
    f: Callable[..., Tensor | Dual],
    *inputs: ArrayLike,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
) -> ParityReport:
    """Differentiate one recorded program with both engines and compare every gradient.

    The result's cotangent is random. No ``.grad`` is written.

    :param f: Takes one tensor per input, returns a tensor of any shape.
    :param *inputs: Values of the leaves; float32 arrays are computed in float32.
    :param rtol, atol: ``|graph - native| <= atol + rtol * |native|``; by default 1e-9 and 1e-12 for
        float64 leaves, 1e-4 and 1e-5 for float32 ones.
    :param seed: The cotangent's seed.
    :returns: ParityReport.
    :raises AssertionError: A gradient differs; the message names the leaf, the worst index and both
        numbers.
    :raises RuntimeError: TensorFlow cannot be used here, or ``f``'s result needs no gradient.

    >>> report = tg.testing.check_parity(tg.tanh, [0.5, 1.0])  # doctest: +SKIP
    >>> report.backend  # doctest: +SKIP
    'tensorflow'
    """
    given = [x._array if isinstance(x, Node) else x for x in inputs]
    leaves = [param(x, name=f"input {i}") for i, x in enumerate(given)]
    out = f(*leaves)
    if not isinstance(out, Node):
        raise TypeError(message("check_parity", f"f returning {kind_of(out)}", "a Tensor"))
    if not out._requires_grad:
        raise RuntimeError(sentence("check_parity", "f's result does not require a gradient."))
    recording = linearize([out])
    nodes, wanted = recording.nodes, recording.program.wanted
    shape, dtype = out._array.shape, out._array.dtype
    rng = np.random.default_rng(seed)
    cotangent = rng.uniform(-1.0, 1.0, shape).astype(dtype)
    if dtype.kind == "c":
        cotangent += 1j * rng.uniform(-1.0, 1.0, shape).astype(dtype)
    fallback = importlib.import_module("tapegraph.fallback")
    swept = [np.asarray(g) for g in fallback.gradients(recording, [cotangent])]
    by_leaf = {id(nodes[s]): g for s, g in zip(wanted, swept, strict=True)}
    gradients = [by_leaf.get(id(leaf), np.zeros_like(leaf._array)) for leaf in leaves]
    lowering = importlib.import_module("tapegraph.lowering")
    try:
        graph = [np.asarray(g) for g in lowering.gradients(recording, [cotangent])]
    except lowering.MetNaN as declined:
        graph = [np.asarray(g) for g in declined.grads]
    except lowering.NotLowered as error:
        return ParityReport("native", str(error), 0.0, 0.0, gradients)
    worst_abs = worst_rel = 0.0
    for slot, native, other in zip(wanted, swept, graph, strict=True):
        tolerance = PARITY_TOLERANCE[native.dtype.name]
        relative = tolerance[0] if rtol is None else rtol
        absolute = tolerance[1] if atol is None else atol
        differences = _compare(nodes[slot].name, native, other, relative, absolute)
        worst_abs, worst_rel = max(worst_abs, differences[0]), max(worst_rel, differences[1])
    return ParityReport("tensorflow", None, worst_abs, worst_rel, gradients)


def _compare(
    leaf: str, native: Array, graph: Array, rtol: float, atol: float
) -> tuple[float, float]:
    if not native.size:
        return 0.0, 0.0
    with np.errstate(all="ignore"):
        same = (native == graph) | (np.isnan(native) & np.isnan(graph))
        error = np.where(same, 0.0, np.abs(graph - native))
        allowed = np.where(np.isfinite(native), atol + rtol * np.abs(native), 0.0)
        excess = np.where(same, -1.0, np.nan_to_num(error - allowed, nan=np.inf))
        # Below atol / rtol the absolute difference decides.
        floor = atol / rtol if rtol > 0 and atol > 0 else np.finfo(np.float64).tiny
        relative = np.where(same, 0.0, error / np.maximum(np.abs(native), floor))
    if (excess > 0.0).any():
        where = tuple(int(k) for k in np.unravel_index(np.argmax(excess), excess.shape))
        raise AssertionError(
            f"check_parity: {leaf} at index {where}: the native engine gives {native[where]!r}, "
            f"TensorFlow gives {graph[where]!r} (rtol={rtol}, atol={atol})"
        )
    return float(error.max()), float(relative.max())


def __dir__() -> list[str]:
    return sorted(__all__)
