"""A tensor that would become an array is refused with what its caller's caller is to write."""

import importlib
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.recording.numpy_functions import WRAPPED

W = tg.param([1.0, 2.0, 3.0])
LOSSES = [tg.sum(W), tg.sum(W * W)]


def of_scipy(module, name, call):
    return lambda: call(getattr(pytest.importorskip(f"scipy.{module}"), name))


def plotted(values):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    Figure().subplots().plot(values)


def test_functions_of_numpys_testing_compare_tensors():
    np.testing.assert_allclose(W, [1.0, 2.0, 3.0 + 1e-12])
    np.testing.assert_array_equal(W * W, np.array([1.0, 4.0, 9.0]))
    np.testing.assert_array_less(W, W + 1.0)
    with pytest.raises(AssertionError, match="Mismatched elements: 1 / 3"):
        np.testing.assert_allclose(W, [1.0, 2.0, 4.0])
    with pytest.raises(tg.ConcretizationError, match=r"numpy\.asarray"):
        tg.compile(lambda x: np.testing.assert_allclose(x * W, x))(np.ones(3))


CALLERS = {
    "asarray": (lambda: np.asarray(W), ["numpy.asarray: ", "functions take tensors"]),
    "row": (lambda: np.r_[W, 1.0], ["numpy.lib: ", "np.concatenate((x, [1.0])) for np.r_"]),
    "columns": (lambda: np.c_[W, W], ["numpy.lib: ", "np.column_stack((x, y)) for np.c_"]),
    "diagonal": (
        lambda: np.fill_diagonal(np.zeros((3, 3)), W),
        ["numpy.fill_diagonal: ", "np.where(np.eye(n, dtype=bool), values, z)"],
    ),
    "array": (lambda: np.array(LOSSES), ["numpy.asarray: ", "np.stack", "z[:2] = x", "x.numpy()"]),
    "mean": (lambda: np.mean(LOSSES), ["numpy.mean: ", "numpy.mean(np.stack(tensors))", "item()"]),
    "vectorize": (lambda: np.vectorize(abs)(W), ["numpy.vec" * (sys.version_info >= (3, 11))]),
    "integrate": (
        of_scipy("integrate", "solve_ivp", lambda f: f(lambda t, y: -W[:1] * y, (0, 1), [1.0])),
        ["scipy.integrate.solve_ivp: ", "steps in NumPy", "tg.integrate.odeint"],
    ),
    "cholesky": (
        of_scipy("linalg", "cho_solve", lambda f: f((np.eye(3), True), W)),
        ["scipy.linalg.cho_solve: ", "np.linalg.solve(c.T, np.linalg.solve(c, b))"],
    ),
    "simpson": (
        of_scipy("integrate", "simpson", lambda f: f(W)),
        ["scipy.integrate.simpson: ", "np.trapezoid", "simpson(np.eye(n), x=x) @ y"],
    ),
    "batched": (
        of_scipy("linalg", "solve_triangular", lambda f: f(np.eye(3), W)),
        ["scipy.linalg.solve_triangular: ", "tapegraph.autograd.scipy.linalg"],
    ),
    "fft": (of_scipy("fft", "fft", lambda f: f(W)), ["scipy.fft.set_backend(tg.fft)"]),
    "filter": (
        of_scipy("signal", "fftconvolve", lambda f: f(W, W)),
        ["scipy.signal.fftconvolve: ", "tg.fft.fftconvolve"],
    ),
    "polynomial": (
        lambda: np.polynomial.legendre.legval(2.0, W),
        ["numpy.polynomial.legendre.legval: ", "legvander(x, degree) @ c"],
    ),
    "softmax": (
        of_scipy("special", "softmax", lambda f: f(W)),
        ["scipy.special.softmax: ", "tg.softmax(x, axis)"],
    ),
    "spline": (
        of_scipy("interpolate", "CubicSpline", lambda f: f(np.arange(3.0), W)),
        ["scipy.interpolate", "CubicSpline(knots, np.eye(n))(x) @ values"],
    ),
    "logsumexp": (
        of_scipy("special", "logsumexp", lambda f: f(W)),
        ["scipy.special.logsumexp: ", "tg.special.logsumexp"],
    ),
    "sparse": (
        of_scipy("sparse", "eye", lambda eye: eye(3).tocsr() @ W),
        ["scipy.sparse", "tg.defop", "docs/implicit.md"],
    ),
    "tensorflow": (
        lambda: pytest.importorskip("tensorflow").constant(W),
        ["tensorflow.constant: ", "tg.function(f)"],
    ),
    "plot": (lambda: plotted(LOSSES), ["matplotlib", "Plot plain numbers", "loss.item()"]),
}


