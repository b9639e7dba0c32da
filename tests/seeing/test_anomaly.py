"""The first NaN or infinity raises where it arises, and nothing has been written then."""

import gc
import inspect
import threading

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.recording.watchers import OTHERS


def here(offset=0):
    """Return ``file:line`` of the caller's line."""
    frame = inspect.currentframe().f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno + offset}"


def raised(f):
    before = list(OTHERS)  # such as the choice of a forward kernel
    with tg.anomaly(), pytest.raises(FloatingPointError) as caught:
        f()
    assert before == OTHERS
    return str(caught.value)


def test_a_forward_names_operation_operand_place_and_line():
    x = tg.param([4.0, 0.0, 2.0], name="x")
    with tg.anomaly(), pytest.raises(FloatingPointError) as caught:
        line = here(1)
        tg.log(x)
    text = str(caught.value)
    assert text.startswith("log: received x (param 'x') = 0.0; expected a finite result, not -inf")
    assert "at [1] (1 of 3)" in text and "x [4., 0., 2.]" in text and f"(at {line})" in text


def test_a_backward_names_the_line_that_recorded_it(engine):
    x = tg.param([4.0, 0.0], name="x")
    x.grad = [1.0, 2.0]
    line = here(1)
    y = tg.sqrt(x)
    before = len(tg.tape())
    text = raised(lambda: tg.sum(y).backward())
    assert "backward of sqrt: received a gradient for x of inf at [1] (1 of 2)" in text
    assert f"was recorded at {line}." in text and "(param 'x') = 0.0" in text
    gc.collect()  # the error's frames have held what was recorded
    assert x.grad.tolist() == [1.0, 2.0] and len(tg.tape()) == before


def test_an_infinity_on_the_way_counts_though_no_gradient_shows_it():
    x = tg.param([-1.0, 4.0], name="x")
    y = tg.relu(x) ** 0.5  # at 0 its slope is infinite, and relu's is zero
    with tg.use_backend("native"):
        assert "backward of pow" in raised(lambda: tg.sum(y).backward())
        tg.sum(y).backward()
    assert x.grad[1] == 0.25


@pytest.mark.parametrize("record", [False, True])
def test_strong_zeros_are_none(engine, record):
    x = tg.param([4.0, 0.0])
    with tg.anomaly():
        y = tg.sum(np.where(x.data > 0, tg.sqrt(x), 0.0))
        (grad,) = tg.gradients(y, x, create_graph=record)
    assert grad.numpy().tolist() == [0.25, 0.0]


def test_a_recorded_gradient_is_looked_at():
    x = tg.param([4.0, 0.0])
    text = raised(lambda: tg.gradients(tg.sum(tg.sqrt(x)), x, create_graph=True))
    assert "backward of sqrt" in text


def test_an_infinity_that_is_fed_is_meant_and_a_nan_is_named():
    x = tg.param([1.0, 2.0], name="x")
    with tg.anomaly():
        p = tg.softmax(np.where(np.array([True, False]), x, -np.inf))
        tg.sum(p * p).backward()
    assert p.numpy().tolist() == [1.0, 0.0]
    w = tg.param([1.0, np.inf], name="w")
    text = raised(lambda: w - np.inf)
    assert "x1 (param 'w') came in with inf (1 of 2)" in text and "not nan at [1]" in text
    bad = tg.param([1.0, np.nan], name="bad")
    assert "(param 'bad') came in with nan (1 of 2)" in raised(lambda: x * bad)
    assert raised(lambda: tg.backward(x * 1.0, [1.0, np.inf])).startswith(
        "backward: received a seed with inf"
    )


def test_forward_mode_and_rows_of_jacobians():
    def f(x):
        return tg.sqrt(x)

    zero = np.array([1.0, 0.0])
    assert "tangent of sqrt" in raised(lambda: tg.jvp(f, [zero], [np.ones(2)]))
    assert "backward of sqrt" in raised(lambda: tg.jacobian(f)(zero))
    with tg.anomaly():
        assert np.allclose(tg.jacobian(f)(np.array([1.0, 4.0])), np.diag([0.5, 0.25]))
        _, tangent = tg.jvp(f, [np.array([1.0, 4.0])], [np.ones(2)])
    assert tangent.tolist() == [0.5, 0.25]


