"""The calls that a plan is made of: each gives a value of its own, and none is made twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from tapegraph.recording.program import identity

# How a call is written.
PLAIN, METHOD, ITEM = "plain", "method", "item"


class Held:
    """A value of the plan, with what it was when the plan was made.

    Attributes
    ----------
    value : object
        An array; in rules also the number that NumPy gives for an array of no axes; what an
        operation saved may be anything.
    roots : tuple of Held
        Whose memory it lies in: itself, or of a view what it views.
    hint : str
        What its name is made from.
    """

    __slots__ = ("hint", "roots", "value")

    def __init__(self, value: Any, roots: tuple[Held, ...] = (), hint: str = "t") -> None:
        self.value = value
        self.roots = roots or (self,)
        self.hint = hint


class Constant(Held):
    """A value that is the same in every run."""

    __slots__ = ()


class Leaf(Held):
    """A value that the plan is given."""

    __slots__ = ()


class Call:
    """One line of a plan.

    Attributes
    ----------
    function : callable or None
        What is called: of a method or an item nothing but its name.
    name : str
        Its name in the plan.
    args, kwargs
        What it is called with: `Held` values, plain ones, and tuples, lists and slices of them.
    reads : list of Held
        The values among them.
    form : str
        How it is written.
    results : list of Held
        What it gives: one, or for an operation that saves something two.
    into : bool
        It can write its result into an array it is given.
    moulded : bool
        It has to, for its result has the layout and dtype of another array.
    elementwise : bool
        That array may be one of its operands.
    kept : bool
        It may raise, so that it is run even where nobody reads what it gives.
    users : bool
        A user's own function, of which nothing is known: it may keep what it is given.
    place : str
        The user's line.
    key : hashable
        What it shares with a call that gives the same.
    """

    __slots__ = (
        "args",
        "elementwise",
        "form",
        "function",
        "into",
        "kept",
        "key",
        "kwargs",
        "moulded",
        "name",
        "place",
        "reads",
        "results",
        "users",
    )

    def __init__(
        self,
        function: Any,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        form: str = PLAIN,
        into: bool = False,
        elementwise: bool = False,
        kept: bool = False,
        users: bool = False,
    ) -> None:
        self.function: Any = function
        self.name = name
        self.args = args
        self.kwargs = kwargs
        self.form = form
        self.into = into
        self.moulded = False
        self.elementwise = elementwise
        self.kept = kept or users
        self.users = users
        self.place = ""
        self.key: Any = None
        self.results: list[Held] = []
        self.reads = [*held_in(args), *held_in(kwargs)]

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Make the call."""
        if self.form == METHOD:
            return getattr(args[0], self.name)(*args[1:], **kwargs)
        if self.form == ITEM:
            return args[0][args[1]]
        return self.function(*args, **kwargs)

    def may_overwrite(self, held: Held, place: int) -> bool:
        """Tell whether it can write a result over an operand as it goes along."""
        return self.elementwise and lies_alike(held, self.results[place])


class Check(Call):
    """The second look at gradients that hold a NaN: it gives each of them a name of its own."""

    __slots__ = ("grads",)

    def __init__(
        self, again: Callable[..., Any], leaves: list[Held], grads: list[Held], hints: list[str]
    ) -> None:
        super().__init__(again, "strong_zeros", tuple(leaves), {}, kept=True)
        self.grads = grads
        self.results = [Held(g.value, g.roots, hint) for g, hint in zip(grads, hints, strict=True)]
        self.reads = [*grads, *self.reads]  # and what they are computed from again


