"""A step watches what its code names, whatever calls that code: the next call sees a change."""

from __future__ import annotations

import array
import collections
import contextvars
import cProfile
import dataclasses
import functools
import gc
import itertools
import operator
import sys
import threading
import types
from functools import partial

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.compiling.ran import Witness
from tests.compiling.beside import agree, engine_of, taken

X = np.random.default_rng(0).normal(size=(20, 3))
config = {"k": 2}
mode = contextvars.ContextVar("mode", default=0)
settings = types.ModuleType("settings_of_a_step")
settings.__file__, settings.k, settings.scaled = __file__, 2, lambda x: x * settings.k
sys.modules["settings_of_a_step"] = settings


def set_k(holder):
    """Return what sets an attribute to another number, and back."""
    return lambda: setattr(holder, "k", 3), lambda: setattr(holder, "k", 2)


def item(holder, key="k"):
    """Return what sets an entry to another number, and back."""
    return lambda: operator.setitem(holder, key, 3), lambda: operator.setitem(holder, key, 2)


def own(**methods):
    """Return an object whose class has these methods, and whose ``k`` is 2."""
    held = type("Own", (), methods)()
    held.k = 2
    return held


# Each gives a step, what changes a thing that it sees, and what changes it back.
CASES = {}


def case(make):
    """Enter a case in the table."""
    CASES[make.__name__.replace("_", " ")] = make
    return make


OPERATORS = {
    "__mul__": (lambda self, x: x * self.k, lambda own, x: own * x),
    "__rmul__": (lambda self, y: y * self.k, lambda own, x: x * (2 * own)),
    "__imul__": (lambda self, y: y * self.k, lambda own, x: operator.imul(own, x)),
    "__matmul__": (lambda self, x: x * self.k, lambda own, x: own @ x),
    "__neg__": (lambda self: self.k, lambda own, x: x * -own),
    "__bool__": (lambda self: self.k == 2, lambda own, x: x if own else x * 2),
    "__contains__": (lambda self, y: y == self.k, lambda own, x: x if 2 in own else x * 2),
    "__eq__": (lambda self, y: y == self.k, lambda own, x: x if own == 2 else x * 2),
    "__lt__": (lambda self, y: self.k < y, lambda own, x: x if own < 3 else x * 2),
    "__float__": (lambda self: float(self.k), lambda own, x: x * float(own)),
    "__index__": (lambda self: self.k, lambda own, x: x * (4, 5, 6, 7)[own]),
    "__hash__": (lambda self: self.k, lambda own, x: x * hash(own)),
    "__format__": (lambda self, text: str(self.k), lambda own, x: x * int(f"{own}")),
    "__getitem__": (lambda self, i: self.k, lambda own, x: x * own[0]),
    "__len__": (lambda self: self.k, lambda own, x: x * len(own)),
    "__iter__": (lambda self: iter([self.k]), lambda own, x: sum(x * k for k in own)),
    "__call__": (lambda self, x: x * self.k, lambda own, x: own(x)),
    "__getattr__": (lambda self, name: self.k, lambda own, x: x * own.anything),
}
for _name, (_method, _use) in OPERATORS.items():

    def _make(name=_name, method=_method, use=_use):
        held = own(**{name: method})
        return (lambda x: use(held, x)), *set_k(held)

    CASES[_name] = _make


@case
def a_cursor_s_next():
    class Cursor:
        def __init__(self, of):
            self.of, self.left = of, 2

        def __next__(self):
            if self.left == 0:
                raise StopIteration
            self.left -= 1
            return self.of.k

    held = own(__iter__=lambda self: Cursor(self))
    return (lambda x: sum(x * k for k in held)), *set_k(held)


@case
def a_missing_key():
    class Table(dict):
        def __missing__(self, key):
            return self.k

    held = Table()
    held.k = 2
    return (lambda x: x * held["a"]), *set_k(held)


