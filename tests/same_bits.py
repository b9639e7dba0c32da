"""Arrays compared bit for bit, but for the payload and the sign of a NaN."""

from __future__ import annotations

import numpy as np

from tapegraph.typed import Array


def differs(got: Array, want: Array) -> str:
    """Return the first difference of two arrays in words, or nothing."""
    if got.dtype != want.dtype:
        return f"dtype {got.dtype}, and {want.dtype} wanted"
    if got.shape != want.shape:
        return f"shape {got.shape}, and {want.shape} wanted"
    for part in (np.real, np.imag) if want.dtype.kind == "c" else (np.asarray,):
        ours, theirs = part(got), part(want)
        other = ours != theirs
        if want.dtype.kind in "fc":
            other = other | (np.signbit(ours) != np.signbit(theirs))
            other &= ~(np.isnan(ours) & np.isnan(theirs))
        if other.any():
            place = np.unravel_index(np.argmax(other), other.shape)
            at = [int(i) for i in place]
            return f"{got[place]!r} at {at}, and {want[place]!r} wanted"
    return ""


def same_bits(got: Array, want: Array) -> None:
    """Raise if two arrays differ in a bit, in shape or in dtype."""
    difference = differs(got, want)
    if difference:
        raise AssertionError(f"{difference}: {got} and {want}")
