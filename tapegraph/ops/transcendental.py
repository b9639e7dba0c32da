"""Logarithms, exponentials, hyperbolic and inverse trigonometric functions, element by element."""

from __future__ import annotations