def test_values():
    assert raised(lambda: tg.Value(0.0).log()).startswith("log: received x = 0.0")
    x = tg.Value(0.0, label="x")
    text = raised(lambda: x.sqrt().backward())
    assert text.startswith("backward of sqrt") and "label='x'" in text and x.grad == 0.0
    with tg.anomaly():
        (x * 2.0 + 1.0).backward()
    assert x.grad == 2.0


def test_an_update_is_looked_at_before_it_is_written():
    w = tg.param([1.0, 2.0], name="w")
    optimizer = tg.SGD({"w": w}, lr=10.0)
    w.grad = [1e308, 1.0]
    with np.errstate(all="ignore"):
        text = raised(optimizer.step)
    assert text.startswith("SGD.step: received a gradient of 1e+308 at [0] of 'w'")
    assert w.numpy().tolist() == [1.0, 2.0] and optimizer.steps == 0


def test_a_compiled_step_raises_as_eagerly_and_changes_nothing(engine):
    w = tg.param([1.0, 2.0, 3.0], name="w")
    optimizer = tg.SGD([w], lr=0.01, momentum=0.9)

    @tg.compile
    def step(a):
        loss = tg.sum(tg.log(w * a))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step(np.ones(3))
    with tg.anomaly():  # runs its plan
        assert np.isfinite(step(np.ones(3)).item())
    before = [w.numpy(), w.grad.copy(), *(s["momentum"].numpy() for s in optimizer.state.values())]
    count, entries = optimizer.steps, len(tg.tape())
    text = raised(lambda: step(np.array([1.0, 0.0, 1.0])))
    assert text.startswith("log: received x (a mul) = 0.0") and "test_anomaly.py" in text
    after = [w.numpy(), w.grad.copy(), *(s["momentum"].numpy() for s in optimizer.state.values())]
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    gc.collect()
    assert optimizer.steps == count and len(tg.tape()) == entries
    assert np.isfinite(step(np.ones(3)).item()) and step.traces == 1


def test_what_is_meant_runs_as_a_real_call_in_a_compiled_step():
    mask = np.array([0.0, -np.inf])
    w = tg.param([1.0, 2.0])
    step = tg.compile(lambda x: tg.sum(tg.softmax(w * x + mask) * x), verify_every=None)
    expected = [step(np.array([i, 1.0])).item() for i in (1.0, 2.0, 3.0)]
    with tg.anomaly():
        assert [step(np.array([i, 1.0])).item() for i in (1.0, 2.0, 3.0)] == expected


def test_draws_of_a_step_that_is_called_again_come_once():
    def draws(context):
        tg.random.seed(3)
        step = tg.compile(lambda x: tg.sum(x + tg.random.normal(2) + np.array([0.0, -np.inf])))
        noise = tg.compile(lambda x: tg.sum(x * tg.random.normal(2)), verify_every=None)
        found = []
        with context:
            for _ in range(4):
                step(np.ones(2))
                found.append(noise(np.ones(2)).item())
        return found

    assert draws(tg.anomaly()) == draws(tg.no_grad())


def test_threads_do_not_see_each_others():
    found = []

    def run():
        with np.errstate(all="ignore"):
            found.append(tg.log(tg.tensor([0.0])).item())

    with tg.anomaly():
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert found == [-np.inf]


def test_numpys_warnings_are_given_as_without(run_python):
    done = run_python(
        """
        import warnings, numpy as np, tapegraph as tg
        x = tg.param([1e-200])
        with tg.anomaly(), np.errstate(under="warn"), warnings.catch_warnings(record=True) as seen:
            x * 1e-200
        print(*((str(w.message), w.filename) for w in seen))
        """
    )
    assert done.stdout == "('underflow encountered in mul', '<string>')\n", done.stderr
