"""The tape as data: its entries, its table, clearing it, and the user's own lines."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest

import tapegraph as tg


def recorded():
    x = tg.param([[1.0, 2.0], [3.0, 4.0]], name="x")
    c = tg.tensor([1.0, 2.0])
    return x, tg.sum(x * c + 2.0, axis=0)


def ops():
    return [entry.op for entry in tg.tape()]


# -- entries -----------------------------------------------------------------------------------


def test_entries_are_rows_in_the_order_of_recording():
    x, y = recorded()
    entries = list(tg.tape())
    assert len(tg.tape()) == len(entries) == 6
    assert [e.op for e in entries] == ["param", "constant", "mul", "scalar", "add", "sum"]
    assert [e.inputs for e in entries] == [(), (), (0, 1), (), (2, 3), (4,)]
    assert [e.shape for e in entries] == [(2, 2), (2,), (2, 2), (), (2, 2), (2,)]
    assert [e.requires_grad for e in entries] == [True, False, True, False, True, True]
    assert [e.slot for e in entries] == list(range(6))
    assert [e.name for e in entries] == ["x", None, None, None, None, None]
    assert {e.dtype for e in entries} == {np.dtype(np.float64)}
    assert dict(entries[5].attrs) == {"axis": (0,), "keepdims": False}
    assert entries[3].value == 2.0
    np.testing.assert_array_equal(entries[5].value, y.data)
    assert x.requires_grad


def test_every_input_comes_before_its_reader():
    x = tg.param(np.ones((3, 3)))
    results = [tg.softmax(x @ x + i) for i in range(5)]
    for entry in tg.tape():
        assert all(slot < entry.slot for slot in entry.inputs)
    assert len(results) == 5


def test_attrs_are_hashable_and_read_only():
    x = tg.param(np.ones((1, 1, 4, 4)))
    y = tg.max_pool2d(x, 2)[0, 0, [0, 1], ::-1]
    for entry in tg.tape():
        hash(tuple(entry.attrs.items()))
        with pytest.raises(TypeError):
            entry.attrs["axis"] = 0
    assert y.shape == (2, 2)


def test_dtypes_are_those_of_the_results():
    y = tg.param(np.float32([1.0])) * 2.0 * np.float64(3.0)
    assert [e.dtype for e in tg.tape() if e.op == "mul"] == [np.float32, np.float64]
    assert y.dtype == np.float64


def test_constants_alone_are_not_recorded():
    y = tg.sin(tg.tensor([1.0]) * 2.0)
    assert len(tg.tape()) == 0
    assert not y.requires_grad


def test_dropped_results_leave_the_tape():
    x = tg.param(1.0)
    y = x * 2.0 * 3.0
    assert ops() == ["param", "scalar", "mul", "scalar", "mul"]
    del y
    assert ops() == ["param"]


def test_shared_subexpressions_are_one_entry():
    x = tg.param(2.0)
    a = x * x
    y = a + a
    assert ops() == ["param", "mul", "add"]
    y.backward()
    assert x.grad == 8.0


def test_reading_the_tape_changes_nothing():
    x, y = recorded()
    before = str(tg.tape())
    list(tg.tape())
    assert str(tg.tape()) == before
    y.backward()
    np.testing.assert_array_equal(x.grad, [[1.0, 2.0], [1.0, 2.0]])


def test_backward_leaves_the_tape():
    _, y = recorded()
    before = str(tg.tape())
    y.backward()
    assert str(tg.tape()) == before


def sweeps(of, count=250):
    """Call `backward` of each result as it is made."""
    for y in of(tg.param([0.5, 0.25]), count):
        y.backward()


def with_history(w, count):
    h = np.zeros(2)
    for _ in range(count):
        h = np.tanh(h * w + 1.0)
        yield np.sum(h)


def running_total(w, count):
    total = 0.0
    for i in range(count):
        total = total + np.sum(np.sin(w * i))
        yield total


@pytest.mark.parametrize(("of", "op"), [(with_history, "tanh"), (running_total, "add")])
@pytest.mark.one_in(2)
def test_rounds_that_keep_their_history_are_warned_of_once(of, op):
    with pytest.warns(RuntimeWarning, match=rf"backward: 100 calls .* {op} at .*test_tape") as said:
        sweeps(of)
    assert len(said) == 1
    sweeps(of, 100)  # nothing: not yet
    with warnings.catch_warnings(), pytest.raises(RuntimeWarning, match="detach"):
        warnings.simplefilter("error")
        w, before = tg.param([0.5, 0.25]), []
        for y in of(w, 250):
            before.append(w.grad)
            y.backward()
    assert len(before) == 101
    np.testing.assert_array_equal(w.grad, before[-1])  # as errors it comes before any change


def detached(w, count):
    h = np.zeros(2)
    for _ in range(count):
        h = np.tanh(h * w + 1.0)
        yield np.sum(h)
        h = h.detach()


def made_before(w, count):
    states = [np.tanh(w)]
    for _ in range(count):
        states.append(np.tanh(states[-1] * w))
    yield from map(np.sum, states)
    yield from states


def longer_ones_of_a_trunk(w, count):
    trunk = np.tanh(w)
    for length in range(count):
        y = trunk
        for _ in range(length):
            y = np.sin(y)
        yield np.sum(y)


def one_round_ahead(w, count):
    trunk = np.tanh(w)
    ahead = np.sin(trunk)
    for i in range(count):
        now, ahead = ahead, np.sin(trunk * i)
        yield np.sum(now * ahead)


def the_same(w, count):
    yield from [np.sum(np.tanh(w) ** 2)] * count


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "of", [detached, made_before, longer_ones_of_a_trunk, one_round_ahead, the_same]
)
def test_recordings_that_are_used_often_are_not_warned_of(of):
    sweeps(of)  # warnings are errors


def test_a_leaf_that_has_changed_keeps_its_place():
    x, _ = recorded()
    before = str(tg.tape())
    x.data[0] = 0.0
    assert str(tg.tape()) == before


# -- the table ---------------------------------------------------------------------------------


def test_table_has_a_header_and_one_line_an_entry():
    _, y = recorded()
    header, *rows = str(tg.tape()).split("\n")
    assert header.split() == [
        "slot", "op", "inputs", "attrs", "shape", "dtype", "grad", "name", "where",
    ]  # fmt: skip
    assert len(rows) == len(tg.tape())
    assert rows[4].split()[:4] == ["%4", "add", "%2", "%3"]
    assert "axis=(0,), keepdims=False" in rows[5]
    assert "2.0" in rows[3]
    assert " x " in rows[0]
    assert f"{__file__}:" in rows[5]
    assert header.index("shape") == rows[0].index("(2, 2)")
    assert y.requires_grad


def test_empty_tape_prints():
    assert str(tg.tape()).startswith("slot")
    assert repr(tg.tape()) == "<tape of 0 entries>"


# -- clearing ----------------------------------------------------------------------------------


def test_reset_empties_the_tape_and_keeps_parameters_usable():
    x, y = recorded()
    y.backward()
    tg.tape_reset()
    assert len(tg.tape()) == 0
    np.testing.assert_array_equal(x.grad, [[1.0, 2.0], [1.0, 2.0]])
    z = x * 3.0
    assert ops() == ["param", "scalar", "mul"]
    z.backward()
    np.testing.assert_array_equal(x.grad, [[4.0, 5.0], [4.0, 5.0]])


def test_reset_keeps_the_values_of_results():
    _, y = recorded()
    tg.tape_reset()
    np.testing.assert_array_equal(y.data, [1.0 + 3.0 + 4.0, 4.0 + 8.0 + 4.0])


def test_reset_frees_what_results_held():
    x = tg.param(np.ones(3))
    a = x * 2.0
    y, middle = a * 3.0, weakref.ref(a._entry)
    del a
    assert middle() is not None
    tg.tape_reset()
    assert middle() is None
    assert y.shape == (3,)


def test_reset_twice_and_of_an_empty_tape():
    tg.tape_reset()
    tg.tape_reset()
    assert len(tg.tape()) == 0


# -- zero_grad ---------------------------------------------------------------------------------


def test_zero_grad_of_everything_keeps_the_tape():
    x, y = recorded()
    y.backward()
    tg.zero_grad()
    np.testing.assert_array_equal(x.grad, np.zeros((2, 2)))
    assert len(tg.tape()) == 6
    y.backward()
    np.testing.assert_array_equal(x.grad, [[1.0, 2.0], [1.0, 2.0]])


def test_zero_grad_reaches_parameters_after_a_reset():
    x = tg.param(1.0)
    x.sum().backward()
    tg.tape_reset()
    tg.zero_grad()
    assert x.grad == 0.0


def test_zero_grad_of_some():
    a, b = tg.param(1.0), tg.param(1.0)
    (a + b).backward()
    tg.zero_grad([a])
    assert (a.grad, b.grad) == (0.0, 1.0)
    tg.zero_grad(p for p in (b,))
    assert b.grad == 0.0


def test_zero_grad_keeps_none_none():
    x = tg.param(1.0)
    tg.zero_grad()
    tg.zero_grad([x])
    assert x.grad is None


def test_zero_grad_takes_one_tensor_and_values():
    x, v = tg.param(1.0), tg.Value(2.0)
    (x * 2.0).backward()
    (v * v).backward()
    tg.zero_grad(x)
    tg.zero_grad([v])
    assert (x.grad, v.grad) == (0.0, 0.0)


# -- no_grad -----------------------------------------------------------------------------------


def test_no_grad_records_nothing_and_computes_the_same():
    x, y = recorded()
    before = str(tg.tape())
    with tg.no_grad():
        z = tg.sum(x * [1.0, 2.0] + 2.0, axis=0)
        assert str(tg.tape()) == before
    np.testing.assert_array_equal(z.data, y.data)
    assert (z.op, z.inputs, z.requires_grad) == ("constant", (), False)


def test_parameters_made_under_no_grad_are_parameters():
    with tg.no_grad():
        x = tg.param(3.0)
    (x * x).backward()
    assert x.grad == 6.0


def test_backward_works_under_no_grad():
    x, y = recorded()
    with tg.no_grad():
        y.backward()
    np.testing.assert_array_equal(x.grad, [[1.0, 2.0], [1.0, 2.0]])


# -- the user's line ---------------------------------------------------------------------------


def here():
    """Return the caller's ``file:line``."""
    frame = sys._getframe(1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def places():
    return [entry.where for entry in tg.tape()]


def test_lines_of_params_operators_functions_and_methods():
    x, first = tg.param([1.0, 2.0]), here()
    y, second = 2.0 * x, here()
    z, third = tg.softmax(y), here()
    w, fourth = z[0], here()
    s, fifth = w.reshape(1).sum(), here()
    assert [p for p in places() if p] == [first, second, third, fourth, fifth, fifth]
    assert s.shape == ()


def test_line_inside_a_longer_statement():
    x, start = tg.param(1.0), here()
    y = tg.sum(
        x
        * 2.0,
    )  # fmt: skip
    file, line = start.rsplit(":", 1)
    assert places()[-2:] == [f"{file}:{int(line) + 2}", f"{file}:{int(line) + 1}"]
    assert y.shape == ()


def test_line_of_executed_source():
    scope = {"tg": tg}
    exec(compile("x = tg.param(1.0)\n\ny = x * 2.0\n", "<cell 7>", "exec"), scope)
    assert [p for p in places() if p] == ["<cell 7>:1", "<cell 7>:3"]


def test_line_of_a_script_at_shallow_depth(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import tapegraph as tg\nx = tg.param(1.0)\ny = x * 2.0\nprint(tg.tape())\n")
    root = str(Path(tg.__file__).parents[1])
    result = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert f"{script}:2\n" in result.stdout
    assert result.stdout.endswith(f"{script}:3\n")


def test_line_of_a_deep_call():
    x = tg.param(1.0)

    def descend(n):
        return (x * 2.0, here()) if n == 0 else descend(n - 1)

    y, place = descend(200)
    assert places()[-1] == place
    assert y.requires_grad


def test_line_of_a_callback():
    x = tg.param([1.0, 2.0])
    (y,), place = list(map(tg.sin, [x])), here()
    z = [*(v for v in x)][1]
    assert places()[1] == place
    assert places()[-1] == f"{__file__}:{int(place.rsplit(':')[-1]) + 1}"
    assert y.requires_grad
    assert z.requires_grad


def test_line_of_a_user_module_named_like_ours():
    scope = {"tg": tg, "__name__": "tapegraph_extras"}
    exec(compile("y = tg.param(1.0) * 2.0", "extras.py", "exec"), scope)
    assert places()[-1] == "extras.py:1"
