"""Guards: what a compiled step sees may change, and its next call gives an eager call's numbers."""

from __future__ import annotations

import copy
import functools
import gc
import importlib
import pickle
import sys
import types
import warnings
import weakref
from collections import namedtuple
from dataclasses import dataclass, field

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.compiling.guards import MOST_BYTES, MOST_ENTRIES, look
from tests.compiling.beside import agree, taken

X = np.random.default_rng(0).normal(size=(12, 3))
rate = 2.0
table = {"rate": 2.0}
config = types.ModuleType("config")
config.__file__ = __file__


def scaled(x):
    return x * rate


def twice_removed(x):
    return scaled(x) + 1.0


class Layer:
    training = True

    def __init__(self):
        self.w, self.rate, self.extra = tg.param([1.0, 2.0, 3.0]), 0.5, None
        self.unread = 0

    def __call__(self, x):
        y = self.w * x * self.rate
        if self.extra is not None:
            y = y + self.extra
        return tg.tanh(y) if self.training else y


class Model:
    def __init__(self):
        self.layers = [Layer(), Layer()]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


CHANGES = {}


def change(make):
    """Enter what makes a step, and a function that changes what it sees, in the table."""
    CHANGES[make.__name__.replace("_", " ")] = make
    return make


@change
def a_number_in_the_closure():
    k = 2.0

    def step(x):
        return x * k

    def alter():
        nonlocal k
        k = 3.0

    return step, alter


@change
def a_global():
    def alter():
        globals()["rate"] = 3.0

    return lambda x: x * rate, alter


@change
def a_global_that_an_inner_function_names():
    def step(x):
        return (lambda z: z * rate)(x)

    return step, lambda: globals().update(rate=3.0)


@change
def a_global_two_calls_down():
    def alter():
        globals()["rate"] = 5.0

    return lambda x: twice_removed(x) * 2.0, alter


@change
def an_entry_of_a_global_dict():
    return lambda x: x * table["rate"], lambda: table.update(rate=3.0)


@change
def a_name_of_a_module_of_the_users():
    config.rate = 2.0
    return lambda x: x * config.rate, lambda: setattr(config, "rate", 3.0)


@change
def a_default():
    def step(x, k=2.0):
        return x * k

    return step, lambda: setattr(step, "__defaults__", (3.0,))


@change
def a_keyword_default():
    def step(x, *, k=2.0):
        return x * k

    return step, lambda: step.__kwdefaults__.update(k=3.0)


@change
def an_attribute_of_a_function():
    def step(x):
        return x * step.k

    step.k = 2.0
    return step, lambda: setattr(step, "k", 3.0)


@change
def training_switched_off():
    model = Model()
    return lambda x: model(x), lambda: [setattr(m, "training", False) for m in model.layers]


@change
def training_switched_off_in_the_class():
    class Own(Layer):
        pass

    layer = Own()
    return lambda x: layer(x), lambda: setattr(Own, "training", False)


@change
def an_attribute_of_self():
    layer = Layer()
    return layer.__call__, lambda: setattr(layer, "rate", 0.25)


@change
def an_attribute_that_was_none():
    layer = Layer()
    return lambda x: layer(x), lambda: setattr(layer, "extra", 1.0)


@change
def a_slot():
    class Slotted:
        __slots__ = ("k",)

    held = Slotted()
    held.k = 2.0
    return lambda x: x * held.k, lambda: setattr(held, "k", 3.0)


@change
def a_method_hidden_by_an_attribute():
    model = Model()
    model.run = model.__call__
    return lambda x: model.run(x), lambda: setattr(model, "run", lambda x: x * 7.0)


@change
def a_method_of_the_class():
    class Own(Model):
        def forward(self, x):
            return x * 2.0

    model = Own()
    return lambda x: model.forward(x), lambda: setattr(Own, "forward", lambda self, x: x * 3.0)


