"""TensorFlow nodes: Fourier transforms of the last axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tapegraph.lowering.rows.rules import Result, Row, Rule, cast_to, permuted, raw
from tapegraph.lowering.runtime import GraphTensor

_AXES = ("", "", "2D", "3D")  # by how many of the last axes a node takes


def _transform(node: str) -> Rule:
    def rule(out: Result, x: GraphTensor, *, axes: tuple[int, ...], norm: str) -> GraphTensor:
        rank, count = len(out.shape), len(axes)
        if sorted(axes) == list(range(rank - count, rank)) and count < len(_AXES):
            x = getattr(raw, node + _AXES[count])(input=x)
        else:
            for axis in axes:
                x = _along(axis, rank, getattr(raw, node), x)
        size = math.prod(out.shape[axis] for axis in axes)
        return _scaled(x, size, norm, forward=node == "FFT")

    return rule


def _along(
    axis: int, rank: int, node: Callable[..., GraphTensor], x: GraphTensor, **options: object
) -> GraphTensor:
    order = [*range(rank)]
    order[axis], order[-1] = order[-1], order[axis]
    if axis == rank - 1:
        return node(input=x, **options)
    return permuted(node(input=permuted(x, order), **options), order)


def _scaled(x: GraphTensor, size: Any, norm: str, *, forward: bool) -> GraphTensor:
    """Scale TensorFlow's result, whose norm is "backward"."""
    factor = {"backward": 1.0, "ortho": math.sqrt(size), "forward": size}[norm]
    if factor == 1.0:
        return x
    return x * (1.0 / factor if forward else factor)


def _rfft(out: Result, x: GraphTensor, *, axis: int, norm: str) -> GraphTensor:
    real = cast_to(x, "float32" if out.dtype == "complex64" else "float64")
    n = x.shape[axis]
    y = _along(axis, len(out.shape), raw.RFFT, real, fft_length=[n], Tcomplex=out.dtype)
    return _scaled(y, n, norm, forward=True)


def _irfft(out: Result, x: GraphTensor, *, n: int, axis: int, norm: str) -> GraphTensor:
    x = cast_to(x, "complex64" if out.dtype == "float32" else "complex128")
    y = _along(axis, len(out.shape), raw.IRFFT, x, fft_length=[n], Treal=out.dtype)
    return _scaled(y, n, norm, forward=False)


LOWERINGS: dict[str, Row | Rule] = {
    "fft": Row(_transform("FFT"), complex=True),
    "ifft": Row(_transform("IFFT"), complex=True),
    "rfft": Row(_rfft, complex=True),
    "irfft": Row(_irfft, complex=True),
}
