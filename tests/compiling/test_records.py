"""Records: they give NumPy's bits, stay inside their arrays, and no address outlives a call.

Each run of a plan whose calls are records gives the bits of the same plan in Python alone, over the
operation cases, random programs and random steps.
"""

from __future__ import annotations

import gc
import math
import re
import sys
import threading
import tracemalloc

import numpy as np
import pytest
from numpy.lib.array_utils import byte_bounds
from same_bits import same_bits

import tapegraph as tg
from tapegraph.capture import Capture
from tapegraph.engines.engine import LoopRows, RowUpdate
from tapegraph.fallback.plan import Plan, records, segments
from tapegraph.fallback.plan.ir import placed
from tapegraph.numpy_warnings import quietly
from tapegraph.pytree import leaves
from tapegraph.row_sparse import RowSparse
from tests.compiling.beside import agree, beside, standing, taken
from tests.compiling.test_case_steps import STEPS, compare
from tests.compiling.test_random_steps import check as check_programs
from tests.compiling.test_random_steps import check_steps
from tests.compiling.test_scan import rows_of
from tests.quick import a_few_each, check_each, each_operation

pytestmark = pytest.mark.skipif(
    bool(records.missing), reason="python setup.py build_ext --inplace has not run here"
)
PROGRAMS, RANDOM_STEPS = (10, 1000), (10, 500)  # few, and with --thorough
FLOATS = (np.float32, np.float64)
DTYPES = (*FLOATS, np.complex64, np.complex128, np.bool_, np.int64, np.int32, np.uint8)
LAYOUTS = {
    "c": lambda x: x,
    "f": lambda x: x.T,
    "rows": lambda x: x[:, 1:4],
    "strided": lambda x: x[::2, ::2],
    "backwards": lambda x: x[::-1, ::-1],
    "row": lambda x: x[:1],
    "column": lambda x: x[:, 2:3],
    "vector": lambda x: x[1],
    "without axes": lambda x: x[1, 1, ...],
    "number": lambda x: x[1, 1],
    "stack": lambda x: np.broadcast_to(x, (3, *x.shape)),
}


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.delenv("TAPEGRAPH_RECORDS", raising=False)
    with tg.use_backend("native"):
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def numbers(rng, dtype, n=6):
    x = rng.normal(size=(n, n)) * 3.0
    x[rng.random((n, n)) < 0.2] = 0.0
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40])
    if dtype in FLOATS:
        x[0, :] = rng.choice(odd, n)
    if np.dtype(dtype).kind == "c":
        return (x + 1j * rng.normal(size=(n, n))).astype(dtype)
    return np.abs(x).astype(dtype) if np.dtype(dtype).kind in "biu" else x.astype(dtype)


def check(function, *args, **kwargs):
    """Run a call as records on fresh numbers; return whether it has any."""
    with np.errstate(all="ignore"):
        of_method = isinstance(function, str)
        want = getattr(args[0], function)(*args[1:]) if of_method else function(*args, **kwargs)
    found = records.records_of(function, args, kwargs, want)
    if found is None:
        return False
    given = [x for _, x in leaves(args)]
    arrays = [np.asarray(x) for x in given if isinstance(x, (np.ndarray, np.generic))]
    before = [a.copy() for a in arrays]
    got = np.empty_like(want) if isinstance(want, np.ndarray) else np.array(want)
    got[...] = 7
    order = [*arrays, got, *found.held]
    records.table([(r, r.places) for r in found.records], order)()
    assert got.tobytes() == np.asarray(want).tobytes(), (function, args, kwargs)
    for a, b in zip(arrays, before, strict=True):
        assert a.tobytes() == b.tobytes()
    return True


# ------------------------------------------------------------------ bits

UFUNCS = sorted(
    (f for f in records._NUMPYS if f.signature is None and f.nout == 1 and f.nin < 4),
    key=lambda f: f.__name__,
)


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.one_in(4)
def test_element_wise_records_have_numpys_bits(ufunc, rng, thorough):
    tried = 0
    for turn, dtype in enumerate(DTYPES):
        for place, name in enumerate(LAYOUTS):
            others = ["c", name, "vector", "without axes"]
            if ufunc.nin == 1 or not thorough:  # of each layout another with another dtype
                others = [others[(turn + place) % 4]]
            if (turn + place) % 2 and turn and not thorough:  # float32 in all of them
                continue
            for other in others:
                x, y = (LAYOUTS[n](numbers(rng, dtype)) for n in (name, other))
                try:
                    with np.errstate(all="ignore"):
                        ufunc(*(x, y)[: ufunc.nin])
                except (TypeError, ValueError):  # NumPy's: no loop for these, or no shape
                    continue
                tried += check(ufunc, *(x, y)[: ufunc.nin])
        if (
            np.dtype(dtype).kind == "f"
            and ufunc.nin == 2
            and f"{np.dtype(dtype).char * 2}->" in (" ".join(ufunc.types))
        ):
            tried += check(ufunc, numbers(rng, dtype), 2.0)
            tried += check(ufunc, numbers(rng, dtype), numbers(rng, np.bool_))
    if ufunc in records._EXACT:
        assert tried > (20 if thorough else 10)


