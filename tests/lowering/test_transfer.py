"""Arrays between NumPy and TensorFlow: no layout crashes the process or changes a number.

TensorFlow aborts on memory that its kernels do not expect. With --thorough all of this runs in an
interpreter of its own: a crash fails a test, and takes no other along. The quick suite does without
the seconds that importing TensorFlow once more takes; pytest-xdist names the test that crashed.
"""

from __future__ import annotations

import importlib.util
import textwrap

import pytest
from contract import OPERATIONS

pytestmark = [
    pytest.mark.versions,
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"),
]

# What every program below starts from: arrays of all layouts, by name.
LAYOUTS = """
    import sys
    import numpy as np
    import tapegraph as tg

    DTYPES = ("?", "b", "B", "h", "H", "i", "I", "l", "L", "q", "Q", "f", "d")

    def placed(data, offset):
        '''A copy of an array, so many bytes past a multiple of 64.'''
        data = np.asarray(data)
        raw = np.empty(data.nbytes + 128, dtype=np.uint8)
        start = -raw.ctypes.data % 64 + offset
        array = raw[start : start + data.nbytes].view(data.dtype).reshape(data.shape)
        array[...] = data
        return array

    def read_only(data):
        array = placed(data, 0)
        array.flags.writeable = False
        return array

    def every_other(data, axis):
        wide = placed(np.repeat(data, 2, axis=axis), 0)
        return wide[(slice(None),) * axis + (slice(None, None, 2),)]

    def layouts(data):
        '''The same numbers in every layout that NumPy knows.'''
        step = data.dtype.itemsize
        yield "aligned", placed(data, 0)
        for offset in {1, 2, 4, 8, 16, 24, 32, 48, 63, step}:
            yield f"offset {offset}", placed(data, offset)
        yield "read-only", read_only(data)
        yield "big-endian", placed(data.astype(data.dtype.newbyteorder(">")), 0)
        if data.ndim:
            yield "reversed", placed(data[::-1], 0)[::-1]
            yield "strided", every_other(data, 0)
            yield "strided inside", every_other(data, data.ndim - 1)
            yield "broadcast", np.broadcast_to(data[:1], data.shape)
        if data.ndim > 1:
            yield "Fortran", np.asfortranarray(placed(data, 0))
            yield "transposed", placed(data.T, 0).T
            yield "one row of many", placed(np.stack([data, data], 1), 0)[:1, 0]
"""


# Arrays arrive unchanged, and are shared exactly when that is safe.
# Sharing shows itself: what is written to the array afterwards is seen in the tensor.
ARRIVING = """
    from tapegraph.lowering.calls import shareable, to_numpy, to_tensorflow

    shapes = [(), (0,), (3, 0, 2), (1,), (7,), (1, 5), (5, 1), (3, 4), (2, 3, 4), (60, 70)]
    seen = {True: 0, False: 0}
    for dtype in DTYPES:
        for shape in shapes:
            data = (np.arange(np.prod(shape, dtype=int)).reshape(shape) * 3 % 120).astype(dtype)
            for label, array in layouts(data):
                told, want = shareable(array), array.copy()
                tensor = to_tensorflow(array)
                got = to_numpy(tensor)
                what = (dtype, shape, label)
                assert got.dtype == array.dtype.newbyteorder("="), what
                np.testing.assert_array_equal(got, want, err_msg=str(what), strict=False)
                assert got.shape == array.shape, what
                safe = (
                    label == "aligned" and dtype in "lqfd" and bool(shape) and array.size > 0
                )
                if label in ("Fortran", "transposed", "strided", "strided inside", "reversed"):
                    # One row or column is contiguous either way; alignment is then a chance.
                    safe = told and array.flags.c_contiguous and array.ctypes.data % 64 == 0
                if label == "one row of many":
                    safe = told
                assert told == safe, what
                if array.size and array.flags.writeable:
                    array[...] = ~array if dtype == "?" else array + 1
                    shared = not np.array_equal(to_numpy(tensor), want)
                    assert shared == told, what
                seen[told] += 1
    assert min(seen.values()) > 50, seen
"""

# A backward in TensorFlow leaves the shared arrays alone.
SHARING = """
    from tapegraph.lowering.calls import shareable

    tg.set_backend("tensorflow")
    x = tg.param(np.ones((200, 300)))
    c = tg.tensor(np.full((200, 300), 2.0))
    assert shareable(x._array) and shareable(c._array)
    for build in (lambda: x * c, lambda: x + c, lambda: -x, lambda: tg.relu(x - c), lambda: x * 1):
        x.grad = None
        y = build()
        y.retain_grad()
        seed = placed(np.full(y.shape, 3.0), 0)
        y.backward(seed)
        assert tg.last_backward().backend == "tensorflow"
        assert (x.data == 1.0).all() and (c.data == 2.0).all() and (seed == 3.0).all()
        held = x.grad.copy()
        for grad in (x.grad, y.grad):
            assert grad.flags.writeable and grad.flags.owndata
            for other in (x._array, c._array, y._array, seed):
                assert not np.shares_memory(grad, other)
        assert not np.shares_memory(x.grad, y.grad)
        seed[...] = 7.0
        np.testing.assert_array_equal(x.grad, held)
"""

