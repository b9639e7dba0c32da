"""Extremes, products, spreads and running sums."""

from __future__ import annotations
