"""The arrays that leaves own."""

from __future__ import annotations

import numpy as np
import pytest

from tapegraph.arrays.buffers import ALIGNMENT, own


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8", "<i8", "?"])
def test_large_arrays_are_aligned_and_have_numpys_own_dtype(dtype):
    source = np.arange(1 << 15).astype(dtype)
    copy = own(source)
    assert copy.ctypes.data % ALIGNMENT == 0
    assert copy.dtype is np.dtype(source.dtype.type)
    np.testing.assert_array_equal(copy, source)
