"""Tensors whose numbers an engine keeps: whoever looks sees the present ones."""

from __future__ import annotations

import copy
import gc
import operator
import os
import pickle
import threading

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.recording.values import is_remote, offload


@pytest.fixture
def w():
    """A parameter that is away, and holds 3 and 4."""
    leaf = tg.param([1.0, 2.0], name="w")
    offload(leaf, lambda: np.array([3.0, 4.0]))
    return leaf


READS = {
    "data": lambda w: w.data,
    "numpy": lambda w: w.numpy(),
    "detach": lambda w: w.detach().data,
    "unary": lambda w: np.exp(w).data - np.exp([3.0, 4.0]) + [3.0, 4.0],
    "left": lambda w: (w * 1.0).data,
    "right": lambda w: (1.0 * w).data,
    "beside a tensor": lambda w: (tg.tensor([1.0, 1.0]) * w).data,
    "beside a parameter": lambda w: (tg.param([1.0, 1.0]) * w).data,
    "list": lambda w: ([1.0, 1.0] * w).data,
    "reduced": lambda w: np.cumsum(w).data - [0.0, 3.0],
    "joined": lambda w: tg.concat([w, w]).data[2:],
    "indexed": lambda w: w[::-1].data[::-1],
    "copied": lambda w: copy.deepcopy(w).data,
    "pickled": lambda w: pickle.loads(pickle.dumps(w)).data,
    "dual": lambda w: tg.jvp(lambda x: x * w, (np.ones(2),), (np.zeros(2),))[0].detach(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_look_fetches_it(w, read):
    np.testing.assert_allclose(np.asarray(read(w)), [3.0, 4.0], rtol=1e-15)
    assert not is_remote(w) and type(w) is tg.Tensor


@pytest.mark.parametrize(
    "multiply",
    [
        lambda w: w * tg.tensor([5.0, 6.0]),
        lambda w: tg.tensor([5.0, 6.0]) * w,
        lambda w: np.array([5.0, 6.0]) * w,
        lambda w: tg.concat([tg.tensor([0.0]), w])[1:] * [5.0, 6.0],
    ],
)
def test_a_gradient_reaches_it(w, multiply):
    with tg.use_backend("native"):
        tg.sum(multiply(w)).backward()
    np.testing.assert_array_equal(w.grad, [5.0, 6.0])


def test_what_was_recorded_before_it_left_is_stale():
    w = tg.param([1.0, 2.0])
    y = tg.sum(w * w)
    offload(w, lambda: np.array([3.0, 4.0]))
    w._changed = y._entry._seq + 1
    with pytest.raises(RuntimeError, match="was changed after"):
        y.backward()


def test_writes_bring_it_home(w):
    w.data += 1.0
    np.testing.assert_array_equal(w.data, [4.0, 5.0])
    for write in (lambda: w.assign([7.0, 8.0]), lambda: setattr(w, "data", [7.0, 8.0])):
        offload(w, lambda: np.array([3.0, 4.0]))
        write()
        assert not is_remote(w)
        np.testing.assert_array_equal(w.data, [7.0, 8.0])
    optimizer = tg.SGD([w], lr=1.0)
    offload(w, lambda: np.array([3.0, 4.0]))
    optimizer.zero_grad()
    assert is_remote(w)
    w.grad = [1.0, 1.0]
    optimizer.step()
    np.testing.assert_array_equal(w.data, [2.0, 3.0])


def test_it_looks_like_any_tensor(w):
    assert isinstance(w, tg.Tensor) and type(w).__name__ == "Tensor"
    assert (w.name, w.requires_grad, w.op) == ("w", True, "param")
    assert repr(w) == "Tensor([3., 4.], name='w', op='param')"
    with pytest.raises(TypeError, match="subclass of Tensor"):
        type("Mine", (type(w),), {})


def test_threads_that_fetch_at_once_have_one_array(w):
    fetches = []
    offload(w, lambda: fetches.append(1) or np.array([3.0, 4.0]))
    found = []
    threads = [threading.Thread(target=lambda: found.append(w._array)) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    np.testing.assert_array_equal(found, [[3.0, 4.0]] * 8)
    assert len(set(map(id, found))) == 1 <= len(fetches)


@pytest.mark.parametrize(
    ("meanwhile", "want"),
    [
        (lambda w: w.assign([9.0, 9.0]), [9.0, 9.0]),
        (lambda w: w.numpy(), [3.0, 4.0]),
        (lambda w: offload(w, lambda: np.array([7.0, 7.0])), [7.0, 7.0]),
    ],
)
def test_what_comes_while_it_is_fetched_stays(w, meanwhile, want):
    came = []

    def fetch():
        if not came:  # as a signal handler would, or another thread
            came.append(1)
            meanwhile(w)
        return np.array([3.0, 4.0])

    offload(w, fetch)
    for _ in range(3):
        np.testing.assert_array_equal(w.numpy(), want)
        np.testing.assert_array_equal(w.data, want)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_everything_is_home_before_a_fork(run_python):
    done = run_python(
        """
        import os, numpy as np, tapegraph as tg
        from tapegraph.recording.values import offload
        w, parent = tg.param([1.0]), os.getpid()
        offload(w, lambda: np.array([float(os.getpid() == parent)]))
        if os.fork() == 0:
            print(w.item(), flush=True)
            os._exit(0)
        os.wait()
        """
    )
    assert (done.stdout, done.returncode) == ("1.0\n", 0), done.stderr


def test_one_that_is_dropped_is_gone():
    leaf = tg.param([1.0])
    held = []
    offload(leaf, lambda: held.append(1))
    attribute = operator.attrgetter("_offloaded")
    from tapegraph.recording import values

    key = id(leaf)
    assert attribute(values)[key] is leaf
    del leaf
    gc.collect()
    assert key not in attribute(values) and not held
