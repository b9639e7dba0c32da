"""Numbers that a check finds with autograd, kept for its run with the drop-in to be held against.

The run with autograd comes first, in the same folder.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

CALLS = {}


def same(*found, rtol=1e-9, atol=1e-11):
    """Keep numbers, with autograd; with the drop-in, hold them against those that were kept."""
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    CALLS[test] = CALLS.get(test, 0) + 1
    folder = Path(os.environ["CLIENT_REPORT"]).parent / "found"
    kept = folder / (re.sub(r"\W+", "_", test) + f"{CALLS[test]}.npz")
    arrays = [np.asarray(x) for x in found]
    assert all(np.isfinite(x).all() for x in arrays)
    if os.environ["CLIENT_LIBRARY"] == "autograd":
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.savez(kept, *arrays)
        return
    with np.load(kept) as expected:
        assert len(expected.files) == len(arrays)
        for i, x in enumerate(arrays):
            np.testing.assert_allclose(x, expected[f"arr_{i}"], rtol=rtol, atol=atol)
