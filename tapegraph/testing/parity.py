"""`check_parity`: one engine against the other."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tapegraph.errors import explain, kind_of
from tapegraph.recording.node import Node
from tapegraph.recording.trace import linearise
from tapegraph.tensors.tensor import Tensor, param
from tapegraph.typed import Array, ArrayLike

if TYPE_CHECKING:
    from tapegraph.tensors.dual import Dual


# Agreement between the engines, by the dtype of the leaf: (rtol, atol).
PARITY_TOLERANCE = {"float64": (1e-9, 1e-12), "float32": (1e-4, 1e-5)}


@dataclass(frozen=True)
class ParityReport:
    """What `check_parity` compared.

    Attributes
    ----------
    backend : str
        ``"tensorflow"`` where both engines ran, ``"native"`` where the tape has no lowering.
    reason : str or None
        Why it has none.
    max_abs_difference, max_rel_difference : float
        The worst over all gradients; 0 where nothing was compared.
    gradients : list of ndarray
        The native ones, one per input.
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

    The result's cotangent is drawn at random. No ``.grad`` is written.

    Parameters
    ----------
    f : callable
        Takes one tensor per input, returns a tensor of any shape.
    *inputs : array_like
        Values of the leaves; float32 arrays are computed in float32.
    rtol, atol : float, optional
        ``|graph - native| <= atol + rtol * |native|``; by the leaf's dtype where not given:
        1e-9 and 1e-12 for float64, 1e-4 and 1e-5 for float32.
    seed : int
        Of the cotangent.

    Returns
    -------
    ParityReport

    Raises
    ------
    AssertionError
        A gradient differs; names the leaf, the worst index and both numbers.
    RuntimeError
        TensorFlow cannot be used here, or ``f``'s result needs no gradient.

    Examples
    --------
    >>> import tapegraph as tg
    >>> report = tg.testing.check_parity(tg.tanh, [0.5, 1.0])  # doctest: +SKIP
    >>> report.backend  # doctest: +SKIP
    'tensorflow'
    """
    leaves = [param(x, name=f"input {i}") for i, x in enumerate(inputs)]
    out = f(*leaves)
    if not isinstance(out, Node):
        raise TypeError(explain("check_parity", f"f returning {kind_of(out)}", "a Tensor"))
    if not out._requires_grad:
        raise RuntimeError(explain("check_parity", "a result that needs no gradient", "one"))
    recording = linearise([out])
    nodes, wanted = recording.nodes, recording.program.wanted
    shape, dtype = out._array.shape, out._array.dtype
    cotangent = np.random.default_rng(seed).uniform(-1.0, 1.0, shape).astype(dtype)
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
    """Return the worst differences of two gradients, or raise naming the worst element."""
    if not native.size:
        return 0.0, 0.0
    with np.errstate(all="ignore"):
        same = (native == graph) | (np.isnan(native) & np.isnan(graph))
        error = np.where(same, 0.0, np.abs(graph - native))
        allowed = np.where(np.isfinite(native), atol + rtol * np.abs(native), 0.0)
        excess = np.where(same, -1.0, np.nan_to_num(error - allowed, nan=np.inf))
        # Below atol / rtol the absolute difference is what is judged.
        floor = atol / rtol if rtol > 0 and atol > 0 else np.finfo(np.float64).tiny
        relative = np.where(same, 0.0, error / np.maximum(np.abs(native), floor))
    if (excess > 0.0).any():
        where = tuple(int(k) for k in np.unravel_index(np.argmax(excess), excess.shape))
        raise AssertionError(
            f"check_parity: {leaf} at index {where}: the native engine gives {native[where]!r}, "
            f"TensorFlow gives {graph[where]!r} (rtol={rtol}, atol={atol})"
        )
    return float(error.max()), float(relative.max())
