"""Products of vectors, matrices and tensors."""

from __future__ import annotations