@case
def a_descriptor_with_data_of_its_own():
    descriptor = own(__get__=lambda self, instance, owner: self.k)
    held = type("Own", (), {"a": descriptor})()
    return (lambda x: x * held.a), *set_k(descriptor)


@case
def a_descriptor_that_computes_a_name():
    class Stored:
        def __set_name__(self, owner, name):
            self.name = f"_{name}"

        def __get__(self, instance, owner=None):
            return getattr(instance, self.name)

        def __set__(self, instance, value):
            setattr(instance, self.name, value)

    held = type("Own", (), {"k": Stored()})()
    held.k = 2
    return (lambda x: x * held.k), *set_k(held)


@case
def a_descriptor_that_reads_a_global():
    held = own()
    type(held).a = type("Own", (), {"__get__": lambda *_: config["k"]})()
    return (lambda x: x * held.a), *item(config)


@case
def every_attribute():
    class Own:
        def __getattribute__(self, name):
            if name == "a":
                return object.__getattribute__(self, "held")["k"]
            return object.__getattribute__(self, name)

    own = Own()
    own.held = {"k": 2}
    return (lambda x: x * own.a), *item(own.held)


@case
def a_class_that_is_indexed():
    class Own:
        k = 2

        def __class_getitem__(cls, i):
            return cls.k

    return (lambda x: x * Own[0]), *set_k(Own)


@case
def a_metaclass():
    class Meta(type):
        def __getitem__(cls, i):
            return cls.k * Meta.k

    class Own(metaclass=Meta):
        k = 2

    Meta.k = 2
    return (lambda x: x * Own[0]), *set_k(Meta)


@case
def a_constructor():
    held = {"k": 2}

    class Scale:
        def __init__(self):
            self.a = held["k"]

    return (lambda x: x * Scale().a), *item(held)


@case
def new():
    class Scale:
        def __new__(cls):
            made = super().__new__(cls)
            made.a = config["k"]
            return made

    return (lambda x: x * Scale().a), *item(config)


@case
def a_dataclass_s_post_init_and_factory():
    held = {"k": 2}

    @dataclasses.dataclass
    class Scale:
        a: int = dataclasses.field(default_factory=lambda: held["k"])

        def __post_init__(self):
            self.b = config["k"]

    return (lambda x: x * Scale().a * Scale().b), *item(held)


@case
def a_constructor_that_reads_its_class():
    class Base:
        def __init__(self):
            self.a = type(self).k

    class Scale(Base):
        k = 2

    return (lambda x: x * Scale().a), *set_k(Scale)


@case
def a_module_imported_inside():
    def step(x):
        import settings_of_a_step

        return x * settings_of_a_step.k

    return step, *set_k(settings)


@case
def a_function_imported_inside():
    def step(x):
        from settings_of_a_step import scaled

        return scaled(x)

    return step, *set_k(settings)


@case
def a_pattern_of_a_class():
    class Own:
        __match_args__ = ("a",)

    held = Own()
    held.a, held.k = 5, 2

    def step(x):
        match held:
            case Own(a, k=k):
                return x * a * k

    return step, *set_k(held)


@case
def a_slot_that_is_filled():
    class Slots:
        __slots__ = ("k",)

    held = Slots()
    step = lambda x: x * getattr(held, "k", 5)  # noqa: E731
    return step, lambda: setattr(held, "k", 3), lambda: delattr(held, "k")


@case
def a_slot_that_is_emptied():
    class Slots:
        __slots__ = ("k",)

    held = Slots()
    held.k = 2
    step = lambda x: x * 5 if hasattr(held, "k") else x  # noqa: E731
    return step, lambda: delattr(held, "k"), lambda: setattr(held, "k", 2)


def derived(**methods):
    """Return an object of a class whose methods stand in a class above, and its class."""
    below = type("Below", (type("Above", (), methods),), {})
    return below(), below