@pytest.mark.parametrize("dtype", [*FLOATS, np.complex64, np.complex128])
@pytest.mark.parametrize("layout", ["c", "f", "rows", "strided", "backwards", "stack"])
@pytest.mark.one_in(3)
def test_reductions_have_numpys_bits(dtype, layout, rng):
    x = LAYOUTS[layout](numbers(rng, dtype))
    done = 0
    for axis in (None, 0, 1, (0, 1), -1, *((2, (0, 2), (1, 2)) if x.ndim == 3 else ())):
        for keepdims in (False, True):
            done += check(np.add.reduce, x, axis=axis, keepdims=keepdims)
            done += check(np.multiply.reduce, x, axis=axis, keepdims=keepdims)
            if dtype in FLOATS:
                done += check(np.maximum.reduce, x, axis=axis, keepdims=keepdims)
                done += check(np.minimum.reduce, x, axis=axis, keepdims=keepdims)
                done += check(np.mean, x, axis=axis, keepdims=keepdims)
    # What runs backwards stays a line.
    assert done == 0 if layout == "backwards" else done >= 12


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", [*FLOATS, np.complex64, np.complex128])
def test_products_have_numpys_bits(dtype, rng):
    shapes = [(4, 4), (3, 4), (1, 4), (4, 1), (4,), (1, 1), (2, 3, 4), (5, 1, 3, 4), (1, 3, 4)]
    turned = [lambda x: x, lambda x: np.ascontiguousarray(np.swapaxes(x, -1, -2)).swapaxes(-1, -2)]
    done = 0
    for one in shapes:
        for two in shapes:
            for way in turned if len(one) > 1 else turned[:1]:
                a, b = (rng.normal(size=s).astype(dtype) for s in (one, two))
                if b.ndim > 1:
                    b = np.swapaxes(b, -1, -2)
                try:
                    np.matmul(way(a), b)
                except ValueError:
                    continue
                done += check(np.matmul, way(a), b)
    assert done > 60
    square = rng.normal(size=(5, 5)).astype(dtype)
    assert check(np.matmul, square, square.T)  # which NumPy computes in another way


@pytest.mark.parametrize("dtype", DTYPES)
def test_choices_copies_and_conversions_have_numpys_bits(dtype, rng):
    done = 0
    for layout in LAYOUTS.values():
        x, y = layout(numbers(rng, dtype)), layout(numbers(rng, dtype))
        done += check(np.copy, x, "K")
        if x.ndim:
            done += check(np.where, x > y, x, y)
            done += check(np.where, (x > y)[..., :1], x, x[..., :1])
    for to in FLOATS:
        x = numbers(rng, dtype)
        want = x.astype(to) if np.dtype(dtype).kind != "c" else x.real.astype(to)
        found = records.records_of("astype", (x, np.dtype(to)), {"copy": True}, want)
        if np.dtype(dtype).kind != "c":
            got = np.empty_like(want)
            records.table([(r, r.places) for r in found.records], [x, got, *found.held])()
            same_bits(got, want)
    assert done > 15


@pytest.mark.parametrize("dtype", FLOATS)
def test_joins_limits_and_vector_products_have_numpys_bits(dtype, rng):
    for name in ("c", "f", "rows", "strided"):
        x, y = (LAYOUTS[name](numbers(rng, dtype)) for _ in range(2))
        for axis in range(x.ndim):
            assert check(np.concatenate, (x, y[:1] if axis == 0 else y), axis=axis)
            assert check(np.vecdot, x, y, axis=axis)
            assert check(np.maximum.reduce, x, axis=axis, keepdims=True, initial=-np.inf)
        assert check(np.clip, x, -0.25, 0.5) == (name in "cf")  # its loops want one run
        assert check(pow, np.abs(x), 0.5)
        assert check(np.dot, x[0], y[0])
        for key in ((0,), (slice(1, None),), (slice(None), 1)):
            assert check(placed, x[key], x.shape, x.dtype, key)
    number = x.dtype.type(2.5)
    assert check(np.concatenate, (x[0], y[0, :1], number.reshape(1)), axis=0)
    assert check(placed, number, (3,), x.dtype, (1,))
    assert check("reshape", np.broadcast_to(x[0], (3, x.shape[1])), (-1,))
    assert not check(np.clip, x, 0.0, 0.5)  # of -0.0 NumPy keeps the sign here or there


def test_records_that_give_other_bits_are_refused(monkeypatch):
    write = records._Writer._elementwise

    def wrong(self, ufunc, given):
        write(self, np.maximum, given)

    monkeypatch.setattr(records, "_known", {})
    monkeypatch.setattr(records._Writer, "_elementwise", wrong)
    x = np.ones((3, 3))
    assert records.records_of(np.add, (x, x), {}, x + x) is None
    assert records.records_of(np.maximum, (x, x), {}, x) is not None


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("short", [1, 3, 16, 100])
@pytest.mark.parametrize("ufunc", [np.add, np.subtract, np.multiply, np.divide])
def test_short_rows_of_large_arrays_are_records(ufunc, short, dtype, rng):
    x, row, column = (
        rng.choice([-0.0, 1e-40, 3.0, 0.1, np.inf, np.nan], shape).astype(dtype)
        for shape in ((10, 300, short), (10, 1, short), (300, 1))
    )
    done = [check(ufunc, *both) for both in ((x, row), (row, x), (x, column), (row, column))]
    if ufunc in (np.add, np.multiply) and short == 16:
        done.append(check(ufunc.reduce, x, axis=(1,), keepdims=True))
    # One number to a row is a long row, to NumPy too.
    assert short == 1 or (all(done) and records.records_of(ufunc, (x, row), {}, x + row).large)


