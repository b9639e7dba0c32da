"""Forwards by TensorFlow's eager kernels: NumPy's numbers, for large arrays, eagerly."""

from __future__ import annotations

import importlib.util
import threading

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.__main__ import info
from tests.cases import CASES

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("TensorFlow is not here", allow_module_level=True)
from tapegraph.lowering import translate
from tapegraph.lowering.rows.elementwise import KERNELS
from tapegraph.recording.op import OPS

pytestmark = pytest.mark.versions

# What has attributes, or an operand that is no float, is left to NumPy.
SERVED = {"matmul", "batch_matmul", "transpose"} | {
    name
    for name in KERNELS
    if OPS[name].differentiable is None and name not in ("astype", "round", "round_to")
}
# The rest with --thorough: an eager kernel takes its time.
QUICK = {"exp", "mul", "pow", "gelu", "matmul", "batch_matmul", "transpose"}
TOLERANCE = {"float64": (1e-9, 1e-12), "float32": (1e-4, 1e-5)}


@pytest.fixture
def ran(monkeypatch):
    """The names of operations that a kernel of TensorFlow's computed."""
    found = []
    plain = translate.forward

    def noting(op, arrays, attrs):
        out = plain(op, arrays, attrs)
        if out is not None:
            found.append(op.name)
        return out

    monkeypatch.setattr(translate, "forward", noting)
    return found


def evaluated(case, dtype):
    tensors = [tg.param(a) for a in case.arrays(dtype)]
    y = case.function(dtype)(*tensors)
    if y.requires_grad:
        tg.sum(y).backward()
    return y, [t.grad for t in tensors]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "op",
    [
        op if op in QUICK else pytest.param(op, marks=pytest.mark.thorough)
        for op in sorted({case.op for case in CASES} & SERVED)
    ],
)
def test_every_case_has_the_numbers_of_numpy(op, dtype, ran):
    """Values and the gradients by them, over all cases: kinks, infinities and NaN too."""
    rtol, atol = TOLERANCE[dtype]
    with np.errstate(all="ignore"), tg.use_backend("native"):
        for case in CASES:
            if case.op == op:
                expected, grads = evaluated(case, dtype)
                with tg.use_forward("tensorflow", threshold=0):
                    got, kernel_grads = evaluated(case, dtype)
                assert type(got._array) is np.ndarray and got._array.flags.writeable
                assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
                np.testing.assert_allclose(got.data, expected.data, rtol, atol, err_msg=case.id)
                for one, two in zip(kernel_grads, grads, strict=True):
                    assert (one is None) == (two is None)
                    if one is not None:
                        np.testing.assert_allclose(one, two, rtol, atol, err_msg=case.id)
    assert op in ran


def test_the_threshold_counts_the_elements_of_the_largest(ran):
    small, large = tg.param(np.ones(9)), tg.param(np.ones(10))
    with tg.use_forward("tensorflow", threshold=10):
        tg.exp(small)
        assert ran == []
        tg.exp(large)
        small.reshape(9, 1) * large
        2.0 * large
        tg.matmul(large.reshape(2, 5), large.reshape(5, 2))
    assert ran == ["exp", "mul", "mul", "matmul"]
    with tg.use_forward("tensorflow"):
        tg.exp(tg.param(np.ones(63)))
        assert len(ran) == 4
        tg.exp(tg.param(np.ones(64)))
    tg.exp(large)
    assert len(ran) == 5


def test_numpy_keeps_what_is_not_floats_and_what_is_refused(ran):
    with tg.use_forward("tensorflow", threshold=0):
        assert (tg.tensor([1, 2]) + np.array([3, 4])).data.tolist() == [4, 6]
        with pytest.raises(ValueError, match=r"add: received shapes \(2,\) and \(3,\)"):
            tg.param(np.ones(2)) + tg.param(np.ones(3))
        with pytest.raises(ValueError, match="matmul"):
            tg.matmul(tg.param(np.ones((2, 3))), tg.param(np.ones((2, 3))))
    assert ran == []


def test_mixed_types_are_promoted_as_in_numpy(ran):
    x, y = tg.param(np.ones(3, np.float32)), tg.param(np.full(3, 0.1))
    with tg.use_forward("tensorflow", threshold=0):
        assert ((x + y).dtype, (x * 0.1).dtype) == (np.float64, np.float32)
        np.testing.assert_array_equal((x + y).data, np.full(3, 1.1))
    assert ran == ["add", "mul", "add"]


def test_a_compiled_step_is_recorded_in_numpy(ran):
    w = tg.param(np.linspace(-1, 1, 100))
    step = tg.compile(lambda x: tg.sum(tg.tanh(x * w)))
    with tg.use_forward("tensorflow", threshold=0), tg.use_backend("native"):
        values = {step(np.ones(100)).item() for _ in range(5)}
    assert len(values) == 1  # the plan's bits are those of its real calls
    assert ran == []


def test_the_choice_is_a_threads_own(ran):
    seen = []
    tg.set_forward("tensorflow", threshold=5)
    try:
        thread = threading.Thread(target=lambda: seen.append(tg.get_forward()))
        thread.start()
        thread.join()
        assert (tg.get_forward(), seen) == ("tensorflow", ["numpy"])
        with tg.use_forward("numpy"):
            tg.exp(np.ones(100))
        assert ran == []
        tg.exp(np.ones(100))
        assert ran == ["exp"]
    finally:
        tg.set_forward("numpy")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("torch",), r"set_forward: received 'torch'; expected one of 'numpy', 'tensorflow'"),
        (("numpy", -1), r"set_forward: received threshold=-1; expected a number of elements"),
        (("numpy", 1.5), r"threshold=1.5"),
    ],
)
def test_other_choices_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tg.set_forward(*arguments)


def test_the_environment_chooses_and_info_tells(run_python):
    with tg.use_forward("tensorflow", threshold=100):
        assert "forward     tensorflow for arrays of 100 elements and more" in info()
    assert "forward     numpy" in info()
    code = "import tapegraph as tg; print(tg.get_forward(), tg.exp(0.0))"
    done = run_python(code, TAPEGRAPH_FORWARD="tensorflow")  # one element is left to NumPy
    assert done.stdout == "tensorflow Tensor(1.)\n", done.stderr
    done = run_python("import tapegraph", TAPEGRAPH_FORWARD="cuda")
    assert (
        "TAPEGRAPH_FORWARD: received 'cuda'; expected one of 'numpy', 'tensorflow'" in done.stderr
    )


def test_a_kernel_that_fails_leaves_it_to_numpy_and_says_so(monkeypatch):
    def fails(op, arrays, attrs):
        raise MemoryError("the device is full")

    monkeypatch.setattr(translate, "forward", fails)
    said = "exp: the kernel of tensorflow raised MemoryError: the device is full"
    with tg.use_forward("tensorflow", threshold=0), pytest.warns(RuntimeWarning, match=said):
        assert tg.exp(np.zeros(3)).data.tolist() == [1.0, 1.0, 1.0]


def test_without_tensorflow_the_choice_is_an_error(monkeypatch):
    from tapegraph.lowering import runtime

    def missing(*given):
        raise runtime.Unavailable("TensorFlow is not installed.")

    monkeypatch.setattr(translate, "forward", missing)
    with tg.use_forward("tensorflow", threshold=0):
        with pytest.raises(runtime.Unavailable, match="not installed"):
            tg.exp(np.zeros(3))
