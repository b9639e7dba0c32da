"""A checkpoint is written and read array by array: it takes the memory that its arrays take."""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import pytest

import tapegraph as tg
from tests.saving.test_checkpoints import SUFFIXES

MB = 1e6
PARTS, SIZE = 8, 1_000_000
WHOLE = PARTS * SIZE * 8


@pytest.fixture(params=SUFFIXES)
def path(request, tmp_path):
    return str(tmp_path / f"run.{request.param}")


def peak_of(call):
    """The most memory that a call takes beyond what was there before, and what it returns."""
    tracemalloc.start()
    try:
        result = call()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


def parameters(start):
    return {f"w{i}": tg.param(np.full(SIZE, start + i)) for i in range(PARTS)}


@pytest.mark.one_in(2, start=1)
def test_saving_and_loading_take_the_memory_of_the_arrays(path):
    model = parameters(1.0)
    assert peak_of(lambda: tg.save(path, model))[0] < 40 * MB
    peak, saved = peak_of(lambda: tg.load(path))
    assert peak < 1.1 * WHOLE
    del saved
    model = parameters(0.0)
    peak, saved = peak_of(lambda: tg.load(path, into=model))
    assert peak < 1.1 * WHOLE  # beside the old numbers, which stay until all is read
    for i, p in enumerate(model.values()):
        np.testing.assert_array_equal(p.data, 1.0 + i)


@pytest.mark.one_in(2)
def test_an_optimizers_state_is_not_copied(path):
    model = {"w": tg.param(np.zeros(3 * SIZE))}
    optimizer, other = tg.Adam(model, lr=0.1), tg.Adam(model, lr=0.1)
    whole = sum(slot.data.nbytes for slot in optimizer.state["w"].values())
    assert whole >= 48 * MB
    optimizer.params[0].grad = np.ones(3 * SIZE)
    optimizer.step()
    assert peak_of(lambda: tg.save(path, optimizer))[0] < 40 * MB
    peak, _ = peak_of(lambda: tg.load(path, into=other))
    assert peak < 1.5 * whole
    for name, slot in optimizer.state["w"].items():
        np.testing.assert_array_equal(other.state["w"][name].data, slot.data)


@pytest.mark.one_in(2)
def test_arrays_in_another_order_are_copied_in_parts(path):
    table = np.arange(3.0 * SIZE).reshape(3, SIZE)
    arrays = {"rows": table[:, ::-1], "columns": table.T, "swapped": table.astype(">f8")}
    assert peak_of(lambda: tg.save(path, arrays))[0] < 40 * MB
    for name, array in tg.load(path).items():
        np.testing.assert_array_equal(array, arrays[name])


def test_another_models_file_is_refused_before_its_arrays_are_read(path):
    tg.save(path, parameters(1.0))
    model = {**parameters(0.0), "w7": tg.param(np.zeros(3))}

    def refused():
        with pytest.raises(ValueError, match=r"shape \(1000000,\) for 'w7'"):
            tg.load(path, into=model)

    assert peak_of(refused)[0] < 5 * MB


SHORT_OF_MEMORY = """
    import resource
    import numpy as np, tapegraph as tg
    tg.save, tg.load
    w = tg.param(np.arange(10_000_000.0))
    limit = int(open("/proc/self/statm").read().split()[0]) * 4096 + 60_000_000
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    tg.save({path!r}, {{"w": w}})
    try:
        tg.load({path!r}, into={{"w": w}})
    except MemoryError as error:
        print("MemoryError", error, w.data[-1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory as Linux does")
@pytest.mark.one_in(2)
def test_where_memory_is_short_a_checkpoint_is_saved_all_the_same(run_python, path):
    done = run_python(SHORT_OF_MEMORY.format(path=path))
    assert done.stdout.startswith("MemoryError Unable to allocate"), done.stderr
    assert done.stdout.endswith("9999999.0\n")
    np.testing.assert_array_equal(tg.load(path)["w"], np.arange(10_000_000.0))


TWO_GB = """
    import resource, time
    import numpy as np, tapegraph as tg
    tg.set_backend("native")
    tg.save, tg.load

    def resident():
        return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 1e9

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9

    model = {{f"w{{i}}": tg.param(np.full(25_000_000, {start} + i)) for i in range(10)}}
    before, start = resident(), time.process_time()
    {call}
    print(peak() - before, time.process_time() - start)
    assert model["w9"].data[-1] == 10.0
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="counts memory as Linux does")
def test_two_gigabytes(run_python, path):
    saved = run_python(TWO_GB.format(start=1.0, call=f"tg.save({path!r}, model)"))
    loaded = run_python(TWO_GB.format(start=0.0, call=f"tg.load({path!r}, into=model)"))
    beyond, _ = map(float, saved.stdout.split())
    assert beyond < 0.2
    beyond, _ = map(float, loaded.stdout.split())
    assert beyond < 1.1 * 2.0
