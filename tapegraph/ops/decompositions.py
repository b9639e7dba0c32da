"""Solving, inverting and factorising matrices."""

from __future__ import annotations
