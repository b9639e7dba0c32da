"""Names of other libraries say what to write, and disturb nobody who only asks."""

import copy
import inspect
import pickle
import re
from operator import attrgetter

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.other_names import (
    AT_THE_TOP,
    IN_MODULES,
    KEYWORDS,
    ON_OPTIMIZERS,
    ON_TENSORS,
    Elsewhere,
)
from tests.quick import in_one

X = tg.param([[1.0, 2.0], [3.0, 4.0]], name="x")
W = np.arange(4.0)


@pytest.fixture(autouse=True)
def no_drop_in(monkeypatch):
    monkeypatch.delattr(tg, "autograd", raising=False)  # which another test may have imported


@in_one("name", ON_TENSORS)
def test_a_name_on_a_tensor_says_what_to_write(name):
    here = inspect.currentframe().f_lineno + 2
    with pytest.raises(AttributeError) as caught:
        getattr(X, name)
    text = str(caught.value)
    assert text.startswith(f"Tensor: received {name!r}, a name of another library's; expected")
    assert text.endswith(f"Did you mean {ON_TENSORS[name]}? (at {__file__}:{here})")
    assert caught.value.name == name


@in_one("name", ON_OPTIMIZERS)
def test_a_name_on_an_optimizer_says_what_to_write(name):
    optimizer = tg.Adam([X], lr=0.5)
    text = re.escape(f"Did you mean {ON_OPTIMIZERS[name]}?")
    with pytest.raises(AttributeError, match=text):
        getattr(optimizer, name)
    assert name not in dir(optimizer)
    for said in re.findall(r"\boptimizer\.(\w+)", ON_OPTIMIZERS[name]):
        assert hasattr(optimizer, said)


@pytest.mark.parametrize(
    ("name", "ours"), [("_prev", "v.args"), ("_children", "v.args"), ("_backward", "v.local_grads")]
)
def test_micrograds_names_on_a_value_say_what_to_write(name, ours):
    v = tg.Value(2.0) * 3.0
    with pytest.raises(AttributeError, match=rf"^Value: .*Did you mean {re.escape(ours)}"):
        getattr(v, name)
    assert not hasattr(v, name) and hasattr(v, ours.removeprefix("v."))


def test_kerass_learning_rate_is_not_assigned_in_vain():
    optimizer = tg.Adam([X], lr=0.5)
    with pytest.raises(AttributeError, match=r"Did you mean optimizer\.lr\?"):
        optimizer.learning_rate = 0.25
    optimizer.iterations = 3  # a subclass may have such an option
    assert optimizer.lr == 0.5 and optimizer.iterations == 3


@in_one("name", AT_THE_TOP)
def test_a_name_at_the_top_says_what_to_write(name):
    with pytest.raises(AttributeError, match=re.escape(f"Did you mean {AT_THE_TOP[name]}?")):
        getattr(tg, name)


@pytest.mark.parametrize("table", [ON_TENSORS, AT_THE_TOP, *IN_MODULES.values()])
def test_what_is_to_be_written_exists(table):
    for ours in table.values():
        for name in re.findall(r"\btg((?:\.\w+)+)", ours):
            found = tg
            for part in name[1:].split("."):
                found = getattr(found, part)
        for name in re.findall(r"\bnp\.(\w+)", ours):
            assert hasattr(np, name)
        for name in re.findall(r"\b[xy]\.(\w+)", ours):
            if ours.startswith("x.at["):
                continue
            assert hasattr(X, name) or name == "at", ours