@pytest.mark.filterwarnings("ignore:float.*:tapegraph.LostGradientWarning")
@pytest.mark.parametrize("caller", CALLERS)
def test_the_message_says_what_its_caller_is_to_write(caller):
    call, words = CALLERS[caller]
    with pytest.raises((TypeError, AttributeError)) as caught:
        call()
    text = str(caught.value)
    assert all(word in text for word in words), text
    # SciPy's transforms before 1.15 ask for x.flags first.
    asks = caller == "fft" and type(caught.value) is AttributeError
    assert asks or "an array would lose the gradient of a" in text
    assert len(text.partition(" (at ")[0]) < 330
    assert __file__ in text.partition(" (at ")[2]


def test_a_number_for_scipy_names_its_function_and_what_to_write():
    integrate, optimize = map(pytest.importorskip, ("scipy.integrate", "scipy.optimize"))
    p = tg.param(0.25)
    quad = r"float: .* In place of scipy\.integrate\.quad: Write w @ f\(x\), where x, w = np"
    with pytest.warns(tg.LostGradientWarning, match=quad):
        integrate.quad(lambda t: t * p, -1.0, 1.0)
    root = r"In place of scipy\.optimize\.brentq: .* tg\.optim\.root"
    with pytest.warns(tg.LostGradientWarning, match=root):
        optimize.brentq(lambda t: t - p, 0.0, 1.0)
    with pytest.raises(TypeError, match=r"In place of scipy\.integrate\.quad: Write w"):
        tg.grad(lambda p: integrate.quad(lambda t: t * p, -1.0, 1.0)[0])(0.25)
    with pytest.warns(tg.LostGradientWarning) as caught:
        float(p)
    assert "scipy" not in str(caught[0].message)


def test_a_library_that_is_not_known_is_named(tmp_path):
    package = tmp_path / "site-packages"
    package.mkdir()
    (package / "charts.py").write_text("import numpy as np\ndef bar(x):\n    np.asarray(x)\n")
    code = "import charts, tapegraph as tg\ncharts.bar(tg.param([1.0]))\n"
    paths = [str(package), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
    )
    assert "TypeError: charts.bar: an array would lose the gradient of a Tensor" in done.stderr
    assert "Give charts plain numbers: x.numpy()." in done.stderr


def test_what_the_messages_say_to_write_works():
    np.testing.assert_allclose(np.mean(np.stack(LOSSES)).item(), (6.0 + 14.0) / 2)
    np.testing.assert_array_equal(W.numpy(), [1.0, 2.0, 3.0])
    x, w = np.polynomial.legendre.leggauss(8)
    np.testing.assert_allclose((w @ np.exp(x * tg.param(1.0))).item(), np.e - 1 / np.e, rtol=1e-13)
    legendre, c = np.polynomial.legendre, np.arange(3.0)
    np.testing.assert_allclose((legendre.legvander(x, 2) @ W).numpy(), legendre.legval(x, c + 1))
    np.testing.assert_allclose(np.polyval(W[::-1], x).numpy(), 1.0 + 2.0 * x + 3.0 * x * x)
    sums = tg.add_at(np.zeros(2), [1, 0, 1], W).numpy()
    np.testing.assert_array_equal(sums, np.bincount([1, 0, 1], weights=W.numpy()))
    running = np.cumsum(np.diff(c) * (W[1:] + W[:-1]) / 2).numpy()
    np.testing.assert_array_equal(running, [1.5, 4.0])  # trapezoids below 1, 2, 3
    interpolate = pytest.importorskip("scipy.interpolate")
    places, at = np.arange(5.0), np.array([0.5, 2.25])
    values = tg.param(np.sin(places))
    ours = interpolate.CubicSpline(places, np.eye(5))(at) @ values
    theirs = interpolate.CubicSpline(places, np.sin(places))(at)
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-12)


def test_functions_without_a_gradient_run_on_constants(tmp_path):
    c = tg.tensor([3.0, 1.0, 3.0])
    np.testing.assert_array_equal(np.unique(c), [1.0, 3.0])
    windows = np.lib.stride_tricks.sliding_window_view(c, 2)
    np.testing.assert_array_equal(windows, [[3.0, 1.0], [1.0, 3.0]])
    np.save(tmp_path / "c.npy", c)
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), [3.0, 1.0, 3.0])
    np.savez(tmp_path / "c.npz", c=c)
    np.testing.assert_array_equal(np.load(tmp_path / "c.npz")["c"], [3.0, 1.0, 3.0])
    np.testing.assert_allclose(c, [3.0, 1.0, 3.0])  # NumPy's tests take them as arrays
    with tg.no_grad():
        np.testing.assert_array_equal(np.unique(W * 0.0), [0.0])