class Calls:
    """The calls of a plan, in order. Each is made once on the recorded values."""

    def __init__(self) -> None:
        self.lines: list[Call] = []
        self.place = ""
        self._seen: dict[Any, list[Held]] = {}
        self._constants: dict[int, Constant] = {}

    def constant(self, value: Any) -> Constant:
        """Return a value that is the same in every run."""
        held = self._constants.get(id(value))
        if held is None:
            held = self._constants[id(value)] = Constant(value, hint="c")
        return held

    def make(
        self, call: Call, hint: str = "t", like: Held | None = None, given: Any = None
    ) -> Held:
        """Add a call and return what it gives, or what the same call gave before.

        Parameters
        ----------
        like : Held, optional
            Whose layout and dtype the result takes, as one that is computed in place does.
        given : optional
            What the call gave on the recorded values, where it need not be made for that.
        """
        (held,) = self.make_all(call, (hint,), like, given)
        return held

    def make_all(
        self, call: Call, hints: tuple[str, ...], like: Held | None = None, given: Any = None
    ) -> list[Held]:
        """Add a call that gives several values, one per hint."""
        mould = None if like is None else (like.value.strides, like.value.dtype.str)
        key = (call.function, call.name, call.form, mould, _key(call.args), _key(call.kwargs))
        known = None if call.users else self._seen.get(key)
        if known is not None:
            return known
        kwargs = concrete(call.kwargs)
        args = concrete(call.args)
        out = call.run(*args, **kwargs) if given is None else given
        if like is not None and mould != (out.strides, out.dtype.str):
            call.moulded = True
            out = call.run(*args, **kwargs, out=np.empty_like(like.value))
        outs = (out,) if len(hints) == 1 else out
        reads = call.reads
        if not call.kept and all(isinstance(h, Constant) for h in reads):
            return [self.constant(out)]
        call.results = [Held(o, _roots(call, o), hint) for o, hint in zip(outs, hints, strict=True)]
        call.into = call.into and type(out) is np.ndarray and call.results[0].roots[0].value is out
        call.place = self.place
        self.lines.append(call)
        call.key = key
        self._seen[key] = call.results
        return call.results

    def array(self, held: Held) -> Held:
        """Return a value as an array, where NumPy made a number of one without axes."""
        if type(held.value) is np.ndarray:
            return held
        return self.make(Call(np.asarray, "asarray", (held,), {}), held.hint)

    def forget(self, mark: int) -> None:
        """Take calls back."""
        for call in self.lines[mark:]:
            del self._seen[call.key]
        del self.lines[mark:]


def _roots(call: Call, out: Any) -> tuple[Held, ...]:
    """Return in whose memory a result lies, or may lie in another run; () is its own."""
    found: dict[int, Held] = {}
    for held in call.reads:
        if any(_may_be_of(call, a, b) for a in _parts(out) for b in _parts(held.value)):
            found.update((id(root), root) for root in held.roots)
    return tuple(found.values())


def _parts(value: Any) -> list[Any]:
    """Return the arrays that something holds, and what may hold others."""
    if value is None or isinstance(value, (np.generic, bool, int, float)):
        return []
    return [p for v in value for p in _parts(v)] if isinstance(value, (tuple, list)) else [value]


def _may_be_of(call: Call, a: Any, b: Any) -> bool:
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return True
    # A function may give back what it was given as soon as the numbers allow that.
    returned = call.kept and a.shape == b.shape and a.dtype == b.dtype
    return returned or np.may_share_memory(a, b)


def lies_alike(a: Held, b: Held) -> bool:
    """Tell whether a value is all of the memory it lies in, and of another's layout."""
    root, one, two = a.roots[0].value, a.value, b.value
    if len(a.roots) > 1 or not isinstance(root, np.ndarray):
        return False
    if root.nbytes != one.nbytes or root.ctypes.data != one.ctypes.data:
        return False
    return bool((one.shape, one.strides, one.dtype) == (two.shape, two.strides, two.dtype))


def root_ids(values: Iterable[Held]) -> dict[int, None]:
    """Return the ids of the values in whose memory these lie, in order."""
    return dict.fromkeys(id(root) for held in values for root in held.roots)


def held_in(tree: Any) -> Iterator[Held]:
    """Yield the values in tuples, lists, dicts and slices."""
    if isinstance(tree, Held):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for part in tree:
            yield from held_in(part)
    elif isinstance(tree, dict):
        for part in tree.values():
            yield from held_in(part)
    elif isinstance(tree, slice):
        yield from held_in((tree.start, tree.stop, tree.step))


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return tuples, lists, dicts and slices with a function applied to what they hold."""
    if isinstance(tree, (tuple, list)):
        return type(tree)([mapped(function, part) for part in tree])
    if isinstance(tree, dict):
        return {key: mapped(function, part) for key, part in tree.items()}
    if isinstance(tree, slice):
        return slice(*(mapped(function, p) for p in (tree.start, tree.stop, tree.step)))
    return function(tree)


def concrete(tree: Any) -> Any:
    """Return what values were when the plan was made."""
    return mapped(lambda x: x.value if isinstance(x, Held) else x, tree)


def _key(tree: Any) -> Any:
    """Return what two trees share where they mean the same."""
    if isinstance(tree, (tuple, list)):
        return (type(tree), *map(_key, tree))
    if isinstance(tree, dict):
        return (dict, *((k, _key(v)) for k, v in tree.items()))
    if isinstance(tree, slice):
        return (slice, _key(tree.start), _key(tree.stop), _key(tree.step))
    if isinstance(tree, Held):
        return (Held, id(tree))
    return identity(tree)