@change
def a_property():
    class Own:
        k = 2.0

        @property
        def double(self):
            return self.k * 2.0

    held = Own()
    return lambda x: x * held.double, lambda: setattr(held, "k", 3.0)


@change
def a_parameter_replaced_in_a_list():
    ps = [tg.param([1.0, 2.0, 3.0])]
    return lambda x: ps[0] * x, lambda: ps.__setitem__(0, tg.param([4.0, 5.0, 6.0]))


@change
def a_parameter_of_one_number_replaced_by_its_equal():
    ps = [tg.param(2.0), tg.param(2.0)]

    def alter():
        ps[0] = tg.param(2.0)
        ps[0].assign(3.0)

    return lambda x: ps[0] * ps[1] * x, alter


@change
def a_parameter_appended_to_a_list():
    ps = [tg.param([1.0, 2.0, 3.0])]
    return lambda x: sum(p * x for p in ps), lambda: ps.append(tg.param([4.0, 5.0, 6.0]))


@change
def a_parameter_replaced_as_an_attribute():
    layer = Layer()
    return lambda x: layer(x), lambda: setattr(layer, "w", tg.param([4.0, 5.0, 6.0]))


@change
def a_row_replaced_in_a_list_of_lists():
    rows = [[2.0, 3.0], [4.0]]
    return lambda x: x * rows[0][1], lambda: rows.__setitem__(0, [2.0, 5.0])


@change
def a_number_in_a_list_of_lists():
    rows = [[2.0, 3.0], [4.0]]
    return lambda x: x * rows[0][1], lambda: rows[0].__setitem__(1, 5.0)


@change
def a_string():
    held = {"act": "tanh"}
    return lambda x: np.tanh(x) if held["act"] == "tanh" else x, lambda: held.update(act="none")


@change
def the_order_of_a_dict():
    held = {"a": 2.0, "b": 3.0}

    def step(x):
        first, second = held.values()
        return x**first - second

    return step, lambda: held.update(a=held.pop("a"))


@change
def a_key_renamed():
    held = {"a": 2.0}
    return lambda x: x * held.get("a", 9.0), lambda: held.update(b=held.pop("a"))


@change
def a_member_of_a_set():
    held = {"tanh"}
    return lambda x: np.tanh(x) if "tanh" in held else x, held.clear


@change
def one_and_true():
    held = [1]
    return lambda x: x * 2.0 if held[0] is True else x, lambda: held.__setitem__(0, True)


@change
def zero_and_minus_zero():
    held = [0.0]
    return lambda x: x * 0.0 + held[0] * -1.0, lambda: held.__setitem__(0, -0.0)


@change
def a_function_rebound():
    act = np.tanh

    def alter():
        nonlocal act
        act = np.cos

    return lambda x: act(x), alter


@change
def a_function_of_the_library_rebound():
    act = tg.tanh  # both are made by one function of the library

    def alter():
        nonlocal act
        act = tg.exp

    return lambda x: act(x), alter


@change
def what_a_function_closes_over():
    def power(n):
        return lambda x: x**n

    act = power(2)

    def alter():
        nonlocal act
        act = power(3)

    return lambda x: act(x), alter


@change
def a_partial():
    act = functools.partial(np.power, 2.0)

    def alter():
        nonlocal act
        act = functools.partial(np.power, 3.0)

    return lambda x: act(x), alter


@change
def a_number_behind_a_transform():
    k = 2.0
    slope = tg.grad(lambda x: tg.sum(k * x * x))

    def alter():
        nonlocal k
        k = 3.0

    return lambda x: slope(x), alter


@change
def a_number_behind_no_grad():
    k = 2.0

    @tg.no_grad()
    def inner(x):
        return x * k

    def alter():
        nonlocal k
        k = 3.0

    return lambda x: inner(x), alter


@change
def a_number_that_a_compiled_function_inside_sees():
    k = 2.0
    inner = tg.compile(lambda x: x * k)

    def alter():
        nonlocal k
        k = 3.0

    return lambda x: inner(x) + 1.0, alter


