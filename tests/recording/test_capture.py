"""Captured programs: run again with other numbers they give what a new run gives."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.capture import Capture
from tapegraph.errors import ConcretizationError
from tapegraph.lowering import GAPS
from tapegraph.recording.op import OPS
from tests.cases import CASES, WITHOUT_GRADIENT
from tests.quick import a_few_each, check_each, each_operation, in_one
from tests.replay import replay

EVERY = (*CASES, *WITHOUT_GRADIENT)


def recorded(f, *arrays):
    """Record a function whole; return the recording and what the run gave."""
    with Capture() as capture, np.errstate(all="ignore"):
        out = f(*(capture.input(a) for a in arrays))
    return capture.recording([tg.tensor(out) if not isinstance(out, tg.Tensor) else out]), out


def again(recording, arrays):
    """Run a recorded program natively with other inputs."""
    program, values = recording.program, recording.values
    inputs = iter(arrays)
    leaves = {
        slot: next(inputs) if program.ops[slot].name == "input" else values[slot]
        for slot in program.leaves
    }
    with np.errstate(all="ignore"):
        (out,) = replay(program, leaves).outputs
    return out


def other_numbers(case):
    """The case's inputs with their numbers in another order: the same kinds at other places."""
    if case.op == "cholesky":  # stays positive definite
        return [a * 0.75 for a in case.arrays()]
    return [np.roll(a[::-1], 1) if a.ndim else a * 0.75 for a in case.arrays()]


def same(got, want):
    assert got.shape == np.shape(want)
    np.testing.assert_array_equal(got, want)


@each_operation(EVERY)
@pytest.mark.one_in(3, start=1)
def test_a_case_run_again_gives_what_a_new_run_gives(op, thorough):
    check_each(op, EVERY if thorough else a_few_each(EVERY), gives_what_a_new_run_gives)


def gives_what_a_new_run_gives(case):
    recording, out = recorded(case.function(), *case.arrays())
    with np.errstate(all="ignore"):
        same(out.numpy(), np.asarray(case.function()(*map(tg.tensor, case.arrays()))))
        others = other_numbers(case)
        want = case.function()(*map(tg.tensor, others))
    same(np.asarray(again(recording, others)), np.asarray(want))


@each_operation(WITHOUT_GRADIENT)
def test_without_a_gradient_it_is_an_entry_inside_and_plain_outside(op):
    check_each(op, WITHOUT_GRADIENT, is_an_entry_inside_and_plain_outside)


def is_an_entry_inside_and_plain_outside(case):
    recording, out = recorded(case.function(), *case.arrays())
    names = [op.name for op in recording.program.ops]
    assert case.op in names
    with np.errstate(all="ignore"):
        want = case.reference(*case.arrays())
    same(out.numpy(), want)
    if case.op not in ("detach", "within"):
        outside = case.function()(*map(tg.param, case.arrays()))
        assert not isinstance(outside, tg.Tensor) or case.op == "argpartition"


@pytest.mark.parametrize("op", sorted({case.op for case in WITHOUT_GRADIENT}))
@pytest.mark.one_in(4)
def test_its_node_gives_what_numpy_gives(op, thorough):
    pytest.importorskip("tensorflow")
    from tests.lowering.forward import forward

    for i, case in enumerate(case for case in WITHOUT_GRADIENT if case.op == op):
        for dtype in (np.float64, np.float32) if thorough or not i else (np.float64,):
            arrays = case.arrays(dtype)
            recording, out = recorded(case.function(dtype), *arrays)
            (got,) = forward(recording)([recording.values[s] for s in recording.program.fed])
            assert got.dtype == out.dtype
            np.testing.assert_array_equal(got, out.numpy(), err_msg=f"{case.id} {dtype}")


READS = {
    "bool": lambda x: bool(x[0] > 0),
    "float": lambda x: float(x[0]),
    "int": lambda x: int(x[0]),
    "item": lambda x: x[0].item(),
    "numpy": lambda x: x.numpy(),
    "asarray": lambda x: np.asarray(x.detach()),
    "data": lambda x: x.data,
    "tolist": lambda x: x.tolist(),
    "if": lambda x: 1 if x.sum() > 0 else 2,
    "mask": lambda x: x[x > 0],
    "compress": lambda x: np.compress(x > 0, x),
    "extract": lambda x: np.extract(x > 0, x),
    "nonzero": lambda x: np.nonzero(x),
    "where": lambda x: np.where(x > 0),
    "index of an array": lambda x: np.arange(3.0)[np.argmax(x)],
    "param": lambda x: tg.param(x.detach()),
    "max of Python": lambda x: max(x),
    "nanargmax": lambda x: np.nanargmax(x),
    "format": lambda x: f"{x[0]:.3f}",
}


@in_one("kind", ["input", "param", "result"])
@in_one("read", READS)
def test_a_number_that_would_leave_is_an_error_that_names_it(read, kind):
    w = tg.param([1.0, -2.0, 3.0], name="w")
    with Capture() as capture:
        x = capture.input(np.array([1.0, -2.0, 3.0]), name="x")
        value = {"input": x, "param": w, "result": x * w}[kind]
        with pytest.raises((ConcretizationError, TypeError, IndexError)) as caught:
            READS[read](value)
        if not (read == "index of an array"):
            assert isinstance(caught.value, ConcretizationError)
            assert __file__ in str(caught.value)
    READS[read](tg.tensor([1.0, -2.0, 3.0]))  # outside, of a constant, it is none


