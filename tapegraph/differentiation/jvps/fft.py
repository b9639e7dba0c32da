"""JVP rules: Fourier transforms."""

from __future__ import annotations

from tapegraph.differentiation.jvps.rules import Rule, linear_in_first
from tapegraph.ops import fft

JVPS: dict[str, Rule] = {
    "fft": linear_in_first(fft.FFT),
    "ifft": linear_in_first(fft.IFFT),
    "rfft": linear_in_first(fft.RFFT),
    "irfft": linear_in_first(fft.IRFFT),
}