@case
def a_method_overridden_later():
    held, below = derived(scaled=lambda self, x: x * 2)
    back = lambda: delattr(below, "scaled")  # noqa: E731
    return (lambda x: held.scaled(x)), lambda: setattr(below, "scaled", lambda _, x: x * 3), back


@case
def an_operator_overridden_later():
    def multiplied(self, x):
        return x * 2

    held, below = derived(__mul__=multiplied, __rmul__=multiplied)
    back = lambda: delattr(below, "__rmul__")  # noqa: E731
    return (lambda x: x * (5 * held)), lambda: setattr(below, "__rmul__", lambda *_: 3), back


@case
def data_of_a_class_hidden_later():
    _, below = derived(k=2)
    return (lambda x: x * below.k), lambda: setattr(below, "k", 3), lambda: delattr(below, "k")


@case
def another_class():
    one, two = (own(scaled=lambda self, x, k=k: x * k) for k in (2, 3))
    held = type(one)()
    alter, back = (partial(setattr, held, "__class__", type(o)) for o in (two, one))
    return (lambda x: held.scaled(x)), alter, back


@case
def other_bases():
    held, below = derived(scaled=lambda self, x: x * 2)
    alter, back = (
        partial(setattr, below, "__bases__", bases)
        for bases in ((type("Other", (), {"scaled": lambda self, x: x * 3}),), below.__bases__)
    )
    return (lambda x: held.scaled(x)), alter, back


@case
def other_attributes_at_once():
    held = own()
    alter, back = (partial(setattr, held, "__dict__", {"k": k}) for k in (3, 2))
    back()
    return (lambda x: x * held.k), alter, back


@case
def an_object_in_a_set():
    held = own()
    members = {held}
    return (lambda x: sum(x * member.k for member in members)), *set_k(held)


@case
def an_object_that_is_a_key():
    held = own()
    table = {(held, 0): "unread"}
    return (lambda x: sum(x * key[0].k for key in table)), *set_k(held)


@case
def a_list_that_is_reached_twice():
    a_table = [[[2]]]
    z_row = a_table[0]
    return (lambda x: x * len(a_table) * z_row[0][0]), *item(z_row[0], 0)


@case
def a_variable_that_is_not_bound_yet():
    k = 2

    def step(x):
        try:
            return x * k
        except NameError:
            return x

    (cell,) = step.__closure__
    alter, back = (
        partial(setattr, cell, "cell_contents", 3),
        partial(delattr, cell, "cell_contents"),
    )
    back()
    return step, alter, back


@case
def a_global_that_is_not_there_yet():
    names = {"default": 2}
    exec("step = lambda x: x * (k if 'k' in globals() else default)", names)
    return names["step"], lambda: names.update(k=3), lambda: names.pop("k")


@case
def a_builtin_function_that_is_hidden():
    names = {}
    exec("def step(x): return x * max(1, 2)", names)
    return names["step"], lambda: names.update(max=lambda *_: 3), lambda: names.pop("max")


@case
def a_user_dict():
    held = collections.UserDict(k=2)
    return (lambda x: x * held["k"]), *item(held)


@case
def a_chain_map():
    held = collections.ChainMap({"k": 2}, {"a": 5})
    return (lambda x: x * held["k"] * held["a"]), *item(held)


@case
def a_proxy_of_a_dict():
    held = {"k": 2}
    proxy = types.MappingProxyType(held)
    return (lambda x: x * proxy["k"]), *item(held)


@case
def an_ordered_dict_in_another_order():
    held = collections.OrderedDict(a=2, b=3)
    alter, back = (partial(held.move_to_end, key) for key in "ab")
    return (lambda x: x ** list(held.values())[0]), alter, back


@case
def bytes_and_numbers_in_a_buffer():
    bits, numbers = bytearray([2, 7]), array.array("d", [5.0])
    return (lambda x: x * bits[0] * numbers[0]), *item(bits, 0)


@case
def a_context_variable():
    return (lambda x: x * mode.get()), lambda: mode.set(3), lambda: mode.set(0)