@change
def an_optimizer_replaced():
    w = tg.param([1.0, 2.0, 3.0])
    optimizer = tg.SGD([w], lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = tg.sum((w * x) ** 2)
        loss.backward()
        optimizer.step()
        return loss, w.detach() * 1.0

    def alter():
        nonlocal optimizer
        optimizer = tg.Adam([w], lr=0.1)

    return step, alter


@change
def dropout_switched_off():
    held = {"p": 0.5}
    return lambda x: tg.dropout(tg.tensor(x), held["p"]), lambda: held.update(p=0.0)


@change
def an_array_replaced():
    k = np.ones(3)

    def alter():
        nonlocal k
        k = np.full(3, 2.0)

    return lambda x: x * k, alter


@change
def an_array_written_into():
    k = np.ones(3)
    return lambda x: x * k, lambda: k.__setitem__(1, 5.0)


@change
def an_array_of_another_shape():
    k = np.ones(4)

    def alter():
        with warnings.catch_warnings():  # NumPy 2.5 deprecates it, and it still does it
            warnings.simplefilter("ignore", DeprecationWarning)
            k.shape = (2, 2)

    return lambda x: x.sum() * len(k), alter


@change
def a_large_array_written_into():
    k = np.ones((1000, MOST_BYTES // 100))
    return lambda x: x * k.sum(), lambda: k.__setitem__(slice(0, 1000, 2), 5.0)


@change
def a_numpy_scalar():
    held = [np.float32(2.0)]
    return lambda x: x * held[0], lambda: held.__setitem__(0, np.float64(2.1))


@change
def a_value_replaced():
    held = [tg.Value(2.0)]
    return lambda x: held[0] * 3.0, lambda: held.__setitem__(0, tg.Value(4.0))


@change
def a_number_in_deep_dicts():
    settings = {"model": {"layers": [{"dropout": {"p": 2.0}}]}}

    def alter():
        settings["model"]["layers"][0]["dropout"]["p"] = 3.0

    return lambda x: x * settings["model"]["layers"][0]["dropout"]["p"], alter


@change
def a_flag_of_a_layer_in_deep_dicts():
    model = {"encoder": {"blocks": [[Layer()]]}}

    def alter():
        model["encoder"]["blocks"][0][0].training = False

    return lambda x: model["encoder"]["blocks"][0][0](x), alter


@change
def a_flag_of_an_installed_model():
    code = "class Net:\n training = True\n def __call__(self, x): return x * (3 - self.training)"
    space = {"__name__": "installed_layers"}
    exec(compile(code, "/usr/lib/site-packages/installed_layers.py", "exec"), space)
    net = space["Net"]()

    def alter():
        net.training = False

    return lambda x: net(x), alter


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize(
    ("calls", "engine"),
    [
        (1, "native"),
        (5, "native"),
        (5, "tensorflow"),
        pytest.param(3, "native", marks=pytest.mark.thorough),
        pytest.param(1, "tensorflow", marks=pytest.mark.thorough),
        pytest.param(3, "tensorflow", marks=pytest.mark.thorough),
    ],
    indirect=["engine"],
)
@pytest.mark.one_in(4, of="tensorflow")
def test_a_change_is_seen_at_once(name, calls, engine):
    def run(compiled):
        globals().update(rate=2.0)
        table.update(rate=2.0)
        tg.random.seed(0)
        step, alter = CHANGES[name]()
        step = tg.compile(step) if compiled else tg.use_backend("native")(step)
        rows = [taken(step(x)) for x in X[:calls]]
        alter()
        return rows + [taken(step(x)) for x in X[calls : calls + 6]], step

    state = tg.random.get_state()
    try:
        want, _ = run(compiled=False)
        got, step = run(compiled=True)
    finally:
        tg.random.set_state(state)
    agree(got, want, engine)
    assert step.traces == 2


def test_switching_back_finds_the_trace_of_before(engine):
    layer, calls = Layer(), iter(range(100))

    def step(x):
        next(calls)
        return layer(x)

    step = tg.compile(step, verify_every=None)
    for i in range(12):
        layer.training = i % 2 == 0
        step(X[0])
    assert step.traces == 2 and next(calls) == 4
    assert "layer.training was True, and is False" in step.explain()


def test_an_attribute_that_no_code_reads_makes_no_trace():
    layer = Layer()
    step = tg.compile(lambda x: layer(x))
    for i in range(6):
        layer.unread = i
        step(X[0])
    assert step.traces == 1


def test_a_global_that_is_named_like_a_method_makes_no_trace():
    names = {"tg": tg, "w": tg.param([1.0, 2.0, 3.0]), "sum": 0}
    exec("def step(x):\n    return (w * x).sum()", names)
    step = tg.compile(names["step"])
    for i in range(6):
        names["sum"] = i
        step(X[0])
    assert step.traces == 1


def test_a_number_made_anew_with_the_same_value_makes_no_trace():
    held = {}
    step = tg.compile(lambda x: x * held["k"] * held["n"])
    for _ in range(6):
        held["k"], held["n"] = float("2.5"), int("123456")
        step(X[0])
    assert step.traces == 1


@pytest.mark.parametrize("held", [[], {}], ids=["a list", "a dict"])
def test_what_an_int_that_counts_does_is_said_once(held):
    step = tg.compile(lambda x, n=0: x * held["count"] if isinstance(held, dict) else x * len(held))
    with pytest.warns(RuntimeWarning, match="8 new traces in 8 calls.* was .* and is") as caught:
        for i in range(20):
            if isinstance(held, dict):
                held["count"] = i
            else:
                held.append(i)
            np.testing.assert_array_equal(
                step(X[0]).data, X[0] * (i if held == {"count": i} else i + 1)
            )
    assert len(caught) == 1 and caught[0].filename == __file__


@dataclass
class Counted:
    n: object
    h: object = None
    kind: str = field(default="a", metadata={"static": True})


@pytest.mark.parametrize(
    ("start", "advance", "text"),
    [
        ({"n": 0, "h": X[0]}, lambda s: {**s, "n": s["n"] + 1}, r"s\['n'\] was 6, and is 7"),
        ([X[0], 0], lambda s: [s[0], s[1] + 1], r"s\[1\] was 6, and is 7"),
        (Counted(0), lambda s: Counted(s.n + 1), r"s\.n was 6, and is 7"),
        (
            Counted(0.0, 0),
            lambda s: Counted(s.n, 0, s.kind + "a"),
            r"s\.kind was '.*', and is '.*'",
        ),
        (X[0], lambda s: np.append(s, 1.0), r"s was float64\[9\], and is float64\[10\]"),
        ((), lambda s: (*s, 1), r"s\[6\] was not there, and is 1"),
        (tg.param(1.0), lambda s: tg.param(1.0), r"s was parameter.*, and is another one"),
    ],
)
def test_the_argument_that_changes_is_named(start, advance, text):
    step = tg.compile(lambda s, x: x * 2.0)
    state = start
    with pytest.warns(RuntimeWarning, match=rf"{text}\. .*np\.array\(0\), or keep it"):
        for _ in range(8):
            step(state, X[0])
            state = advance(state)


def test_what_the_warning_says_to_write_takes_no_more_traces():
    class Model:
        def __init__(self):
            self.n = tg.tensor(0)

        def step(self, x, count):
            self.n.assign(self.n + 1)
            return x * count, count + 1

    model, count = Model(), np.array(0)
    step = tg.compile(model.step)
    for i in range(9):
        y, count = step(X[0], count)
        np.testing.assert_array_equal(y.data, X[0] * i)
    # One for the array, and one for the tensor that each call returns.
    assert (step.traces, model.n.item(), count.item()) == (2, 9, 9)


def test_new_traces_can_be_refused():
    held = [1]
    step = tg.compile(lambda x: x * held[0], on_retrace="raise")
    for _ in range(4):
        step(X[0])
    held[0] = 2
    with pytest.raises(tg.TraceMismatchError, match=r"held\[0\] was 1, and is 2"):
        step(X[0])
    with pytest.raises(tg.TraceMismatchError, match=r"x was float64\[3\], and is float64\[2\]"):
        step(X[0][:2])
    held[0] = 1
    np.testing.assert_array_equal(step(X[0]).data, X[0])
    step.reset()
    np.testing.assert_array_equal(step(X[0][:2]).data, X[0][:2])
    with pytest.raises(ValueError, match="on_retrace='never'"):
        tg.compile(lambda x: x, on_retrace="never")


@pytest.mark.parametrize(
    ("every", "real"),
    [("doubling", [1, 2, 4, 8, 16, 32]), (5, [1, 2, 5, 10, 15, 20, 25, 30]), (None, [1, 2])],
    ids=str,
)
def test_the_calls_that_are_real(every, real, engine):
    calls, at = iter(range(1000)), []
    step = tg.compile(lambda x: x * (next(calls) * 0 + 2), verify_every=every)
    for i in range(1, 40):
        before = copy.copy(calls).__next__()
        np.testing.assert_array_equal(step(X[0]).data, X[0] * 2)
        if copy.copy(calls).__next__() > before:
            at.append(i)
    assert at[: len(real)] == real and len(at) <= len(real) + 2


def test_a_real_call_says_what_differs_and_how_many_calls_it_may_concern(engine):
    hidden, w = [[[2.0, *range(4096)]]], tg.param([1.0, 2.0, 3.0])  # more than guards look at

    @tg.compile
    def step(x):
        w.assign((w * hidden[0][0][0]).detach())
        return x * hidden[0][0][0]

    for _ in range(5):
        step(X[0])
    hidden[0][0][0] = 3.0
    step(X[0]), step(X[0])
    before = w.numpy()
    message = r"the number 2\.0, and then 3\.0, in mul.*calls since the last real one.*: 3\)"
    with pytest.raises(tg.TraceMismatchError, match=message):
        step(X[0])
    np.testing.assert_array_equal(w.numpy(), before)
    np.testing.assert_array_equal(step(X[0]).data, X[0] * 3.0)


def test_code_that_an_import_runs_is_not_the_steps(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "imported_late.py").write_text("for number in range(3):\n    last = number\n")
    monkeypatch.syspath_prepend(folder)

    def step(x):
        importlib.import_module("imported_" + "late")
        return x * 2.0

    compiled = tg.compile(step)
    for number in range(6):
        compiled(X[0])
        sys.modules["imported_late"].number = number
    assert compiled.traces == 1


@pytest.mark.parametrize("wrong", [0, -1, True, "always", 2.5])
def test_how_often_to_verify_is_checked(wrong):
    with pytest.raises(ValueError, match="verify_every"):
        tg.compile(lambda x: x, verify_every=wrong)


def test_of_a_large_container_some_entries_are_seen():
    held = list(map(float, range(10 * MOST_ENTRIES)))

    def f():
        return held

    view = look(f)
    assert len(view.key) < 2 * MOST_ENTRIES
    held[0] = -1.0
    assert not view.holds()


def test_objects_that_refer_to_each_other_are_seen_once():
    a, b = Layer(), Layer()
    a.extra, b.extra = b, a
    view = look(lambda: a.extra.extra.rate)
    assert view.holds()
    b.rate = 3.0
    assert not view.holds()


# ------------------------------------------------------------------ instances


class Trainer:
    def __init__(self):
        self.w = tg.param([1.0, 2.0, 3.0])
        self.optimizer = tg.SGD([self.w], lr=0.1, momentum=0.9)

    @tg.compile
    def step(self, x):
        self.optimizer.zero_grad()
        loss = tg.sum((self.w * x) ** 2)
        loss.backward()
        self.optimizer.step()
        return loss


@tg.compile
def by_name(x):
    return x * 2.0


def test_a_step_of_an_instance_that_nobody_else_holds():
    step = Trainer().step
    losses = [step(X[0]).item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1]


def test_an_instance_that_is_dropped_takes_its_traces_along():
    trainer = Trainer()
    trainer.me = trainer  # and its step is reached from itself
    for _ in range(4):
        trainer.step(X[0])
    held = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert held() is None


class Slots:
    __slots__ = ("w",)

    @tg.compile
    def double(self, x):
        return self.w * x


class Named(namedtuple("Named", "w")):
    __slots__ = ()

    @tg.compile
    def double(self, x):
        return self.w * x


def test_a_method_that_takes_the_place_of_another_is_not_taken_for_it():
    class Model:
        step = None

    model = Model()
    for k in range(20):
        Model.step = None  # frees the one before, whose place in memory the next one may take
        Model.step = tg.compile(lambda self, x, k=k: x + k)
        assert model.step(1.0) == 1.0 + k


def test_instances_without_attributes_or_weak_references():
    slots = Slots()
    slots.w = tg.param(2.0)
    for held in (slots, Named(tg.param(2.0))):
        for _ in range(4):
            np.testing.assert_array_equal(held.double(X[0]).data, 2.0 * X[0])
        assert held.double is held.double and held.double.traces == 1


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_a_model_with_a_compiled_step_is_copied_without_its_traces(copied):
    one = Trainer()
    for x in X[:4]:
        one.step(x)
    two = copied(one)
    assert two.step is not one.step and two.step.traces == 0 and one.step.traces == 1
    before = one.w.numpy()
    for x in X[4:8]:
        two.step(x)
    if copied is not copy.copy:  # which shares the parameter
        np.testing.assert_array_equal(one.w.numpy(), before)
        for x in X[4:8]:
            one.step(x)
        np.testing.assert_array_equal(one.w.numpy(), two.w.numpy())
        assert two.optimizer.params[0] is two.w


def test_a_decorated_function_is_pickled_by_its_name():
    assert pickle.loads(pickle.dumps(by_name)) is by_name
    assert copy.deepcopy(by_name) is by_name
    other = pickle.loads(pickle.dumps(tg.compile(scaled, max_traces=3)))
    np.testing.assert_array_equal(other(X[0]).data, X[0] * 2.0)


def test_an_object_with_attributes_of_any_name():
    class Odd:
        def __init__(self):
            self._fn, self._lock, self._entries, self.k = np.tanh, None, 3, 2.0

        def __call__(self, x):
            return x * self.k

    odd = Odd()
    step = tg.compile(odd)
    for _ in range(4):
        np.testing.assert_array_equal(step(X[0]).data, X[0] * 2.0)
    odd.k = 3.0
    np.testing.assert_array_equal(step(X[0]).data, X[0] * 3.0)
    assert step.__name__ == "Odd"


def test_a_compiled_function_compiled_again_takes_the_new_options():
    calls = iter(range(100))
    step = tg.compile(tg.compile(lambda x: x * (next(calls) * 0 + 2)), verify_every=3)
    for _ in range(7):
        step(X[0])
    assert next(calls) == 4  # the 1st, 2nd, 3rd and 6th


def test_attributes_of_a_decorated_function_are_kept():
    def step(x):
        """Double it."""
        return x * 2.0

    step.note, step.traces = "mine", "shadowed"
    compiled = tg.compile(step)
    assert (compiled.note, compiled.__doc__, compiled.traces) == ("mine", "Double it.", 0)


# ------------------------------------------------------------------ what they cost


def test_guards_of_twenty_parameters_are_cheap():
    """Three microseconds on a quiet machine; a busy one is given ten times that."""
    import timeit

    ps = [tg.param(np.ones(3)) for _ in range(20)]
    optimizer = tg.SGD(ps, lr=0.1)

    def step(x):
        loss = tg.sum(sum(p * x for p in ps))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    view = look(step)
    assert min(timeit.repeat(view.holds, number=200, repeat=20)) / 200 < 30e-6


# ------------------------------------------------------------------ floats that change


def annealed(body):
    """Run a step whose ``beta`` in the closure shrinks with every call, beside eager ones."""

    def make():
        beta, w = 1.0, tg.param([1.0, 2.0, 3.0])
        optimizer = tg.SGD([w], lr=0.1)

        def step(x):
            return body(w, optimizer, x, beta)

        def shrink():
            nonlocal beta
            beta *= 0.7

        return step, shrink, w

    (eager, shrink, p), (step, shrink_too, q) = make(), make()
    step = tg.compile(step)
    for x in X:
        with tg.use_backend("native"):
            want = taken(eager(x)), p.numpy()
        agree((taken(step(x)), q.numpy()), want, tg.get_backend())
        shrink(), shrink_too()
    return step


def descend(w, optimizer, x, beta):
    loss = tg.sum((w * x) ** 2) + (1.0 - beta) / 2 * tg.sum(w * w)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def test_an_annealed_weight_is_fed(engine):
    step = annealed(descend)
    assert step.traces == 2  # one for the first number, one for all others
    assert "beta was 1.0, and is a float" in step.explain()


@pytest.mark.filterwarnings("ignore:.*8 new traces")
@pytest.mark.parametrize(
    "body",
    {
        "a branch": lambda w, optimizer, x, beta: w * x if beta > 0.3 else x * 1.0,
        "a conversion": lambda w, optimizer, x, beta: w * x * float(f"{beta:.6f}"),
        "Python's functions": lambda w, optimizer, x, beta: w * x * max(beta, 0.3) + int(beta * 10),
        "an index": lambda w, optimizer, x, beta: w * x[: int(round(beta * 3)) or 1].sum(),
        "an array": lambda w, optimizer, x, beta: w * np.full(3, beta),
        "returned": lambda w, optimizer, x, beta: (w * x, beta),
        "compared with a tensor": lambda w, optimizer, x, beta: np.where(w * x > beta, x, beta),
        "truth": lambda w, optimizer, x, beta: w * x if beta else x,
        "dropout": lambda w, optimizer, x, beta: tg.dropout(w * x, 0.0 if beta > 2 else beta * 0.0),
    }.items(),
    ids=lambda item: item[0],
)
def test_a_float_that_is_read_counts_by_value(body, engine):
    annealed(lambda *given: body[1](*given))


def test_floats_in_attributes_lists_and_globals_are_fed(engine):
    class Held:
        k = 2.0

    held, numbers, names = Held(), [1.0, 2.0], {"k": 1.0}
    held.k = 2.0
    step = tg.compile(lambda x: x * held.k + numbers[1] - names["k"] * rate)
    try:
        for i, x in enumerate(X):
            held.k, numbers[1], names["k"] = 2.0 + i, 2.0 - i, 1.0 / (i + 1)
            globals()["rate"] = 0.5 * i
            want = x * held.k + numbers[1] - names["k"] * rate
            np.testing.assert_allclose(step(x).data, want, rtol=1e-15)
            kept = (held.k, numbers[1], names["k"], rate)
            assert all(type(number) is float for number in kept)
    finally:
        globals()["rate"] = 2.0
    assert step.traces == 2


@pytest.mark.filterwarnings("ignore:.*8 new traces")
def test_a_float_that_the_step_sets_is_never_stale(engine):
    class Held:
        k = 1.0

    def make():
        held = Held()
        held.k = 1.0

        def step(x):
            held.k = held.k * 0.5
            return x * held.k

        return held, step

    (held, step), (other, eager) = make(), make()
    step = tg.compile(step)
    for x in X:
        got, want = step(x), eager(x)
        np.testing.assert_array_equal(got.data, want)
        assert held.k == other.k and type(held.k) is float