def test_outside_nothing_has_changed():
    x = tg.param([1.0, -2.0])
    with Capture():
        pass
    for plain in (x > 0, np.isnan(x), np.argmax(x), np.argsort(x), x == x, np.all(x > 0)):
        assert not isinstance(plain, tg.Tensor)


def test_what_depends_on_no_input_stays_plain():
    with Capture() as capture:
        capture.input(np.ones(2))
        steps = np.arange(3.0)
        made = tg.tensor([1.0, 2.0])
        assert type(made > 1.5) is np.ndarray
        assert float(made.sum()) == 3.0
        assert type(np.sin(steps)) is np.ndarray


def test_no_grad_records_whole_too():
    w = tg.param([2.0])
    with Capture() as capture, tg.no_grad():
        y = capture.input(np.array([3.0])) * w
    recording = capture.recording([y])
    assert [op.name for op in recording.program.ops] == ["param", "input", "mul"]
    assert recording.program.needs == [True, False, False]
    same(again(recording, [np.array([5.0])]), [10.0])


def test_state_that_is_assigned_is_an_update_and_read_in_its_new_version():
    mean = tg.tensor([0.0, 0.0])
    with Capture() as capture:
        x = capture.input(np.array([2.0, 4.0]))
        before = mean * 1.0
        mean.assign(0.5 * mean + 0.5 * x)
        after = mean + 1.0
    recording = capture.recording([before, after])
    (update,) = recording.program.updates
    np.testing.assert_array_equal(mean.data, [1.0, 2.0])
    leaves = {slot: recording.values[slot] for slot in recording.program.leaves}
    leaves[update.leaf] = np.array([10.0, 20.0])
    (first, second), updates = replay(recording.program, leaves)
    np.testing.assert_array_equal(first, [10.0, 20.0])
    np.testing.assert_array_equal(updates[update.leaf], [6.0, 12.0])
    np.testing.assert_array_equal(second, [7.0, 13.0])


def test_a_parameter_updated_in_place_is_an_update():
    w = tg.param([1.0, 2.0], name="w")
    with Capture() as capture, tg.no_grad():
        x = capture.input(np.array([3.0, 4.0]))
        w -= 0.5 * x
        y = w * 2.0
    recording = capture.recording([y])
    (update,) = recording.program.updates
    assert recording.name(update.leaf) == "w"
    leaves = {slot: recording.values[slot] for slot in recording.program.leaves}
    leaves[update.leaf] = np.array([0.0, 0.0])
    (out,), updates = replay(recording.program, leaves)
    np.testing.assert_array_equal(updates[update.leaf], [-1.5, -2.0])
    np.testing.assert_array_equal(out, [-3.0, -4.0])


def test_classes_and_indices_are_inputs_and_checked_again():
    table = tg.param(np.arange(12.0).reshape(4, 3))
    with Capture() as capture:
        i = capture.input(np.array([0, -1]))
        loss = tg.softmax_crossentropy(tg.gather(table, i), capture.input(np.array([2, 1])))
    recording = capture.recording([loss])
    data = table.numpy()
    for rows, classes in (([1, 2], [0, 0]), ([-4, 3], [2, 1])):
        want = tg.softmax_crossentropy(data[rows], classes).numpy()
        same(again(recording, [np.array(rows), np.array(classes)]), want)
    for rows, classes in (([4, 0], [0, 0]), ([0, 0], [3, 0]), ([0, 0], [-1, 0])):
        with pytest.raises(IndexError, match="expected a"):
            again(recording, [np.array(rows), np.array(classes)])


def test_programs_of_the_same_steps_are_equal_and_hold_no_value():
    def program(seed):
        numbers = np.random.default_rng(seed).normal(size=(3, 4))
        return recorded(lambda x: tg.where(x > 0, np.sort(x), tg.logsumexp(x)), numbers)[0].program

    assert program(0).key == program(1).key
    for column in dataclasses.astuple(_columns(program(0))):
        assert not any(isinstance(part, (np.ndarray, tg.Tensor)) for part in column)


@dataclasses.dataclass
class _columns:
    program: object

    def __post_init__(self):
        p = self.program
        self.program = [*p.ops, *p.inputs, *p.attrs, *p.shapes, *p.dtypes, *p.needs, *p.leaves]


def test_every_operation_without_a_gradient_has_a_node():
    assert not {name for name, op in OPS.items() if op.differentiable == ()} & set(GAPS)


def test_tasks_and_threads_do_not_see_each_others_recording():
    import threading

    seen = []
    x = tg.param([1.0])

    def elsewhere():
        x.assign([2.0])
        x.grad = np.array([3.0])
        seen.extend([type(x > 0), x.item(), float(x.grad[0]), bool(x), x.data.tolist()])

    with Capture() as capture:
        y = x * 2.0
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with pytest.raises(ConcretizationError):
            bool(x)
        with pytest.raises(ConcretizationError):
            y.item()
        x.zero_grad()
    assert seen == [np.ndarray, 2.0, 3.0, True, [2.0]]
    assert x.grad == 3.0 and list(capture.gradients) == [id(x)]
