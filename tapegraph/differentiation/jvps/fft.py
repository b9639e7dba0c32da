"""JVP rules: Fourier transforms."""

from __future__ import annotations

from tapegraph.differentiation.jvps.rules import Rule, linear
from tapegraph.ops import fft

JVPS: dict[str, Rule] = {
    "fft": linear(fft.FFT),
    "ifft": linear(fft.IFFT),
    "rfft": linear(fft.RFFT),
    "irfft": linear(fft.IRFFT),
}
