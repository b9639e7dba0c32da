"""`convolve` over chosen axes, with autograd's arguments, and `fftconvolve`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.arrays import check_one_of
from tapegraph.autograd.scipy import formula_of, passed_on
from tapegraph.errors import message
from tapegraph.ops import fft
from tapegraph.typed import DuckArray


def convolve(
    A: DuckArray, B: DuckArray, axes: Any = None, dot_axes: Any = ((), ()), mode: str = "full"
) -> DuckArray:
    """Convolve two arrays over some axes, and contract them over others.

    :param A, B, axes, dot_axes: The arrays, and the axes of each to convolve (all) and to sum over.
    :param mode: "full" for every overlap, "same" for as many as ``A`` has, or "valid" for complete
        ones, where ``B`` must be smaller along every axis.
    :returns: An array with the other axes of ``A``, those of ``B``, and the convolved ones.
    :raises ValueError: The mode is unknown, or ``B`` is larger than ``A`` under ``"valid"``.
    """
    check_one_of("convolve", "mode", mode, "full", "same", "valid")
    if axes is None:
        axes = (range(np.ndim(A)), range(np.ndim(B)))
    (along_a, along_b), (dot_a, dot_b) = (
        [[axis % np.ndim(x) for axis in chosen] for x, chosen in zip((A, B), given, strict=True)]
        for given in (axes, dot_axes)
    )
    other_a = [axis for axis in range(np.ndim(A)) if axis not in (*along_a, *dot_a)]
    other_b = [axis for axis in range(np.ndim(B)) if axis not in (*along_b, *dot_b)]
    # Other axes first, then the summed ones, then the convolved ones.
    A = np.transpose(A, (*other_a, *dot_a, *along_a))
    B = np.transpose(B, (*other_b, *dot_b, *along_b))
    n = len(along_a)
    sizes = np.shape(B)[np.ndim(B) - n :]
    if mode != "valid":
        before = [size - 1 if mode == "full" else size // 2 for size in sizes]
        after = [size - 1 if mode == "full" else (size - 1) // 2 for size in sizes]
        A = np.pad(A, [(0, 0)] * (np.ndim(A) - n) + list(zip(before, after, strict=True)))
    if any(a < b for a, b in zip(np.shape(A)[np.ndim(A) - n :], sizes, strict=True)):
        received = f"shapes {np.shape(A)} and {np.shape(B)}"
        raise ValueError(message("convolve", received, "a second array that fits into the first"))
    for k, size in enumerate(sizes):
        # Each convolved axis becomes windows, and an axis in the window, at the end.
        axis = len(other_a) + len(dot_a) + k
        places = np.arange(np.shape(A)[axis] - size + 1)[:, None] + np.arange(size)[::-1]
        A = np.moveaxis(np.take(A, places, axis=axis), axis + 1, -1)
    summed_a = [*range(len(other_a), len(other_a) + len(dot_a)), *range(np.ndim(A) - n, np.ndim(A))]
    summed_b = range(len(other_b), np.ndim(B))
    out = np.tensordot(A, B, (summed_a, list(summed_b)))
    last = range(len(other_a), len(other_a) + n)
    return np.moveaxis(out, list(last), list(range(np.ndim(out) - n, np.ndim(out))))


fftconvolve = formula_of("signal")(fft.fftconvolve)


def __getattr__(name: str) -> Any:
    return passed_on("signal", name)