def test_they_never_write_into_a_constant():
    c = tg.tensor([3.0, 1.0])
    with pytest.raises(TypeError, match=r"numpy\.copyto: a tensor cannot change in place"):
        np.copyto(c, [0.0, 0.0])
    np.apply_along_axis(lambda row: row.fill(0.0), 0, c)
    np.testing.assert_array_equal(c.numpy(), [3.0, 1.0])


def test_what_needs_a_gradient_is_refused_inside_lists_too():
    with pytest.raises(TypeError, match=r"numpy\.unique: the function has no gradient"):
        np.unique(W)
    with pytest.raises(TypeError, match=r"numpy\.apply_over_axes"):
        np.apply_over_axes(np.unique, W, [0])
    with pytest.raises(TypeError, match=r"numpy\.unique"):
        tg.grad(lambda x: tg.sum(x) * len(np.unique(x)))(np.ones(2))


def test_a_compiled_step_refuses_them_as_before():
    step = tg.compile(lambda x: tg.sum(x) * len(np.unique(x)))
    with pytest.raises(TypeError, match=r"numpy\.unique"):
        step(np.ones(2))


@pytest.mark.parametrize("name", ["log1p", "expm1", "cbrt"])
def test_scipys_names_of_numpys_functions(name):
    special = pytest.importorskip("scipy.special")
    x = tg.param([0.25, 0.5])
    y = getattr(special, name)(x)
    np.testing.assert_allclose(y.numpy(), getattr(np, name)([0.25, 0.5]), rtol=1e-15)
    tg.sum(y).backward()
    slopes = {
        "log1p": 1 / np.array([1.25, 1.5]),
        "expm1": np.exp([0.25, 0.5]),
        "cbrt": np.array([0.25, 0.5]) ** (-2 / 3) / 3,
    }
    np.testing.assert_allclose(x.grad, slopes[name], rtol=1e-14)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_a_matrix_and_a_masked_array_are_refused():
    matrix, x = np.matrix([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 2))
    calls = [lambda x: matrix * x, lambda x: x @ matrix, lambda x: np.where(x > 0, x, matrix)]
    for call in (*calls, lambda x: tg.tensor(matrix) * x):
        with pytest.raises(TypeError, match=r"is a matrix, .* Write np\.asarray\(matrix\), and @"):
            tg.grad(lambda x: np.sum(call(x)))(x)  # noqa: B023
    value, slope = tg.value_and_grad(lambda x: np.sum(np.asarray(matrix) @ x))(x)
    assert value == np.sum(matrix * x) == 20.0
    np.testing.assert_array_equal(slope, [[4.0, 4.0], [6.0, 6.0]])
    with pytest.raises(TypeError, match="is a masked array"):
        tg.param(x) * np.ma.masked_array(x, x > 1)


def test_a_ufunc_behind_a_function_of_scipys_has_its_name():
    special = pytest.importorskip("scipy.special")
    with pytest.raises(TypeError, match=r"^scipy\.special\.zeta: the function has no gradient"):
        special.zeta(W)
    with pytest.raises(TypeError, match=r"^<lambda> \(vectorized\): the function has no gradient"):
        np.frompyfunc(lambda t: t * 2, 1, 1)(W)


NEAREST = {
    "exp10": lambda x, y: 10.0**x,
    "rel_entr": lambda x, y: tg.special.xlogy(x, x / y),
    "kl_div": lambda x, y: tg.special.xlogy(x, x / y) - x + y,
    "ndtri": lambda x, y: np.sqrt(2) * tg.special.erfinv(2 * x - 1),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_ufunc_of_scipys_names_its_wrapper(name):
    special = pytest.importorskip("scipy.special")
    function, x = getattr(special, name), np.array([0.25, 0.75])
    others = (2, 1.5)[: function.nin - 1]
    with pytest.raises(TypeError, match=r"^scipy\.special\.\w+: .* Call (\S+),") as caught:
        function(*others, tg.param(x))
    module, wrapper = re.search(r"Call (\S+)\.(\w+),", str(caught.value)).groups()
    named = getattr(importlib.import_module(module), wrapper)
    wanted = (function(*others, x + 1e-6) - function(*others, x - 1e-6)) / 2e-6
    np.testing.assert_allclose(tg.grad(lambda x: named(*others, x).sum())(x), wanted, rtol=1e-6)


@pytest.mark.parametrize("name", NEAREST)
def test_the_nearest_to_scipys_is_the_same(name):
    special = pytest.importorskip("scipy.special")
    x, y = np.array([0.25, 0.75]), np.array([0.5, 0.125])
    function = getattr(special, name)
    theirs = function(*(x, y)[: function.nin])
    np.testing.assert_allclose(NEAREST[name](tg.param(x), y).numpy(), theirs, rtol=1e-12)
    with pytest.raises(TypeError, match=rf"scipy\.special\.{name}: .* Write .*"):
        function(*(tg.param(x), y)[: function.nin])
