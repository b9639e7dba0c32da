"""The arrays that leaves own."""

from __future__ import annotations

import numpy as np
import pytest

from tapegraph.arrays import ALIGNMENT, as_it_lies, own


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8", "<i8", "?"])
def test_large_arrays_are_aligned_and_have_numpys_own_dtype(dtype):
    source = np.arange(1 << 15).astype(dtype)
    copy = own(source)
    assert copy.ctypes.data % ALIGNMENT == 0
    assert copy.dtype is np.dtype(source.dtype.type)
    np.testing.assert_array_equal(copy, source)


def test_a_copy_of_repeated_matrices_has_each_of_them_in_one_piece():
    matrix = np.arange(6.0).reshape(2, 3)
    for view, strides in (
        (np.broadcast_to(matrix, (4, 2, 3)), (48, 24, 8)),
        (np.broadcast_to(matrix.T, (4, 3, 2)), (48, 8, 24)),
        (np.broadcast_to(matrix[:, None], (2, 4, 3)), (24, 48, 8)),
        (matrix.T, (8, 24)),
    ):
        copy = as_it_lies(view)
        np.testing.assert_array_equal(copy, view)
        assert copy.strides == strides and copy.base is not view.base
