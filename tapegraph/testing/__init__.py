"""Checks for users: gradients against finite differences, and one engine against the other."""

from __future__ import annotations

from tapegraph.testing.finite_differences import GradientReport, check_gradients
from tapegraph.testing.parity import ParityReport, check_parity

__all__ = ["GradientReport", "ParityReport", "check_gradients", "check_parity"]
