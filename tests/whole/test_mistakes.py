"""Common mistakes and their messages; docs/sharp-bits.md shows the rest."""

import inspect
import warnings
from contextlib import contextmanager

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.recording.numpy_functions import NEAREST as WRITTEN
from tapegraph.recording.numpy_functions import is_known


@contextmanager
def warned():
    """Collect what is warned of as Python's own filters let it through: once a line."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        yield seen


def multiplied(w, factor):
    return tg.sum(w * factor), inspect.currentframe().f_lineno


def test_float64_beside_float32_is_warned_of_once_a_line():
    w = tg.param(np.ones(3), dtype="float32", name="w")
    with warned() as seen:
        for _ in range(3):
            loss, line = multiplied(w, np.ones(3))
            loss.backward()
    assert [(w.filename, w.lineno) for w in seen] == [(__file__, line)]
    text = str(seen[0].message)
    assert text.startswith("mul: received float64 of shape (3,) beside float32 'w' of shape (3,)")
    with warned() as seen:
        tg.sum(w * np.float64(2.0)).backward()
    assert "Write a Python number, float(number)" in str(seen[0].message)
    assert w.grad.dtype == np.float32 and w.grad.tolist() == [5.0, 5.0, 5.0]


@pytest.mark.parametrize(
    "loss",
    [
        lambda w: tg.sum(w * 2.0),
        lambda w: tg.sum(w * np.ones(3, np.float32)),
        lambda w: tg.sum(w.astype("float64")),
        lambda w: tg.sum(tg.param(np.ones(3)) * np.ones(3)),
        lambda w: tg.sum(w[np.array([0, 2])]),
    ],
)
def test_what_is_meant_is_not_warned_of(loss):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(tg.param(np.ones(3), dtype="float32")).backward()


def test_float64_in_a_compiled_step_is_warned_of():
    w = tg.param(np.ones(3), dtype="float32")

    @tg.compile
    def step(x):
        loss = tg.sum(w * x)
        loss.backward()
        return loss

    with warned() as seen:
        for _ in range(4):
            step(np.ones(3))
    assert ["beside float32" in str(w.message) for w in seen] == [True]


def test_a_count_names_the_call_that_took_a_new_trace():
    step = tg.compile(lambda x, epoch: x * epoch)
    with pytest.warns(RuntimeWarning, match=r"the last for <lambda>\(x: float64\[2\], epoch=7\)"):
        for epoch in range(9):
            step(np.ones(2), epoch)


def test_a_condition_of_many_and_math():
    import math

    x = tg.param(np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"bool: .* Write tg.where\(condition, a, b\)"):
        bool(x)
    with pytest.raises(ValueError, match=r"float: .* tg.sin\(x\) for math.sin\(x\)"):
        math.sin(x)


# The nearest that differentiates, as the messages say it, is NumPy's function by its numbers.
A = np.array([1.0, 2.0, 4.0])
N = np.array([1.0, np.nan, 3.0])
M = np.array([[2.0, 1.0], [1.0, 3.0]])
NEAREST = {
    np.correlate: (
        lambda x: np.convolve(x, np.conj(A)[::-1], "same"),
        lambda x: np.correlate(x, A, "same"),
        A,
    ),
    np.ediff1d: (lambda x: np.diff(np.ravel(x)), np.ediff1d, A),
    np.fix: (np.trunc, np.fix, A - 2.5),
    np.i0: (lambda x: tg.special.i0(x), np.i0, A),
    np.modf: (lambda x: x - np.trunc(x), lambda x: np.modf(x)[0], A + 0.25),
    np.nancumprod: (lambda x: np.cumprod(np.where(np.isnan(x), 1.0, x)), np.nancumprod, N),
    np.nancumsum: (lambda x: np.cumsum(np.where(np.isnan(x), 0.0, x)), np.nancumsum, N),
    np.nanprod: (lambda x: np.prod(np.where(np.isnan(x), 1.0, x)), np.nanprod, N),
    np.nanmedian: (lambda x: np.median(x[~np.isnan(N)]), np.nanmedian, N),
    np.vander: (lambda x: x[:, None] ** np.arange(3)[::-1], np.vander, A),
    np.linalg.cond: (
        lambda x: (s := np.linalg.svd(x, compute_uv=False))[0] / s[-1],
        np.linalg.cond,
        M,
    ),
    np.polyfit: (
        lambda y: np.linalg.lstsq(A[:, None] ** np.arange(3), y)[0],
        lambda y: np.polyfit(A, y, 2)[::-1],
        A**2 + 1.0,
    ),
}


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")  # on the newest NumPy
@pytest.mark.parametrize("function", NEAREST, ids=lambda f: f.__name__)
def test_the_nearest_that_differentiates(function):
    nearest, numpys, x = NEAREST[function]
    assert function in WRITTEN
    leaf = tg.param(x)
    if not is_known(function) and function not in (np.correlate, np.polyfit):
        with pytest.raises(TypeError, match="the function has no gradient"):
            numpys(leaf)
    result = nearest(leaf)
    assert result.requires_grad
    np.testing.assert_allclose(result.numpy(), numpys(x), rtol=1e-12, atol=1e-12)


# -- updates in place ----------------------------------------------------------------------------


def end_doubled(u):
    v = u[1:]
    v *= 2.0
    return np.sum(u)


def rows_raised(u):
    for r in u:
        r += 1.0
    return np.sum(u)


def transposed(u):
    v = u.T
    v += 1.0
    return np.sum(u)


def laid_out(u):
    v = u.reshape(-1)
    v += 1.0
    return np.sum(u)


def of_a_result(u):
    w = u * u
    v = w[1:]
    v *= 2.0
    return np.sum(w)


def other_name(u):
    old = u
    u += 1.0
    return np.sum(old * u)


def _raise(a):
    a += 1.0


def by_a_helper(u):
    _raise(u)
    return np.sum(u)


def kept_in_a_list(u):
    s, kept = u * 1.0, []
    for _ in range(3):
        s *= 2.0
        kept.append(s)
    return np.sum(np.stack(kept))


def read_before(u):
    s = np.exp(u)
    y = s * s
    s *= 3.0
    s += y
    return np.sum(s * y)


def each_row_by_itself(u):
    total = 0.0
    for r in u:
        r -= np.mean(r)
        total += np.sum(r**2)
    return total


def copied(u):
    v = u[[1, 0]]
    v *= 2.0
    return np.sum(u)


def numbers(u):
    s = np.sum(u)
    old = s
    s *= 2.0
    return s + old


AS_NUMPY = [read_before, each_row_by_itself, copied, numbers]
OTHERWISE = [
    end_doubled, rows_raised, transposed, laid_out, of_a_result, other_name, by_a_helper,
    kept_in_a_list,
]  # fmt: skip
HOW = {
    "grad": lambda f, x: tg.value_and_grad(f)(x)[0],
    "hessian": lambda f, x: tg.hessian(f)(x) is None or f(tg.tensor(x) * 1.0).item(),
    "compiled": lambda f, x: tg.compile(tg.value_and_grad(f))(x)[0],
    "checkpoint": lambda f, x: tg.value_and_grad(tg.checkpoint(f))(x)[0],
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("f", OTHERWISE)
def test_what_an_update_in_place_changes_in_numpy_alone_is_warned_of(f, how):
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    with pytest.warns(UserWarning, match=r"before the update in place at .*v = v \* 2") as seen:
        value = HOW[how](f, x)
    assert value != f(x.copy())
    first = f.__code__.co_firstlineno
    assert all(w.filename == __file__ and first < w.lineno < first + 7 for w in seen)
    places = [int(str(w.message).split("place at ")[1].split(",")[0].split(":")[-1]) for w in seen]
    first = (_raise if f is by_a_helper else f).__code__.co_firstlineno
    assert all(first < line < first + 7 for line in places)


def returned(u):
    v = u[0]
    v *= 2.0
    return u


READERS = {
    "jacobian": lambda x: tg.jacobian(returned)(x)[1, 1, 1, 1],
    "vjp": lambda x: tg.vjp(returned, x)[1](x)[1, 1] / 4.0,
    "scan": lambda x: (
        tg.scan(lambda c, y: (returned(c * tg.param(1.0)), y), x, x)[0].data[1, 1] / 4
    ),
    "cond": lambda x: tg.cond(True, returned, abs, tg.param(x) * 1.0).data[1, 1] / 4.0,
}


@pytest.mark.parametrize("reader", READERS)
def test_a_transform_whose_function_returns_the_old_numbers_warns(reader):
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    with pytest.warns(UserWarning, match=rf"^{reader}: .*before the update in place at") as seen:
        assert READERS[reader](x) == 1.0
    assert all(w.filename == __file__ for w in seen)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("f", AS_NUMPY)
def test_updates_that_give_numpys_numbers_are_not_warned_of(f, how):
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert HOW[how](f, x) == pytest.approx(f(x.copy()), rel=1e-12)


def test_a_warning_of_an_update_comes_once_and_changes_no_derivative():
    def f(u):
        v = u * 2.0
        old = v
        v += u**2
        return np.sum(old * v), np.sum(old)

    x = np.array([1.0, 3.0])
    with pytest.warns(UserWarning, match="^mul: ") as seen:
        _, slope = tg.value_and_grad(f, has_aux=True)(x)
    assert len(seen) == 1
    np.testing.assert_allclose(slope, 8.0 * x + 6.0 * x**2)  # of 2u (2u + u^2)


def test_a_loop_that_updates_parameters_outside_no_grad_is_warned_of_once():
    w = tg.param([1.0, 2.0], name="w")
    with warned() as seen:
        for _ in range(3):
            tg.sum(w * w).backward()
            for p in [w]:
                p -= 0.1 * p.grad
    assert [str(x.message).partition(" does not")[0] for x in seen] == [
        "an update in place: param 'w'"
    ]
    assert w.data.tolist() == [1.0, 2.0]


def w_is_a_result(zeroed_before):
    w = tg.param(3.0)
    for _ in range(3):
        if zeroed_before:
            w.grad = 0
        loss = (w - 1.0) ** 2
        loss.backward()
        w = w - 0.1 * w.grad
        w.grad = 0
    return w


@pytest.mark.parametrize("zeroed_before", [False, True])
def test_a_loop_that_zeroes_the_gradient_of_a_result_stops_with_warnings(
    zeroed_before, monkeypatch
):
    first = w_is_a_result.__code__.co_firstlineno
    with warned() as seen, pytest.raises(TypeError, match="NoneType"):
        w_is_a_result(zeroed_before)
    set_, *_, read = seen
    assert (set_.category, set_.lineno) == (tg.LostGradientWarning, first + 8)
    assert "a result of sub keeps no gradient" in str(set_.message)
    assert "with tg.no_grad(): w -= step" in str(set_.message)
    assert read.lineno == first + 7 and "keeps no gradient, so it is None" in str(read.message)
    monkeypatch.setenv("TAPEGRAPH_STRICT", "1")
    with pytest.raises(TypeError, match="^grad: the assignment has no effect: a result of sub"):
        w_is_a_result(zeroed_before)


def test_a_gradient_that_is_set_on_a_result_is_warned_of_until_it_is_retained():
    def step(x, retained, grad):
        y = x * 2.0
        if retained:
            y.retain_grad()
        y.grad = grad
        tg.sum(y).backward()
        return y

    x = tg.param([1.0, 2.0])
    for run in (step, tg.compile(step)):
        with pytest.warns(tg.LostGradientWarning, match=r"result of mul.*retain_grad\(\) on"):
            run(x, False, np.zeros(2))
    with pytest.warns(UserWarning, match="keeps no gradient, so it is None"):
        assert step(x, False, None).grad is None  # which deletes a gradient, as of a leaf
    assert step(x, True, np.ones(2)).grad.tolist() == [2.0, 2.0]


# -- steps and numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", [tg.SGD, tg.Adam])
@pytest.mark.parametrize("zeroed", [False, True])
def test_a_first_step_without_gradients_is_warned_of(kind, zeroed, compiled):
    w = tg.param([1.0, 2.0])
    optimizer = kind([w], lr=0.1)

    def step():
        loss = tg.sum(w * w)
        if zeroed:
            loss.backward()
        optimizer.zero_grad()
        optimizer.step()
        return loss

    run = tg.compile(step) if compiled else step
    with warned() as seen:
        for _ in range(4):
            run()
    first = step.__code__.co_firstlineno
    assert [(x.filename, x.lineno) for x in seen] == [(__file__, first + 5)]
    assert "step: no parameter has a gradient. Call backward()" in str(seen[0].message)


def test_a_step_of_other_parameters_than_the_losss_says_so():
    model = {"w": tg.param(1.0)}
    optimizer = tg.SGD(model, lr=0.1)
    model["w"] = tg.param(2.0)
    (model["w"] * 3.0).backward()
    with pytest.warns(UserWarning, match="loss uses other parameters than this optimizer's"):
        optimizer.step()
    assert model["w"].item() == 2.0


def test_a_step_with_a_gradient_is_not_warned_of():
    w, unused = tg.param([1.0, 2.0]), tg.param(1.0)
    optimizer = tg.SGD([unused, w], lr=0.1)
    tg.sum(w * 0.0).backward()
    optimizer.step()


def test_an_optimizer_says_where_its_result_comes_from():
    with pytest.raises(TypeError, match=r"SGD: .*a result of sub: w -= step makes one outside"):
        tg.SGD({"w": tg.param(1.0) - 0.1}, lr=0.1)
    with pytest.raises(TypeError, match=r"result of mul: .*Scale inside: tg\.param\(0\.1 \* a\)"):
        tg.SGD([tg.param([1.0, 2.0]) * 0.1], lr=0.1)


READ = {
    "item": lambda x: np.sum(x * 3.0).item(),
    "numpy": lambda x: np.sum(x.numpy() * 3.0),
}


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize(
    "transform",
    [
        lambda f: tg.grad(f)(np.ones(2)),
        lambda f: tg.jvp(f, (np.ones(2),), (np.ones(2),))[1],
        lambda f: tg.jacobian(f)(np.ones(2)),
        lambda f: tg.vjp(f, np.ones(2))[1](1.0),
        lambda f: tg.hessian(f)(np.ones(2)),
    ],
)
def test_a_function_that_returns_a_number_it_has_read_is_warned_of(transform, read, monkeypatch):
    f = READ[read]
    line = f.__code__.co_firstlineno
    with pytest.warns(tg.LostGradientWarning, match=rf"{read}\(\) at {__file__}:{line}.*zero"):
        assert not np.any(transform(f))
    monkeypatch.setenv("TAPEGRAPH_STRICT", "1")
    with pytest.raises(TypeError, match=rf"{read}\(\) at .*Return the tensor"):
        transform(f)


def test_numbers_that_are_read_beside_are_not_warned_of():
    seen = []

    def f(x):
        seen.append(x.item())
        return x * x.detach().item() if x.item() > 0.0 else x

    assert tg.grad(f)(3.0) == 3.0
    assert tg.grad(lambda x: 5.0)(3.0) == 0.0  # a constant, of whatever was read before
    assert tg.grad(lambda x: x.detach().item())(3.0) == 0.0
    assert seen == [3.0]


# -- messages ------------------------------------------------------------------------------------


def test_an_array_that_takes_a_tensor_at_places_is_sent_to_add_at():
    places, values = np.array([0, 1, 1]), np.array([1.0, 2.0, 4.0])

    def wrong(values):
        source = np.zeros(3)
        source[places] += 0.1 * values
        return np.sum(source)

    with pytest.raises(TypeError, match=r"tg\.add_at\(a, i, b\), which adds at repeated indices"):
        tg.grad(wrong)(values)
    with pytest.raises(TypeError, match=r"setitem: .*tg\.add_at\(a, i, b\)"):
        tg.param(values)[0] = 1.0
    wanted = np.zeros(3)
    np.add.at(wanted, places, values)
    np.testing.assert_array_equal(tg.add_at(np.zeros(3), places, values).data, wanted)


def test_data_that_takes_a_gradient_of_grad_is_sent_to_no_grad():
    w = tg.param([1.0, 2.0])
    g = tg.grad(lambda w: np.sum(w * w))(w)
    with pytest.raises(TypeError, match=r"with tg\.no_grad\(\): w -= step, or .*step\.numpy\(\)"):
        w.data -= 0.1 * g
    assert w.data.tolist() == [1.0, 2.0]
    w.data -= 0.1 * g.numpy()
    with tg.no_grad():
        w -= 0.1 * g
    np.testing.assert_allclose(w.data, [0.6, 1.2])


@pytest.mark.parametrize("given", [{"w": tg.param(np.ones((2, 2)))}, [tg.param(1.0)]])
def test_an_export_of_a_function_of_parameters_is_sent_to_a_closure(given, tmp_path):
    with pytest.raises(TypeError, match=r"export: received a (dict|list) for 'p'.*Close over par"):
        tg.export(lambda p, x: x, tmp_path / "model", given, np.ones((3, 2)))
    assert not any(tmp_path.iterdir())


def test_a_complex_hessian_is_by_real_and_imaginary_parts():
    def f(z):
        return np.sum(np.abs(z) ** 2)

    z = np.array([1.0 + 2.0j, 3.0 - 1.0j])
    with pytest.raises(TypeError, match=r"x \+ 1j \* y\), \(0, 1\)\)\(z\.real, z\.imag\)"):
        tg.hessian(f)(z)
    blocks = tg.hessian(lambda x, y: f(x + 1j * y), (0, 1))(z.real, z.imag)
    for i in (0, 1):
        for j in (0, 1):
            np.testing.assert_allclose(blocks[i][j], 2.0 * np.eye(2) * (i == j), atol=1e-12)