@case
def a_dict_of_attributes():
    held = own()
    return (lambda x: x * vars(held)["k"] * held.__dict__["k"]), *set_k(held)


@case
def names_in_a_tuple():
    held = own()
    held.a = 5
    return (lambda x: sum(x * getattr(held, name) for name in ("a", "k"))), *set_k(held)


@case
def names_in_an_attribute():
    held = own()
    held.names = ["k"]
    return (lambda x: sum(x * getattr(held, name) for name in held.names)), *set_k(held)


@case
def a_function_registered_for_a_type():
    held = {"k": 2}

    @functools.singledispatch
    def scaled(of, x):
        return x

    scaled.register(int, lambda of, x: x * held["k"])
    return (lambda x: scaled(1, x)), *item(held)


@case
def a_cached_property():
    held = {"k": 2}
    scale = type("Scale", (), {"a": functools.cached_property(lambda self: held["k"])})
    scale.a.__set_name__(scale, "a")
    return (lambda x: x * scale().a), *item(held)


@case
def a_setter():
    class Scale:
        @property
        def a(self):
            return self._a

        @a.setter
        def a(self, a):
            self._a = a * config["k"]

    def step(x):
        scale = Scale()
        scale.a = 5
        return x * scale.a

    return step, *item(config)


@case
def a_function_that_a_library_calls():
    one, two = (own(__mul__=lambda self, other: self.k * other.k) for _ in range(2))
    return (lambda x: x * functools.reduce(operator.mul, [one, two])), *set_k(one)


@case
def a_method_of_a_class_of_dicts():
    class Table(dict):
        def scaled(self, x):
            return x * 2

    held, before = Table(), Table.scaled
    alter, back = (
        partial(setattr, Table, "scaled", method) for method in (lambda self, x: x * 3, before)
    )
    return (lambda x: held.scaled(x)), alter, back


@case
def data_of_a_thread():
    held = threading.local()
    held.k = 2
    return (lambda x: x * held.k), *set_k(held)


@case
def a_module_imported_in_a_long_function():
    lines = [f"a{i} = {i}.5" for i in range(300)]  # so that constants take two bytes
    names = {}
    lines += ["import settings_of_a_step as settings", "return x * settings.k"]
    exec("def step(x):\n    " + "\n    ".join(lines), names)
    return names["step"], *set_k(settings)


@case
def code_that_is_made_inside():
    def step(x):
        names = {}
        exec("def scaled(x, held): return x * held.k", names)
        return names["scaled"](x, held) * collections.namedtuple("Pair", "a b")(2, 3).a

    held = own()
    return step, *set_k(held)


def follow(make, calls):
    """Make calls before a change, after it, and after the change back, beside eager ones."""
    mode.set(0)
    eager, alter, back = make()
    step, rows = tg.compile(eager, verify_every=None), iter(X)

    def compare(count):
        for _ in range(count):
            x = next(rows)
            with tg.use_backend("native"):
                want = taken(eager(x))
            agree(taken(step(x)), want, tg.get_backend(), f"{make.__name__}, {calls} calls before")

    compare(calls)
    try:
        alter()
        compare(4)
        traces = step.traces
    finally:
        back()
    compare(3)
    return step, traces


@pytest.mark.parametrize("name", CASES)
def test_whatever_calls_the_code_a_change_of_what_it_names_is_seen(name):
    with tg.use_backend("native"):
        for calls in (1, 2, 3):
            step, traces = follow(CASES[name], calls)
            assert traces == step.traces == 2, step.explain()
            assert engine_of(step) == "native"


@pytest.mark.parametrize("name", ["__mul__", "a constructor", "a method overridden later"])
def test_so_it_is_in_either_engine(name, engine):
    assert follow(CASES[name], 3)[1] == 2


def test_a_float_that_two_functions_share_is_fed():
    k = 2.0

    def scaled(x):
        return x * k

    def shifted(x):
        return x + k

    with tg.use_backend("native"):
        step = tg.compile(lambda x: scaled(shifted(x)))
        for x in X:
            np.testing.assert_array_equal(step(x).data, (x + k) * k)
            k *= 0.5
    assert step.traces == 2