def test_formulas_to_be_written_compute_what_their_names_do():
    x, y, n = np.array([0.5, 3.0, 2.0, -1.0]), np.array([7.0, 8.0]), 2
    a, b, p, log_q, segments = x, x[::-1], np.array([0.25, 0.75]), np.log([0.5, 0.5]), [1, 0, 1, 1]
    start, size, axis, indices, i, value, shape = 1, 2, 0, [2, 0], 1, 9.0, (20_000,)
    names = {**globals(), **locals(), "f": lambda v: 3.0 * v, "segments": np.array(segments)}

    def written(table, name):
        return eval(table[name].split(" for ")[0], names)

    for given in (x, np.stack([x, -x], axis=1), np.arange(48.0).reshape(4, 3, 2, 2) % 7.0):
        wanted = [given[1], np.max(given[[0, 2, 3]], axis=0)]
        found = eval(AT_THE_TOP["segment_max"], {**names, "x": given})
        np.testing.assert_array_equal(found, wanted)
    assert written(AT_THE_TOP, "segment_sum").tolist() == [3.0, 1.5]
    assert written(AT_THE_TOP, "dynamic_slice").tolist() == [3.0, 2.0]
    assert written(AT_THE_TOP, "dynamic_update_slice").tolist() == [0.5, 7.0, 8.0, -1.0]
    assert written(AT_THE_TOP, "index_select").tolist() == [2.0, 0.5]
    assert written(AT_THE_TOP, "l1_loss") == 1.25
    assert written(AT_THE_TOP, "linear_transpose")(x).tolist() == (3.0 * x).tolist()
    expected = 0.25 * np.log(0.5) + 0.75 * np.log(1.5)
    np.testing.assert_allclose(written(AT_THE_TOP, "kl_div"), expected)
    assert written(ON_TENSORS, "at").tolist() == [0.5, 9.0, 2.0, -1.0]
    tg.random.seed(0)
    random = IN_MODULES["random"]
    exponential, gumbel = written(random, "exponential"), written(random, "gumbel")
    assert abs(exponential.mean() - 1.0) < 0.03 and abs(exponential.std() - 1.0) < 0.03
    assert abs(gumbel.mean() - np.euler_gamma) < 0.03
    names |= {"logits": np.log([0.1, 0.2, 0.7]), "shape": (20_000, 3)}
    drawn = eval(random["categorical"].split(", of that shape")[0], names)
    np.testing.assert_allclose(np.bincount(drawn) / 20_000, [0.1, 0.2, 0.7], atol=0.01)


def test_numpys_own_functions_are_named_where_they_take_tensors():
    with pytest.raises(AttributeError, match=r"Did you mean np.argmax, which takes tensors\?"):
        tg.argmax  # noqa: B018
    with pytest.raises(AttributeError, match=r"^module 'tapegraph' has no attribute 'sigmod'$"):
        tg.sigmod  # noqa: B018
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'shap'"):
        X.shap  # noqa: B018


def test_who_only_asks_finds_none():
    assert not any(hasattr(X, name) for name in ON_TENSORS)
    assert not any(hasattr(tg, name) for name in AT_THE_TOP)
    assert getattr(X, "strides", None) is None
    assert set(dir(X)).isdisjoint(ON_TENSORS) and "reshape" in dir(X)
    assert dict(inspect.getmembers(X))["shape"] == (2, 2)
    assert pickle.loads(pickle.dumps(X)).name == "x" and copy.copy(X) is X
    assert not any(isinstance(inspect.getattr_static(tg.Tensor, n), Elsewhere) for n in dir(X))


def test_other_libraries_take_tensors_as_before():
    torch = pytest.importorskip("torch")
    plain = tg.tensor([1.0, 2.0])
    assert torch.as_tensor(np.asarray(plain)).tolist() == [1.0, 2.0]
    assert (X * torch.ones(2)).shape == (2, 2)
    pandas = pytest.importorskip("pandas")
    assert (pandas.Series([1.0, 2.0]) * tg.param([1.0, 2.0])).op == "mul"


def test_attributes_that_there_are_take_no_longer():
    # A class without __getattr__ has its attributes looked up by the interpreter itself.
    assert not hasattr(tg.Tensor, "__getattr__") and not hasattr(tg.Dual, "__getattr__")