def test_one_line_of_short_rows_is_a_segment(inside):
    step = tg.compile(lambda x, y: np.tanh(np.tanh(x) + y))
    x, y = np.ones((3000, 4)), np.ones(4)
    for _ in range(3):
        same_bits(step(x, y).data, np.tanh(np.tanh(x) + y))
    assert step.source().count(" records(") == 1


def test_large_results_of_a_plan_that_is_records_alone(rng):
    x, row = rng.normal(size=(2000, 3)), rng.normal(size=3)
    step = tg.compile(lambda x, row: (x, x + row, x[:, :1] * row))
    for _ in range(3):
        found = step(x, row)
    for got, want in zip(found, (x, x + row, x[:, :1] * row), strict=True):
        same_bits(got.data, want)
    rows = np.stack([x, 2.0 * x])
    same_bits(tg.compile(lambda x: x + row).scan(rows).data, rows + row)
    same_bits(tg.scan(lambda c, x: (c + row, x), x, rows)[0].data, x + row + row)


def test_a_gradient_of_many_axes_is_looked_at(rng):
    x = rng.normal(size=(2, 3, 2, 3, 2, 3))[..., ::2, :]
    step = tg.compile(tg.grad(lambda x: np.sum(np.sqrt(np.transpose(x, (5, 1, 3, 0, 2, 4)) ** 2))))
    for _ in range(3):
        np.testing.assert_allclose(step(x), np.sign(x), rtol=1e-15)


def test_what_is_large_or_of_another_dtype_stays_a_line():
    for x in (np.ones(1 << 14), np.ones(3, np.float16), np.ones(3, object), np.ones(0)):
        assert records.records_of(np.add, (x, x), {}, x + x) is None
    swapped = np.ones(3, np.dtype("f8").newbyteorder())
    assert records.records_of(np.negative, (swapped,), {}, -swapped) is None
    whole = np.array([2, 3])
    assert records.records_of(np.power, (whole, whole), {}, whole**whole) is None  # it may raise


# ------------------------------------------------------------------ inside their arrays


def reached(record, operand):
    """Return the first and the last byte that a record reaches of an operand, from its place."""
    steps = [(n, s[operand]) for n, *s in record.outer]
    if record.loop is np.matmul:
        outer, m, k, n = record.sizes
        core = record.steps[3:]
        pairs = [(m, k), (k, n), (m, n)][operand]
        steps += [(outer, record.steps[operand])]
        steps += list(zip(pairs, core[2 * operand : 2 * operand + 2], strict=True))
    else:
        count = len(record.places)
        for axis, length in enumerate(record.sizes):
            place = count * axis + operand
            if record.loop is not np.vecdot or place < len(record.steps):  # a sum has one axis less
                steps += [(length, record.steps[place])]
    ends = [(n - 1) * s for n, s in steps]
    return sum(e for e in ends if e < 0), sum(e for e in ends if e > 0)


@pytest.fixture
def inside(monkeypatch):
    """Check each record: inside its arrays, its result over an operand or apart from all."""
    make, seen = records.table, []

    def checked(rows, fixed, inputs=(), outputs=()):
        rows = list(rows)
        bases = [*fixed, *inputs, *outputs]
        for record, places in rows:
            parts = []
            for operand, (base, offset) in enumerate(places):
                array = np.asarray(bases[base])
                low, high = byte_bounds(array)
                at = array.__array_interface__["data"][0] + offset
                first, last = reached(record, operand)
                first, last = first + at, last + at
                steps = (record.steps[operand], *(axis[1 + operand] for axis in record.outer))
                assert low <= first and last < high, (record, places)
                parts.append((base, first, last, at, steps))
            base, first, last, at, steps = parts[-1]
            summed = record.loop in records._REDUCED and places[0] == places[-1]
            for other in parts[summed:-1]:
                apart = other[2] < first or other[1] > last
                alike = (other[3], other[4]) == (at, steps)
                assert apart or (alike and record.loop is not np.matmul) or summed, record
            seen.append(record)
        return make(rows, fixed, inputs, outputs)

    monkeypatch.setattr(records, "table", checked)
    return seen


def test_an_operand_seen_transposed_is_not_written_over(inside):
    def make():
        p = tg.param(np.arange(9.0).reshape(3, 3))

        def step(x):
            p.grad = None
            loss = tg.sum((p + p.T) * x)
            loss.backward()
            return loss

        return step, [p]

    x = np.random.default_rng(0).normal(size=(3, 3))
    beside(make, [(x,), (x,), (2 * x,), (x * x,)], "native")
    assert inside