# Every layout through a whole backward.
BACKWARD = """
    def differentiate(y, leaves, seed, backend):
        with tg.use_backend(backend):
            y.backward(seed)
        grads = [leaf.grad for leaf in leaves]
        for leaf in leaves:
            leaf.grad = None
        return grads

    def unguarded(array):
        '''A leaf that holds exactly this array: later versions may hand over any layout.'''
        leaf = tg.tensor(0.0)
        leaf._array = array
        return leaf

    met = 0
    for shape in [(), (0, 4), (1, 4), (4, 4), (130, 4)]:
        for dtype in ("f", "d", "i", "?"):
            data = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
            for label, array in layouts(data):
                x, w = tg.param(array), tg.param(np.full((4, 4), 0.5, dtype="f"))
                native_order = array.astype(array.dtype.newbyteorder("="), order="K", copy=False)
                y = tg.tanh(x * 0.001 + unguarded(native_order) * 0.002)
                if shape:
                    y = y @ w
                leaves = [x, w] if shape else [x]
                for name, seed in layouts(np.ones(y.shape, dtype=y.dtype)):
                    if name not in ("aligned", "offset 8", "Fortran", "big-endian", "broadcast"):
                        continue
                    met += 1
                    if met % ONE_IN:
                        continue
                    native = differentiate(y, leaves, seed, "native")
                    graph = differentiate(y, leaves, seed, "tensorflow")
                    for a, b in zip(native, graph, strict=True):
                        assert a.dtype == b.dtype and a.shape == b.shape
                        np.testing.assert_allclose(
                            b, a, rtol=1e-4, atol=1e-5, err_msg=str((shape, dtype, label, name))
                        )
"""

# Every operation on large arrays off alignment.
OFF_ALIGNMENT = """
    from tapegraph import fallback, lowering
    from tapegraph.recording.linearize import linearize

    lowering.cache_clear()
    rng = np.random.default_rng(0)
    index = rng.integers(0, 64, size=(64, 64))
    CALLS = {
        name: (lambda x, y, name=name: getattr(tg, name)(x))
        for name in "neg sin cos tan exp log sqrt tanh sigmoid relu abs gelu silu transpose sum "
        "mean softmax".split()
    } | {
        "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y,
        "div": lambda x, y: x / y, "pow": lambda x, y: x**y, "matmul": lambda x, y: x @ y,
        "batch_matmul": lambda x, y: tg.batch_matmul(tg.reshape(x, (4, 64, 64))[..., :32],
                                                     tg.reshape(y, (4, 64, 64))[:, :32]),
        "reshape": lambda x, y: tg.reshape(x, (64, 256)),
        "tensor_slice": lambda x, y: tg.tensor_slice(x, (1, 3), (100, 77)),
        "concat": lambda x, y: tg.concat([x, y]),
        "gather": lambda x, y: tg.gather(x, index),
        "where": lambda x, y: tg.where(y > 1.0, x, y),
        "getitem": lambda x, y: x[::-1, 3:90:2] * y[:, :44],
        "index": lambda x, y: x[index, index.T],
        "softmax_crossentropy": lambda x, y: tg.softmax_crossentropy(x, tg.softmax(y)),
        "mse_loss": lambda x, y: tg.mse_loss(x, y),
    }
    assert set(CALLS) == OPERATIONS - set(lowering.GAPS)
    for i, (name, call) in enumerate(CALLS.items()):
        for dtype in ("f", "d") if ONE_IN == 1 else ("fd"[i % 2],):
            for offset in (n for n in OFFSETS if n % np.dtype(dtype).itemsize == 0):
                data = rng.uniform(0.5, 1.5, (2, 128, 128)).astype(dtype)
                x, y = (tg.param(0.0) for _ in range(2))
                x._array, y._array = placed(data[0], offset), placed(data[1], offset)
                out = call(x, y)
                recording = linearize([out])
                seeds = [placed(np.ones(out.shape, dtype=dtype), offset)]
                for a, b in zip(
                    fallback.gradients(recording, seeds), lowering.gradients(recording, seeds)
                ):
                    np.testing.assert_allclose(
                        np.asarray(b), np.asarray(a), rtol=2e-3 if dtype == "f" else 1e-9,
                        atol=1e-4 if dtype == "f" else 1e-12, err_msg=f"{name} {dtype} {offset}"
                    )
    assert lowering.cache_info().compiles == 33 * (2 if ONE_IN == 1 else 1)  # a graph a dtype
"""

# Every operation on empty and 0-d arrays.
EMPTY = """
    from tests.cases import CASES
    from tapegraph.testing import check_parity

    tried = 0
    for case in CASES:
        arrays = case.arrays(DTYPE)
        if not any(a.size == 0 or a.ndim == 0 for a in arrays):
            continue
        print(case.id, file=sys.stderr)  # the last one is named where the process dies
        with np.errstate(all="ignore"):
            report = check_parity(case.function(DTYPE), *arrays)
        tried += report.backend == "tensorflow"
    assert tried > 60, tried
"""


def succeed(run_python, *programs: str) -> None:
    """Run programs in an interpreter of their own."""
    done = run_python(LAYOUTS + "".join(programs), PYTHONFAULTHANDLER="1", TAPEGRAPH_STRICT="1")
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr[-4000:]}"


ARRAYS = ARRIVING, SHARING, BACKWARD, OFF_ALIGNMENT


def test_no_layout_changes_a_number(graph_engine):
    told = f"\n    OFFSETS, ONE_IN, OPERATIONS = (0, 4, 8, 32, 64), 14, {set(OPERATIONS)}\n"
    exec(textwrap.dedent("".join((LAYOUTS, told, *ARRAYS))), {})


@pytest.mark.thorough
def test_no_layout_crashes_or_changes_a_number(run_python):
    told = f"\n    OFFSETS, ONE_IN, OPERATIONS = range(65), 1, {set(OPERATIONS)}\n"
    succeed(run_python, told, *ARRAYS)


@pytest.mark.thorough  # one process for what `test_parity` asks without
@pytest.mark.parametrize("dtype", ["f", "d"])
def test_every_operation_on_empty_and_0d_arrays(run_python, dtype):
    succeed(run_python, f"\n    DTYPE = {dtype!r}\n", EMPTY)