@pytest.mark.parametrize(
    ("call", "keyword"),
    [
        (lambda: tg.sum(X, dim=0), "dim"),
        (lambda: X.argmax(dim=0), "dim"),
        (lambda: tg.compile(abs, dynamic=True), "dynamic"),
    ],
)
def test_a_keyword_of_another_library_is_named_by_python(call, keyword):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{keyword}'"):
        call()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: tg.compile(abs, static_argnums=0), "compile: .*'static_argnums'.*the argument"),
        (
            lambda: tg.compile(abs, mode="max-autotune"),
            "compile: .*'mode'. Did you mean tg.set_backe",
        ),
        (lambda: tg.compile(abs, input_signature=[]), "compile: .* mean on_retrace="),
        (lambda: tg.compile(abs, donate_argnums=0), "compile: .* mean the call without it"),
        (lambda: tg.vmap(abs, in_dims=0), "vmap: .*'in_dims'. Did you mean in_axes="),
        (lambda: tg.vmap(abs, axis_size=3), r"vmap: .*f\(x\)\)\(np.arange\(n\)\) for n examples"),
        (lambda: tg.cond(True, abs, abs, operand=1.0), "cond: .*'operand'.*by position"),
        (lambda: tg.cond(pred=True, true_fun=abs, false_fun=abs), "'true_fn' and 'false_fn'"),
        (lambda: tg.switch(0, [abs], operand=1.0), "switch: .*'operand'.*by position"),
        (lambda: tg.grad(abs, axis_name="i"), "^grad: .* mean tg.distributed.DataParallel"),
        (lambda: tg.value_and_grad(abs, axis_name="i"), "^value_and_grad: .* mean tg.distributed"),
        (lambda: tg.gradients(X, [X], grad_outputs=X), "gradients: .* mean seed="),
        (lambda: tg.scan(abs, 0.0, W, unroll=2), "scan: .* mean the call without it"),
        (
            lambda: tg.while_loop(abs, abs, 0.0, maximum_iterations=9),
            "while_loop: .*Did you mean max_steps=",
        ),
        (lambda: tg.while_loop(abs, abs, 0.0, back_prop=True), "while_loop: .*call without it"),
        (lambda: tg.checkpoint(abs, policy=None), "checkpoint: .* each part g that"),
        (lambda: tg.checkpoint(abs, use_reentrant=False), "checkpoint: .* the call without it"),
        (lambda: tg.tensor(W, requires_grad=True), "tensor: .* mean tg.param.array."),
        (lambda: tg.param(W, trainable=False), "param: .* mean tg.tensor.array."),
        (lambda: tg.random.normal(stddev=2.0), r"random\.normal: .* mean scale="),
        (lambda: tg.random.uniform(minval=2.0), r"random\.uniform: .* mean low="),
        (lambda: tg.random.truncated_normal(shape=3), r"random\.truncated_normal: .* mean size="),
        (lambda: tg.random.integers(2, shape=3), r"random\.integers: .* mean size="),
        (lambda: tg.compile(jit_compile=True), "compile: .*'jit_compile'. Did you mean xla="),
        (lambda: tg.sum(X).backward(retain_graph=True), "backward: .*'retain_graph'.*as often"),
        (lambda: tg.backward(X * X, gradient=1.0), "backward: .*'gradient'. Did you mean seed="),
        (lambda: tg.data.batches(W, batch_size=2), "batches.*missing .*'size'"),
        (lambda: tg.data.batches(W, size=2, drop_remainder=True), "batches: .*drop_last="),
        (lambda: tg.data.epoch(W, size=2, seed=0), "batches: .*'seed'. Did you mean rng="),
    ],
)
def test_a_keyword_of_another_library_says_what_to_write(call, text):
    grad = X.grad
    with pytest.raises(TypeError, match=text):
        call()
    assert X.grad is grad


def test_the_keywords_to_write_exist():
    places = [tg.SGD, tg.Adam, tg.RMSprop, tg.compile, tg.backward, tg.data.batches, tg.vmap]
    places += [tg.random.normal, tg.random.uniform, tg.while_loop]
    ours = {name for f in places for name in inspect.signature(f).parameters}
    for fix in KEYWORDS.values():
        assert set(re.findall(r"^(\w+)=", fix)) <= ours, fix
        for name in re.findall(r"\btg\.(\w+)", fix):
            assert hasattr(tg, name)


def test_other_errors_of_a_call_are_its_own():
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        tg.sum()
    with pytest.raises(ValueError, match="received axis 5"):
        tg.sum(X, axis=5)


def test_functions_stay_what_they_were():
    assert tg.sum.__name__ == "sum" and tg.concat is tg.concatenate
    assert pickle.loads(pickle.dumps(tg.sum)) is tg.sum
    assert list(inspect.signature(tg.sum).parameters) == [
        "a",
        "axis",
        "keepdims",
        "dtype",
        "initial",
        "where",
    ]
    assert tg.amax is tg.max


@pytest.mark.parametrize("module", IN_MODULES)
def test_a_name_in_a_module_says_what_to_write_there(module):
    here = getattr(tg, module)
    for name, ours in IN_MODULES[module].items():
        with pytest.raises(AttributeError, match=re.escape(f"Did you mean {ours}?")):
            getattr(here, name)
        for written in re.findall(rf"\btg\.{module}\.(\w+)", ours):
            assert written in here.__all__
    with pytest.raises(AttributeError, match=rf"^module 'tapegraph\.{module}' has no .* 'nor'$"):
        here.nor  # noqa: B018


@pytest.mark.parametrize("name", ["random", "data", "optim", "optim.schedules", "special", "fft"])
def test_completion_shows_public_names_alone(name):
    module = attrgetter(name)(tg)
    assert dir(module) == sorted(module.__all__)