collections_of_garbage = 0


def test_what_the_garbage_collector_calls_is_no_part_of_a_step():
    def count(phase, info):
        global collections_of_garbage
        collections_of_garbage += 1

    def f(x):
        gc.collect()
        return x * config["k"]

    gc.callbacks.append(count)
    try:
        with tg.use_backend("native"):
            step = tg.compile(f)
            for x in X:
                np.testing.assert_array_equal(step(x).data, x * 2)
                gc.collect()
    finally:
        gc.callbacks.remove(count)
    assert collections_of_garbage and step.traces == 1


def test_a_class_may_name_anything_as_its_module():
    class Odd:
        __module__ = property(lambda self: "odd")
        k = 2.0

    odd = Odd()
    step = tg.compile(lambda x: x * odd.k)
    for x in X:
        np.testing.assert_array_equal(step(x).data, x * 2)


class Scaled(tg.Optimizer):
    """Descends by a rule that reads a global."""

    def update(self, p, g, state, lr):
        return p - lr * config["k"] * g, state


def test_a_global_that_an_optimizer_s_rule_reads():
    def make():
        w = tg.param([1.0, 2.0, 3.0])
        optimizer = Scaled([w], lr=0.1)

        def step(x):
            optimizer.zero_grad()
            tg.sum((w * x) ** 2).backward()
            optimizer.step()

        return w, step

    (w, step), (p, eager) = make(), make()
    step = tg.compile(step)
    try:
        with tg.use_backend("native"):
            for i, x in enumerate(X):
                config["k"] = 2 if i < 7 else 3
                step(x), eager(x)
                np.testing.assert_array_equal(w.data, p.data)
    finally:
        config["k"] = 2
    assert step.traces == 2


# ------------------------------------------------------------------ what notes the code


def counted(**options):
    """Return a compiled step that uses an operator, its object, and what counts real calls."""
    held, calls = own(__mul__=lambda self, x: x * self.k), itertools.count()
    return tg.compile(lambda x: (next(calls), held * x)[1], **options), held, calls


def test_code_that_no_look_foresees_takes_no_more_real_calls():
    step, held, calls = counted(verify_every=None)
    for _ in range(6):
        step(X[0])
    assert next(calls) == 2 and step.traces == 1
    held.k = 3
    for _ in range(6):
        step(X[0])
    assert next(calls) == 5 and step.traces == 2  # one is counted here


def test_what_unforeseen_code_changes_itself_is_no_mismatch_and_never_stale():
    def counts(self, x):
        self.k += 1
        return x * self.k

    held = own(__mul__=counts)
    step = tg.compile(lambda x: held * x)
    for i, x in enumerate(X[:6]):
        np.testing.assert_array_equal(step(x).data, x * (3 + i))


def test_code_that_runs_later_is_watched_from_then_on():
    def index(self):
        k, self.k = self.k, 3  # so the call has changed what it saw
        return k

    held, calls = own(__index__=index), itertools.count()
    step = tg.compile(lambda x: x * (operator.index(held) if next(calls) > 1 else 2))
    for x in X[:4]:  # the fourth is the third that is a real one
        np.testing.assert_array_equal(step(x).data, x * 2)
    for x in X[:4]:
        np.testing.assert_array_equal(step(x).data, x * 3)


def profile_function(frame, event, arg):
    """Do nothing: a profiler, or a debugger, of the user's."""


def trace_function(frame, event, arg):
    """Trace every line, as a debugger does."""
    return trace_function


def under_a_profile_function(work):
    sys.setprofile(profile_function)
    try:
        work()
        assert sys.getprofile() is profile_function
    finally:
        sys.setprofile(None)