# ------------------------------------------------------------------ beside the same plan in Python


@pytest.fixture
def ran(monkeypatch):
    """Run each plan that has records in Python too, and compare; note each run."""
    run, found = Plan.run, []

    def twice(plan, values, changes=None):
        got = run(plan, values, changes)
        if plan.source != plan._plain:
            in_python = plan._made(plan._plain, "<a plan in Python alone>", dict(plan._names))
            want = quietly(in_python, *map(np.asarray, values, *plan._types))
            for ours, theirs in zip(got, want, strict=True):
                for one, two in zip(ours, theirs, strict=True):
                    same_bits(dense(one), dense(two))
            found.append(plan)
        return got

    monkeypatch.setattr(Plan, "run", twice)
    return found


def dense(x):
    if isinstance(x, RowUpdate):
        return x.rows.dense() * x.scale
    return x.dense() if isinstance(x, RowSparse) else np.asarray(x)


@pytest.mark.one_in(2)
@each_operation(STEPS, every=4)  # test_case_steps runs all as records, beside the eager ones
@pytest.mark.usefixtures("ran")
def test_operation_cases(op, thorough):
    def check_case(case):
        for dtype in (np.float64, np.float32) if thorough else (np.float64,):
            compare(case, dtype, len(case.inputs), "native")

    check_each(op, STEPS if thorough else a_few_each(STEPS, most=1), check_case)


@pytest.mark.thorough
def test_random_programs_as_records(ran, inside, thorough):
    count = PROGRAMS[thorough]
    check_programs(count, 11, "native")
    assert len(ran) > count and len(inside) > 5 * count


def test_random_steps_as_records(ran, thorough):
    count = RANDOM_STEPS[thorough]
    check_steps(range(7000, 7000 + count), "native")
    assert len(ran) > count


# ------------------------------------------------------------------ whole steps


def network(dtype=np.float64, momentum=0.9):
    rng = np.random.default_rng(0)
    w, b = (tg.param(rng.normal(size=s).astype(dtype)) for s in ((4, 4), (4,)))
    optimizer = tg.SGD([w, b], lr=0.1, momentum=momentum)

    def step(x):
        optimizer.zero_grad()
        y = tg.tanh(x @ w + b)
        loss = tg.mean(tg.relu(y @ w) ** 2)
        loss.backward()
        optimizer.step()
        return loss, y

    return step, [w, b, optimizer]


def trained(calls, around=tg.compile):
    step, state = network()
    step = around(step)
    found = [t.detach().numpy().copy() for x in calls for t in step(x)]
    return [*found, *(p.numpy().copy() for p in state[:2])]


def alike(got, want):
    for one, two in zip(got, want, strict=True):
        same_bits(one, two)


@pytest.fixture
def calls():
    rng = np.random.default_rng(1)
    return [rng.normal(size=(3, 4)) for _ in range(8)]


def test_a_step_is_segments_and_its_source_shows_their_lines(calls):
    step = tg.compile(network()[0])
    for x in calls:
        step(x)
    text = step.source()
    assert "records(" in text
    lines = [line for line in text.splitlines() if line.startswith("    #   ")]
    assert any("matmul(" in line and "test_records.py" in line for line in lines)
    assert sum("matmul(" in line for line in text.splitlines()) == sum(
        "matmul(" in line for line in lines
    )


@pytest.mark.one_in(2, start=1)
@pytest.mark.parametrize("dtype", FLOATS)
def test_500_steps(dtype):
    rng = np.random.default_rng(2)
    calls = [(rng.normal(size=(3, 4)).astype(dtype),) for _ in range(500)]
    beside(lambda: network(dtype), calls, "native")


def test_without_records_the_bits_are_the_same(calls, monkeypatch):
    got = trained(calls)
    monkeypatch.setenv("TAPEGRAPH_RECORDS", "0")
    step = tg.compile(network()[0])
    for x in calls:
        step(x)
    assert "records(" not in step.source()
    want = trained(calls)
    alike(got, want)


def test_without_the_extension_plans_are_lines_of_python(calls, monkeypatch):
    want = trained(calls)
    monkeypatch.setattr(records, "_extension", None)
    monkeypatch.setattr(records, "missing", "No module named '_records'")
    assert records.off() == "the C extension is not used (No module named '_records')"
    alike(trained(calls), want)


def test_an_extension_of_another_source_is_not_used(run_python):
    done = run_python(
        """
        import sys, zlib
        zlib.crc32 = lambda data: 2 * 7  # as if _records.c had changed since
        from tapegraph.__main__ import main
        sys.exit(main(["info"]))
        """
    )
    assert re.search("records .*_records.c has changed: run `python setup", done.stdout), done


def test_the_variable_is_a_switch(monkeypatch):
    monkeypatch.setenv("TAPEGRAPH_RECORDS", "no")
    with pytest.raises(ValueError, match="TAPEGRAPH_RECORDS: received 'no'; expected '1' or '0'"):
        records.off()


