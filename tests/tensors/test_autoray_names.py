"""Names that libraries look for in the module of an array's class, as autoray does."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg

X = tg.param([3.0, 4.0])
M = tg.param([[2.0, 1.0], [1.0, 3.0]])


def looked_up(name):
    """Find a function as autoray does: by the first name of the class's module, and attributes."""
    module, *path = [type(X).__module__.partition(".")[0], *name.split(".")]
    assert module == "tapegraph"
    found = tg
    for part in path:
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", ["norm", "svd", "eigh", "solve", "inv", "qr", "det", "cholesky"])
def test_linear_algebra(name):
    more = (X,) if name == "solve" else ()
    found = looked_up(f"linalg.{name}")(M, *more)
    expected = getattr(np.linalg, name)(M.data, *(x.data for x in more))
    if not isinstance(found, tuple):
        found, expected = [found], [expected]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.data, theirs, rtol=1e-14)
        assert ours.requires_grad


def test_arrays_of_tensors():
    assert looked_up("array")([[1, 2]], dtype="float32").dtype == np.float32
    assert type(tg.array([1.0])) is tg.Tensor and not tg.array([1.0]).requires_grad
    x = tg.param(3.0)
    joined = tg.array([[x, x * x], (1.0, tg.tensor(2.0))])
    assert joined.data.tolist() == [[3.0, 9.0], [1.0, 2.0]]
    assert tg.gradients(tg.sum(joined), x)[0].data == 7.0
    assert tg.gradients(tg.array(x * 2.0, "float32"), x)[0].data == 2.0
    assert tg.array(x * 2.0, "float32").dtype == np.float32
    jvp = tg.jvp(lambda x: tg.array([x, x**2]), (3.0,), (1.0,))
    assert np.array_equal(jvp[1], [1.0, 6.0])
    with pytest.raises(TypeError, match="tensor"):
        tg.array(["text"])


def test_others():
    assert np.array_equal(looked_up("eye")(2, 3, 1).data, np.eye(2, 3, 1))
    assert tg.eye(2, dtype="float32").dtype == np.float32
    z = looked_up("complex")(X, [1.0, 2.0])
    assert z.data.tolist() == [3 + 1j, 4 + 2j]
    assert tg.gradients(tg.sum(tg.abs(z) ** 2), X)[0].data.tolist() == [6.0, 8.0]
    assert looked_up("argsort")(-X).tolist() == [1, 0]
    plain = looked_up("to_numpy")(X)
    assert type(plain) is np.ndarray and plain.tolist() == [3.0, 4.0]
    assert tg.to_numpy(tg.Dual(1.0, 2.0)) == 1.0 and tg.to_numpy([1.0]).tolist() == [1.0]
    plain[0] = 9.0
    assert X.data[0] == 3.0


def test_autoray_finds_them():
    autoray = pytest.importorskip("autoray")
    assert autoray.infer_backend(X) == "tapegraph"
    assert autoray.do("linalg.norm", X).item() == 5.0
    assert autoray.do("eye", 2, like=X).data.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert autoray.do("argsort", X).tolist() == [0, 1]