def under_a_trace_function(work):
    before = sys.gettrace()
    sys.settrace(trace_function)
    try:
        work()
        assert sys.gettrace() is trace_function
    finally:
        sys.settrace(before)


def under_both(work):
    under_a_trace_function(lambda: under_a_profile_function(work))


def under_cprofile(work):
    profiler = cProfile.Profile()
    try:
        profiler.runcall(work)
    except ValueError as error:  # another one is active
        pytest.skip(str(error))
    assert any(entry.code == work.__code__ for entry in profiler.getstats())


@pytest.mark.parametrize(
    "under", [under_a_profile_function, under_a_trace_function, under_both, under_cprofile]
)
@pytest.mark.parametrize("monitored", [True, False], ids=["by monitoring", "before Python 3.12"])
def test_debuggers_coverage_and_profilers_go_on_working(under, monitored, monkeypatch):
    if monitored and sys.version_info < (3, 12):
        pytest.skip("needs Python 3.12")
    if not monitored:
        monkeypatch.setattr("tapegraph.compiling.ran._monitored", lambda: False)

    def work():
        step, held, _ = counted()
        for k in (2, 3):
            held.k = k
            for x in X[:3]:
                np.testing.assert_array_equal(step(x).data, x * k)

    before = sys.gettrace(), sys.getprofile()
    under(work)
    assert (sys.gettrace(), sys.getprofile()) == before


def test_inner_functions_are_read_where_nothing_can_note_the_code_that_runs(monkeypatch):
    """A trace function and a C profiler leave no hook, but where Python has monitoring."""
    monkeypatch.setattr("tapegraph.compiling.ran._monitored", lambda: False)
    step = tg.compile(lambda x: (lambda row: row * config["k"])(x))

    def work():
        for k in (2, 3):
            monkeypatch.setitem(config, "k", k)
            for x in X[:3]:
                np.testing.assert_array_equal(step(x).data, x * k)

    under_a_trace_function(lambda: under_cprofile(work))


@pytest.mark.parametrize("monitored", [True, False], ids=["by monitoring", "before Python 3.12"])
def test_the_code_of_other_threads_is_not_noted(monitored, monkeypatch):
    if not monitored:
        monkeypatch.setattr("tapegraph.compiling.ran._monitored", lambda: False)

    def elsewhere():
        pass

    def here():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    witness = Witness(here, collections.deque())
    before = sys.gettrace(), sys.getprofile()
    witness()
    elsewhere(), here()
    codes = [code for code, _ in witness.noted]
    assert here.__code__ in codes and elsewhere.__code__ not in codes
    assert all(code.co_filename == __file__ for code in codes)
    assert (sys.gettrace(), sys.getprofile()) == before


def test_an_error_leaves_no_hook_behind():
    def fails():
        raise KeyboardInterrupt

    before = sys.gettrace(), sys.getprofile()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            tg.compile(fails)()
    assert (sys.gettrace(), sys.getprofile()) == before


# ------------------------------------------------------------------ methods of classes


class Model:
    k = 2

    @tg.compile
    @classmethod
    def of_class(cls, x):
        return x * cls.k

    @classmethod
    @tg.compile
    def inside(cls, x):
        return x * cls.k

    @tg.compile
    @staticmethod
    def still(x):
        return x * Model.k


class Other(Model):
    k = 5


def test_a_compiled_class_method_and_a_static_one():
    with tg.use_backend("native"):
        for x in X[:5]:
            for kind in (Model, Other):
                for held in (kind, kind()):
                    for method in (held.of_class, held.inside):
                        np.testing.assert_array_equal(method(x).data, x * kind.k)
                    np.testing.assert_array_equal(held.still(x).data, x * 2)
    assert Model.of_class.traces == Other.of_class.traces == Model.still.traces == 1
    assert Model().of_class is Model.of_class is not Other.of_class
    assert Model.of_class.scan(X).shape == X.shape
    with pytest.raises(TypeError, match="received type .* for args"):
        tg.compile(lambda kind, x: x)(Model, X[0])