def test_arrays_at_odd_addresses_and_in_other_orders(calls):
    def odd(x):
        raw = np.zeros(x.nbytes + 1, np.uint8)[1:]
        view = raw.view(x.dtype).reshape(x.shape)
        view[...] = x
        assert not view.flags.aligned
        return view

    ways = [np.array, odd, np.asfortranarray, lambda x: np.repeat(x, 2, axis=1)[:, ::2], odd]
    given = [way(x) for x, way in zip(calls[3:], ways, strict=True)]
    step, others = tg.compile(network()[0]), tg.compile(network()[0])
    for x in calls[:3]:
        step(x), others(x)
    for x, plain in zip(given, calls[3:], strict=True):
        for one, two in zip(step(x), others(plain), strict=True):
            np.testing.assert_array_equal(one.numpy(), two.numpy())


def test_results_are_arrays_of_their_own(calls):
    want = trained(calls)

    def meddled(step):
        step = tg.compile(step)

        def call(x):
            given = x.copy()
            results = step(given)
            out = [tg.tensor(r.detach().numpy().copy()) for r in results]
            given[...] = np.nan
            for r in results:
                if r.ndim:
                    r.data[...] = np.nan
            return out

        return call

    got = trained(calls, meddled)
    alike(got, want)


def test_a_nan_is_looked_at_again():
    def make():
        p = tg.param([0.0, 1.0, 2.0])

        def step(x):
            p.grad = None
            safe = np.where(p > 0.0, np.log(p), 0.0)
            loss = tg.sum(safe * x)
            loss.backward()
            return loss

        return step, [p]

    beside(make, [(np.full(3, 1.0 + i),) for i in range(5)], "native")


def test_segments_end_after_some_work(calls, monkeypatch):
    want = trained(calls)
    monkeypatch.setattr(segments, "_MOST_RECORDS", 2)
    step = tg.compile(network()[0])
    for x in calls:
        step(x)
    assert step.source().count("= records") + step.source().count("    records") > 4
    alike(trained(calls), want)


def test_nothing_is_kept_from_call_to_call(calls):
    step = tg.compile(network()[0])
    for x in calls:
        step(x)
    x = calls[0]
    gc.collect()
    held = sys.getrefcount(x)
    tracemalloc.start()
    try:
        for _ in range(50):
            step(x)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(300):
            step(x)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 3000
    finally:
        tracemalloc.stop()
    assert sys.getrefcount(x) == held


def test_under_a_collector_that_never_rests(calls):
    want = trained(calls)
    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        got = trained(calls)
    finally:
        gc.set_threshold(*thresholds)
    alike(got, want)


def test_threads(calls):
    want = trained(calls)
    wrong = []

    def work():
        with tg.use_backend("native"):
            for _ in range(5):
                for one, two in zip(trained(calls), want, strict=True):
                    wrong.extend([1] * (not np.array_equal(one, two)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_child_runs_them(run_python):
    done = run_python(
        """
        import os, numpy as np, tapegraph as tg
        tg.set_backend("native")
        p = tg.param(np.ones(3))
        @tg.compile
        def step(x):
            p.grad = None
            loss = tg.sum(tg.tanh(p * x) ** 2)
            loss.backward()
            return loss
        x = np.arange(3.0)
        found = [step(x).item() for _ in range(4)]
        child = os.fork()
        if not child:
            os._exit(int(step(x).item() != found[-1]))
        assert os.waitpid(child, 0)[1] == 0
        print("done")
        """
    )
    assert done.stdout == "done\n", done.stderr


# ------------------------------------------------------------------ tables by themselves


def one_record(x, y):
    found = records.records_of(np.add, (x, y), {}, x + y)
    return [(r, [(1, 0), (2, 0), (3, 0)]) for r in found.records], [np.zeros(1)]


def test_a_table_takes_arrays_of_one_layout():
    x = np.arange(6.0).reshape(2, 3)
    run = records.table(*one_record(x, x), [x, x], [x])
    np.testing.assert_array_equal(run(x, x + 1), 2 * x + 1)
    assert len(run) == 1
    wrong = [
        x.astype(np.float32),
        x.T,
        x.reshape(3, 2),
        x[0],
        np.asfortranarray(x),
        x.astype(x.dtype.newbyteorder()),
        x.tolist(),
        None,
        np.float64(1),
        np.ma.masked_array(x),
    ]
    for other in wrong:
        with pytest.raises(records.Mismatch, match="array 1 lies in memory"):
            run(x, other)
    with pytest.raises(TypeError, match="takes 2 arrays"):
        run(x)
    with pytest.raises(TypeError):
        run(x, x, out=x)


def test_a_table_that_cannot_be_made():
    table = records._extension.Table
    ints, x = np.zeros(4, np.intp), np.zeros(3)
    bad = [
        ([(np.add, 99, 0, 0, -1, ((0, 0),))], ints, (x,), (), ()),
        ([(np.add, -1, 0, 0, -1, ((0, 0),))], ints, (x,), (), ()),
        ([("no_such", 0, 0, 0, -1, ((0, 0),))], ints, (x,), (), ()),
        ([(3, 0, 0, 0, -1, ((0, 0),))], ints, (x,), (), ()),
        ([(np.add, 0, 0, 0, -1, ((1, 0),))], ints, (x,), (), ()),
        ([(np.add, 0, 0, 0, -1, ((0, 0),) * 5)], ints, (x,), (), ()),
        ([(np.add,)], ints, (x,), (), ()),
        ([3], ints, (x,), (), ()),
        ([(np.add, 0, 99, 0, -1, ((0, 0),))], ints, (x,), (), ()),
        ([], ints.astype(np.int8), (x,), (), ()),
        ([], ints, (3,), (), ()),
        ([], ints, (x,), ("x",), ()),
        ([], ints, (x,), (), (np.float64(1),)),
    ]
    for arguments in bad:
        with pytest.raises((TypeError, LookupError, ValueError)):
            table(*arguments)


def test_rounds_end_where_a_nan_is_found():
    x, found = np.arange(5.0), np.zeros((), np.bool_)
    x[3] = np.nan
    looks = records.looks(x[0], found)
    copies = records.copies(x[0], np.zeros(()))
    places = [(looks.records[0], [(1, 0), (0, 0)]), (copies.records[0], [(1, 0), (2, 0)])]
    run = records.table(places, [found], [np.zeros(())], [np.zeros(())])
    out = np.full(5, 7.0)
    assert run.iterations(5, ((x, 0, 1), (out, 0, 1)), 1, found) == 3
    np.testing.assert_array_equal(out, [0.0, 1.0, 2.0, 7.0, 7.0])
    assert run.iterations(2, ((x, 0, 1), (out, 3, 1)), 1, found) == 2
    for looked, flag in ((3, found), (-1, found), (1, np.zeros((), np.int8))):
        with pytest.raises(TypeError, match="iterations look at a bool"):
            run.iterations(1, ((x, 0, 1), (out, 0, 1)), looked, flag)


def test_a_scalar_of_numpys_is_an_operand():
    x = np.float64(2.0)
    run = records.table(*one_record(np.zeros(3), x), [np.zeros(3), x], [np.zeros(3)])
    np.testing.assert_array_equal(run(np.arange(3.0), np.float64(5.0)), [5.0, 6.0, 7.0])
    for other in (np.float32(1), 1.0, np.array(1.0)):
        with pytest.raises(records.Mismatch):
            run(np.arange(3.0), other)


def test_work_is_counted():
    x = np.ones((8, 8))
    product = records.records_of(np.matmul, (x, x), {}, x @ x)
    assert product.work == math.prod((8, 8, 8))


# ------------------------------------------------------------------ loops


def body_plan(body, carry, *others):
    """Return the plan of a round, and which of what it reads is which."""
    given = [carry, *others]
    with Capture() as capture:
        recording = capture.recording(list(body(*map(capture.input, given))))
    plan = Plan(recording)
    values = [recording.values[slot] for slot in plan.leaves]
    order = [next(i for i, x in enumerate(given) if np.array_equal(x, v)) for v in values]
    return plan, order


def iterations(plan, order, count, reads, writes):
    plan.iterations(count, [reads[i] for i in order], writes)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_rounds_are_the_loop_in_python(inside, dtype, backwards, rng, monkeypatch):
    w, b = rng.normal(size=(4, 4)).astype(dtype), rng.normal(size=4).astype(dtype)
    xs = rng.normal(size=(50, 3, 4)).astype(dtype)
    start = np.zeros((3, 4), dtype)

    def body(h, x, w, b):
        new = tg.tanh(h @ w + (x.T + 0.5).T + b)
        return new, tg.mean(new * new), tg.sum(new.T, axis=1), x

    plan, order = body_plan(body, start, xs[0], w, b)
    monkeypatch.setattr(plan.iterations, "_most", 7)
    first, by = (49, -1) if backwards else (0, 1)
    h = np.zeros((51, 3, 4), dtype)
    means, seconds, same = np.zeros(50, dtype), np.zeros((50, 4), dtype), np.zeros_like(xs)
    reads = [
        LoopRows(h, 0, 1),
        LoopRows(xs, first, by),
        LoopRows(w),
        LoopRows(b),
    ]
    writes = [
        LoopRows(h, 1, 1),
        LoopRows(means, first, by),
        LoopRows(seconds, first, by),
        LoopRows(same, 0, 1),
    ]
    iterations(plan, order, 50, reads, writes)
    now = tg.tensor(start)
    for i, t in enumerate(range(50)[::by]):
        now, mean, second, _ = body(now, tg.tensor(xs[t]), w, b)
        same_bits(h[i + 1], now.numpy())
        same_bits(means[t, ...], mean.numpy())
        same_bits(seconds[t], second.numpy())
        same_bits(same[i], xs[t])
    assert inside


def test_two_carries_may_change_places(rng):
    plan, order = body_plan(lambda a, b: (b * 1.0, a + 0.0, b), np.zeros(3), np.ones(3))
    a, b, seen = (np.zeros((6, 3)) for _ in range(3))
    b[0] = 1.0
    reads = [LoopRows(a, 0, 1), LoopRows(b, 0, 1)]
    iterations(
        plan,
        order,
        5,
        reads,
        [LoopRows(a, 1, 1), LoopRows(b, 1, 1), LoopRows(seen, 0, 1)],
    )
    np.testing.assert_array_equal(a[:, 0], [0, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(seen[:5, 0], [1, 0, 1, 0, 1])


def test_what_is_not_all_records_has_no_rounds():
    plan, _ = body_plan(lambda x, y: [np.sort(x * y) + y], np.zeros(3), np.ones(3))
    assert plan.iterations is None


def test_rounds_stay_inside_their_arrays():
    plan, order = body_plan(lambda x, y: [x * y + y], np.zeros(3), np.ones(3))
    h, y = np.zeros((6, 3)), np.ones(3)
    fixed = np.zeros((6, 3))
    fixed.flags.writeable = False
    for count, reads, writes, error in [
        (6, [LoopRows(h, 0, 1), LoopRows(y)], [LoopRows(h, 1, 1)], IndexError),
        (2, [LoopRows(h, -1, 1), LoopRows(y)], [LoopRows(h, 1, 1)], IndexError),
        (3, [LoopRows(h, 1, -1), LoopRows(y)], [LoopRows(h, 1, 1)], IndexError),
        (1, [LoopRows(h, 0, 1), LoopRows(y)], [LoopRows(h, 6, 1)], IndexError),
        (2, [LoopRows(h), LoopRows(y)], [LoopRows(h, 1, 1)], records.Mismatch),
        (
            2,
            [LoopRows(h, 0, 1), LoopRows(y.astype(np.float32))],
            [LoopRows(h, 1, 1)],
            records.Mismatch,
        ),
        (
            2,
            [LoopRows(h[:, ::-1], 0, 1), LoopRows(y)],
            [LoopRows(h, 1, 1)],
            records.Mismatch,
        ),
        (
            2,
            [LoopRows(h, 0, 1), LoopRows(y)],
            [LoopRows(fixed, 1, 1)],
            records.Mismatch,
        ),
        (
            2,
            [LoopRows(h, 0, 1), LoopRows([1.0, 1.0, 1.0])],
            [LoopRows(h, 1, 1)],
            TypeError,
        ),
    ]:
        with pytest.raises(error):
            iterations(plan, order, count, reads, writes)
    assert not h.any()
    iterations(plan, order, 5, [LoopRows(h, 0, 1), LoopRows(y)], [LoopRows(h, 1, 1)])
    np.testing.assert_array_equal(h[:, 0], np.arange(6.0))
    iterations(plan, order, 0, [LoopRows(h, 0, 1), LoopRows(y)], [LoopRows(h, 1, 1)])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("checkpoint", [1, 3])
@pytest.mark.parametrize("block", [1, 3000, 1 << 20])
def test_a_scan_runs_in_c_with_the_bits_of_its_rounds(reverse, checkpoint, block, rng, monkeypatch):
    w, xs, start = rng.normal(size=(4, 4)), rng.normal(size=(50, 3, 4)), rng.normal(size=(3, 4))

    def loss(w, xs, start):
        def body(h, x):
            new = tg.tanh(h @ w + x)
            return new, tg.sum(new * x, axis=0)

        last, ys = tg.scan(body, start, xs, reverse=reverse, checkpoint=checkpoint)
        return tg.sum(last * last) + tg.sum(ys * ys[::-1])

    ran = []
    run = segments.Iterations.__call__
    monkeypatch.setattr(
        segments.Iterations, "__call__", lambda self, n, *a: ran.append(n) or run(self, n, *a)
    )
    monkeypatch.setattr("tapegraph.loops.scan_entry._BLOCK", block)
    both = tg.value_and_grad(loss, argnums=(0, 1, 2))

    def found():
        value, grads = both(w, xs, start)
        return [np.asarray(x) for x in (value, *grads)]

    got = found()
    assert sum(ran) == 50 * (2 if checkpoint == 1 else 1)
    monkeypatch.setenv("TAPEGRAPH_RECORDS", "0")
    alike(got, found())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("zeros", [[], [30]])
def test_a_gradient_in_the_body_of_a_scan_looks_again_where_it_is_nan(zeros, rng, monkeypatch):
    xs = np.abs(rng.normal(size=(50, 4)))
    xs[zeros, 0] = 0.0

    def body(c, x):
        slope = tg.grad(lambda q: tg.sum(np.where(q * x > 0.0, np.log(q * x), 0.0)))(c)
        return c + 0.01 * slope, slope

    ran = []
    run = segments.Iterations.__call__

    def counted(self, *given):
        ran.append(run(self, *given))
        return ran[-1]

    monkeypatch.setattr(segments.Iterations, "__call__", counted)
    carry, ys = tg.scan(body, tg.tensor(np.ones(4)), xs)
    assert sum(ran) == (zeros or [50])[0]
    now = tg.tensor(np.ones(4))
    for x, y in zip(xs, ys.numpy(), strict=True):
        now, slope = body(now, x)
        same_bits(y, slope.numpy())
    same_bits(carry.numpy(), now.numpy())


def trains(kind, **options):
    """Return the maker of a step that trains."""

    def make():
        step, (w, b, _) = network()
        optimizer = kind([w, b], lr=0.05, **options)

        def train(x):
            optimizer.zero_grad()
            y = tg.tanh(x @ w + b)
            loss = tg.mean(tg.relu(y @ w) ** 2)
            loss.backward()
            optimizer.step()
            return {"loss": loss, "y": y, "w": w, "rows": x}

        return train, [w, b, optimizer]

    return make


def adds_up():
    w = tg.param(np.ones(4))

    def step(x):
        loss = tg.sum(tg.tanh(w * x))
        loss.backward()  # into the gradient of the calls before
        w.assign((w * 0.9 + w.grad).detach())
        return loss

    return step, [w]


def swaps():
    a, b = tg.tensor(np.arange(4.0)), tg.tensor(np.ones(4))

    def step(x):
        old = tg.reshape(a, (2, 2))  # a view, of what it was
        a.assign(b + tg.sum(x, axis=0))
        b.assign(tg.reshape(old, 4))
        return a

    return step, [a, b]


def passes_on():
    a, b, c = (tg.tensor(np.full((3, 4), float(i))) for i in range(3))

    def step(x):
        one, two = b + 0.0, c + 0.0
        c.assign(x)
        a.assign(one)
        b.assign(two)
        return a * b

    return step, [a, b, c]


def masks():
    w = tg.param(np.linspace(-1.0, 1.0, 4))

    def step(x):
        w.grad = None
        loss = tg.sum(np.where(x > 0.0, np.log(x), 0.0) * w + x * 0.0 * w)
        loss.backward()
        w.assign((w - 0.1 * w.grad).detach())
        return loss

    return step, [w]


def looks_again():
    p = tg.param(np.ones(4))

    def step(x):
        p.grad = None
        q = p * x
        loss = tg.sum(np.where(q > 0.0, np.log(q), 0.0))  # 0 * inf where x is 0
        loss.backward()
        p.assign((p - 0.01 * p.grad).detach())
        return loss

    return step, [p]


def sorts():
    w = tg.param(np.linspace(-1.0, 1.0, 4))

    def step(x):
        w.grad = None
        loss = tg.sum(np.sort(w * x, axis=1) * x)  # a line of Python
        loss.backward()
        w.assign((w - 0.1 * w.grad).detach())
        return loss

    return step, [w]


def turns():
    w = tg.tensor(np.arange(16.0).reshape(4, 4))

    def step(x):
        w.assign(w.T * 0.5 + 1.0)  # lies now so, now so
        return tg.sum(w @ x.T, axis=0)

    return step, [w]


SCANS = {
    "sgd": (trains(tg.SGD, momentum=0.9), 0),
    "adam": (trains(tg.Adam), 0),
    "adds up": (adds_up, 0),
    "swaps": (swaps, 0),
    "passes on": (passes_on, 0),
    "masks": (masks, 0),
    "looks again": (looks_again, 5),
    "sorts": (sorts, None),
    "turns": (turns, None),
}


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("most", [1 << 24, 3000])
def test_a_scan_of_steps_has_the_bits_of_its_calls(name, most, rng, monkeypatch):
    make, nans = SCANS[name]
    x = rng.normal(size=(60, 3, 4))
    x[np.arange(10, 60, 10), 0, 0] = 0.0
    ran = []
    run = segments.Iterations.__call__

    def counted(self, count, *args):
        ran.append(run(self, count, *args))
        return ran[-1]

    monkeypatch.setattr(segments.Iterations, "__call__", counted)
    monkeypatch.setattr(segments, "_MOST_WORK", most)
    step, state = make()
    step = tg.compile(step)
    got = [step.scan(x[:1]), step.scan(x[1:34])]
    held = [p.data for p in state if isinstance(p, tg.Tensor)]
    then = [array.copy() for array in held]
    got.append(step.scan(x[34:]))
    alike(held, then)
    left = standing(state)
    twin, its = make()
    want = [taken(twin(row)) for row in x]
    for i, one in enumerate(want):
        number = (i > 0) + (i >= 34)
        part, place = got[number], i - (0, 1, 34)[number]
        agree(taken(rows_of(part, place)), one, "native", f"call {i}")
    agree(left, standing(its), "native", "state")
    if nans is None:
        assert not ran
    else:
        # Of the 60 two make the plan, four compare it, and one tells how long a run takes.
        assert sum(ran) >= 60 - 12 - nans


def test_a_carry_that_comes_to_lie_otherwise():
    def last(scan_it, start):
        step = lambda a: np.sort(tg.tanh(a.T * 0.5 + 1.0), axis=0).T  # noqa: E731
        if scan_it:
            return tg.scan(lambda a, _: (step(a), None), tg.tensor(start), length=5)[0]
        a = tg.tensor(start)
        for _ in range(5):
            a = step(a)
        return a

    start = np.arange(9.0).reshape(3, 3)
    for laid in (start, np.asfortranarray(start)):
        same_bits(last(True, laid).numpy(), last(False, laid).numpy())
