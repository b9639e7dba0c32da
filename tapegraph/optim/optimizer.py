"""`Optimizer`: parameters, their state, and one step of all of them by a pure rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

import numpy as np

from tapegraph.arrays import own
from tapegraph.capture import Capture, RunDependent
from tapegraph.errors import ConcretizationError, kind_of, message, sentence, warn
from tapegraph.numpy_warnings import quietly
from tapegraph.optim.options import (
    AVERAGING,
    Group,
    Leaf,
    Params,
    Rate,
    check_rate_is_not_read,
    check_rate_is_set_outside,
    data_of,
    fresh,
    gradient_of,
    grouped,
    of_parts,
    rate,
    rate_at,
    real_and_imaginary,
    rows_set,
    slot,
)
from tapegraph.other_names import OtherOptimizers, unexpected
from tapegraph.recording.node import as_leaf, numeric, real_dtype
from tapegraph.recording.op import CONSTANT
from tapegraph.recording.scopes import no_grad, recorder
from tapegraph.recording.tape import ZERO, held_gradient
from tapegraph.recording.values import (
    Change,
    all_new_numbers,
    make,
    new_numbers,
    set_array,
    together,
)
from tapegraph.recording.watchers import UPDATE, WATCHING
from tapegraph.row_sparse import RowSparse
from tapegraph.scalars.recorder import DATA, GRAD, recorder_of
from tapegraph.tensors.tensor import Tensor
from tapegraph.tensors.value import Value
from tapegraph.typed import Array, DType

State = Mapping[str, Tensor]
Slots: TypeAlias = dict[str, Array]


class Optimizer(OtherOptimizers):
    """The base of every optimizer: a subclass defines one pure rule, and its slots.

    ``update`` is array code: operators and NumPy's functions, on arrays that it must not change,
    without branches on their numbers. So it runs eagerly on arrays, and on tensors where a step is
    recorded, with the same numbers. Options of the rule are plain attributes, set before
    ``super().__init__(params, lr)`` and then fixed.

    :param params: The leaves to update, or a model for `parameters`; leaves without a gradient stay
        as they are. A dict or model names them. Groups are dicts of ``"params"`` and optionally
        ``"lr"`` and ``"weight_decay"``.
    :param lr: The learning rate, finite and not negative; or a schedule of the step, counted from 0
        (`tapegraph.optim.schedules`).
    :param weight_decay: As L2 regularisation, ``g + weight_decay * p`` for the gradient; in a
        subclass with ``decoupled = True``, ``p - lr * weight_decay * p`` for the parameter.
    :ivar lr: The learning rate of the next step; a number or a schedule may be assigned at any
        time.
    :ivar state: The slots of each parameter, by its name: its path in a dict or model, in a list
        its own name if unique, or else its place, from ``"0"``.
    :raises TypeError: Something in ``params`` is not a leaf, or an option is no number.
    :raises ValueError: A parameter or name occurs twice, or an option is out of range.

    >>> class SignDescent(tg.Optimizer):
    ...     def init(self, p):
    ...         return {"mean": np.zeros_like(p)}
    ...
    ...     def update(self, p, g, state, lr):
    ...         mean = 0.5 * state["mean"] + 0.5 * g
    ...         return p - lr * np.sign(mean), {"mean": mean}
    >>> x = tg.param([1.0, -2.0], name="x")
    >>> optimizer = SignDescent([x], lr=0.25)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.data
    array([ 0.75, -1.75])
    >>> optimizer.state["x"]["mean"]
    Tensor([ 1., -2.])
    """

    # Weight decay acts on the parameter itself, and not through the gradient.
    decoupled = False
    # The rule is element by element: a compiled step runs it once, on all Values together.
    elementwise = False

    def __init_subclass__(cls) -> None:
        """Take a new rule for one that is not element by element, unless the class says so."""
        super().__init_subclass__()
        if "update" in vars(cls) and "elementwise" not in vars(cls):
            cls.elementwise = False

    def __init__(
        self, params: Params, lr: Rate, weight_decay: float = 0.0, **others: NoReturn
    ) -> None:
        self._kind = type(self).__name__
        if others:
            raise unexpected(self._kind, others)
        self._groups = tuple(grouped(self._kind, params, weight_decay))
        if not self.params:
            fix = "An iterator over parameters is empty once it has been read: pass a list."
            raise ValueError(message(self._kind, "no parameters", "one or more", fix))
        self._lr = rate(self._kind, lr)
        # A tensor like the slots: a compiled step counts too.
        self._steps = slot(np.zeros((), np.int64))
        # How many steps each parameter has had no gradient in: counted for rules with `numbers`.
        self._missed = slot(np.zeros(len(self.params), np.int64))
        named = [
            pair for group in self._groups for pair in zip(group.names, group.params, strict=True)
        ]
        self._places = {name: i for i, (name, _) in enumerate(named)}
        self._state: dict[str, State] = {
            name: MappingProxyType({k: slot(v) for k, v in self.init(data_of(p)).items()})
            for name, p in named
        }

    def __repr__(self) -> str:
        groups: tuple[Group, ...] = vars(self).get("_groups", ())
        count = sum(len(group.params) for group in groups)
        facts = [f"{count} parameter{'' if count == 1 else 's'}"]
        if len(groups) > 1:
            facts.append(f"{len(groups)} groups")
        lr = vars(self).get("_lr")
        facts.append(f"lr={getattr(lr, '__qualname__', lr)}")
        decays = {group.weight_decay for group in groups} - {0.0}
        facts += [f"weight_decay={decay}" for decay in sorted(decays)]
        facts += [f"{k}={v!r}" for k, v in vars(self).items() if not k.startswith("_")]
        return f"{type(self).__name__}({', '.join(facts)})"

    def __getstate__(self) -> dict[str, Any]:
        """Return plain dicts for copies and pickles, as views cannot be copied."""
        return {**vars(self), "_state": {name: dict(slots) for name, slots in self._state.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        held = {name: MappingProxyType(slots) for name, slots in state["_state"].items()}
        vars(self).update(state, _state=held)

    # The rule

    def init(self, p: Array) -> Slots:
        """Return the slots of a parameter before its first step: arrays by name; none here."""
        return {}

    def update(self, p: Array, g: Array, state: Slots, lr: float) -> tuple[Array, Slots]:
        """Return the new parameter and its new slots.

        :param p, g: The parameter and its gradient, with L2 weight decay already in it.
        :param state: The slots.
        :param lr: 0-d ndarray or Tensor. The learning rate, in the parameter's dtype.
        """
        text = "the class has no rule. Define update(self, p, g, state, lr) -> (p, state)."
        raise NotImplementedError(sentence(self._kind, text))

    def numbers(self, lr: float, step: int) -> dict[str, float]:
        """Return values of these two alone, which `update` finds among the slots.

        Python computes them once for all parameters, and a compiled step anew in every run.

        :param lr: The learning rate.
        :param step: The parameter's step, from 1, without those in which it had no gradient.
        """
        return {}

    def counted(self, step: int) -> dict[str, Any]:
        """Return the entry of ``state_dict()`` for a parameter's number of steps."""
        return {}

    def count_of(self, held: Mapping[str, object], steps: int) -> int:
        """Return a parameter's number of steps from `counted`'s result, or by default ``steps``."""
        return steps

    @property
    def by_rows(self) -> bool:
        """Whether the rule may run only on the rows of a table that have a gradient.

        It must be element by element, and without weight decay a zero gradient must change nothing.
        Otherwise a row-sparse gradient is made dense.
        """
        return False

    # Looking and setting

    @property
    def params(self) -> list[Leaf]:
        """The leaves, in a new list."""
        return [p for group in self._groups for p in group.params]

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups of parameters."""
        return self._groups

    @property
    def lr(self) -> float:
        """The learning rate of the next step, for groups without one of their own."""
        check_rate_is_not_read()
        return rate_at(self._kind, self._lr, self._taken())

    @lr.setter
    def lr(self, value: Rate) -> None:
        check_rate_is_set_outside()
        self._lr = rate(self._kind, value)

    @property
    def steps(self) -> int:
        """The number of steps taken."""
        recorder().read_plain("steps", "a count of steps", "Read it outside, or count in a tensor.")
        return self._taken()

    def _taken(self) -> int:
        return int(self._steps._array)

    @property
    def state(self) -> Mapping[str, State]:
        """The slots by the parameter's name and their own: constants, to read and to assign to."""
        return MappingProxyType(self._state)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the state that the next steps depend on, besides the parameters.

        :returns: ``"optimizer"``, the class's name; ``"steps"``; ``"lr"``, the learning rates of
            the optimizer and of each group, None for a schedule or none; and ``"state"``, arrays by
            the name of the parameter and of the slot.
        :raises RuntimeError: Inside a compiled step.

        >>> optimizer = tg.SGD({"w": tg.param([1.0, 2.0])}, lr=0.5, momentum=0.9)
        >>> optimizer.state_dict()["state"]
        {'w': {'momentum': array([0., 0.])}}
        """
        recorder().outside("state_dict", "Call it between its runs.")
        held = state_of(self)
        state = {
            name: {k: np.array(v) for k, v in slots.items()}
            for name, slots in held["state"].items()
        }
        return {**held, "state": state}

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        """Continue from the ``state_dict()`` of another run.

        A schedule stays, and continues from the number of steps. An error changes nothing.

        :param state_dict: A result of `state_dict`, of an optimizer of the same class over
            parameters of the same names, shapes and dtypes.
        :raises TypeError: It is not such a mapping, or a dtype differs.
        :raises ValueError: The class, a name, a shape or the number of groups differs.
        :raises RuntimeError: Inside a compiled step.
        """
        recorder().outside("load_state_dict", "Call it between its runs.")
        op = f"{self._kind}.load_state_dict"
        make(together(changes_to(self, state_dict, op)))

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Set every parameter's gradient to zero, or to None.

        :param set_to_none: None lets steps leave a parameter alone until a loss reaches it again;
            with zeros momentum and weight decay go on. A `Value` always gets zero.
        """
        for p in self.params:
            if set_to_none and isinstance(p, Tensor):
                p.grad = None
            else:
                p.zero_grad()

    # Stepping

    def step(self) -> None:
        """Update every parameter that has a gradient, and its slots: all of them, or none.

        :raises TypeError, ValueError: The rule returned another dtype, shape or name than those of
            a parameter and its slots, or a schedule no learning rate.
        """
        averaging = AVERAGING.value()
        if averaging is None:
            self._step()
        else:
            averaging.step(self)

    def _step(self) -> None:
        recorder().step(self)

    def step_now(self) -> None:
        """Take the step on arrays, and write them."""
        if not self._steps._array and all(map(_is_idle, self.params)):
            self._warn_idle()
        watchers = WATCHING.value()
        for watcher in watchers:
            watcher.begins(UPDATE, f"{self._kind}.step")
        try:
            changes: list[Change] = []
            missed: list[int] = []
            for group in self._groups:
                changes.extend(self._changes(group, self._rate(group), missed))
            if missed:
                counts: Array = self._missed._array.copy()
                counts[missed] += 1
                changes += new_numbers(self._missed, counts)
            steps = np.array(self._steps._array.item() + 1)
            changes.append(partial(set_array, self._steps, steps))
            quietly(make, together(changes))  # an overflow in place must not stop it half-way
        finally:
            for watcher in watchers:
                watcher.ends()

    def _warn_idle(self) -> None:
        text = (
            "no parameter has a gradient. Call backward() between zero_grad() and step(); or the "
            "loss uses other parameters than this optimizer's."
        )
        warn(sentence(f"{self._kind}.step", text), UserWarning)

    def _rate(self, group: Group, ahead: int = 0) -> float:
        """Return a group's learning rate in the next step, or ``ahead`` steps later."""
        chosen = self._lr if group._lr is None else group._lr
        if type(chosen) is float:
            return chosen
        return rate_at(self._kind, chosen, self._taken() + ahead)

    @cached_property
    def _has_numbers(self) -> bool:
        return type(self).numbers is not Optimizer.numbers

    def _step_of(self, name: str) -> int:
        return self._taken() + 1 - int(self._missed._array[self._places[name]])

    def _number(self, group: Group, name: str, missed: int, key: str, ahead: int) -> float:
        step = self._step_of(name) + ahead - missed
        return self.numbers(self._rate(group, ahead), step)[key]

    def _changes(self, group: Group, lr: float, missed: list[int]) -> Iterable[Change]:
        taken: set[int] = set()
        known = {}
        changes: list[Change] = []
        changed = []
        arrays = []
        for name, p in zip(group.names, group.params, strict=True):
            g = gradient_of(p, rows=self.by_rows and not group.weight_decay)
            if g is None:
                if self._has_numbers:
                    missed.append(self._places[name])
                continue
            slots = self._state[name]
            leaves = [p, *slots.values()]
            old = [data_of(leaf) for leaf in leaves]
            tables = [isinstance(g, RowSparse) and array.shape == g.shape for array in old]
            if isinstance(g, RowSparse):  # the rule is run on the rows that have a gradient
                rows, g = g.rows, g.values
                old = [a[rows] if table else a for a, table in zip(old, tables, strict=True)]
            state = dict(zip(slots, old[1:], strict=True))
            dtype = real_dtype(old[0].dtype)
            numbers: dict[str, Array] = {}
            if self._has_numbers:
                step = self._step_of(name)
                if (dtype, step) not in known:
                    found = self.numbers(lr, step)
                    known[dtype, step] = {k: np.asarray(x, dtype) for k, x in found.items()}
                numbers = known[dtype, step]
            rate_now = np.asarray(lr, dtype)
            new = self._updated(name, old[0], g, state, numbers, rate_now, group.weight_decay)
            for watcher in WATCHING.value():
                watcher.updated(self._kind, name, g, new[0])
            for leaf, array, table in zip(leaves, new, tables, strict=True):
                if table:
                    changes += rows_set(leaf, rows, np.array(array))
                elif isinstance(leaf, Value):
                    changes.append(partial(setattr, leaf, DATA, float(array)))
                else:
                    changed.append(leaf)
                    # A parameter's is aligned, as an engine wants to be fed.
                    arrays.append(own(array) if leaf is p else fresh(array, taken))
        if changed:
            changes += all_new_numbers(changed, arrays)
        return changes

    def record_step(self, capture: Capture) -> None:
        """Take the step on tensors, so that the captured program holds it."""
        capture.steps[id(self)] += 1
        changes: list[tuple[Tensor, Any]] = []
        missed: list[int] = []
        numbers = _Numbers(self, capture)
        idle = not any(isinstance(p, Value) for p in self.params)
        with no_grad():
            for group in self._groups:
                self._record_values(capture, group, numbers)
                for name, p in zip(group.names, group.params, strict=True):
                    if isinstance(p, Value):
                        continue
                    g = gradient_of(p, rows=False)
                    if g is None:
                        missed.append(self._places[name])
                        continue
                    idle = idle and g._op is CONSTANT and not g._array.any()  # zeroed
                    key = group, real_dtype(p.dtype)
                    slots = self._state[name]
                    found = numbers.of(name, *key), numbers.rate(*key)
                    args = dict(slots), *found, group.weight_decay
                    new = self._updated(name, p, g, *args)
                    changes.extend(zip((p, *slots.values()), new, strict=True))
            if idle and not self._taken():
                self._warn_idle()
            changes.append((self._steps, self._steps + 1))
            if missed and self._has_numbers:
                more = np.zeros(self._missed.shape, np.int64)
                more[missed] = 1
                changes.append((self._missed, self._missed + more))
            numbers.finish(missed)
            for leaf, value in changes:
                leaf.assign(value)

    def _record_values(self, capture: Capture, group: Group, numbers: _Numbers) -> None:
        """Take the step of a group's Values, all of them at once if the rule allows it."""
        # By what each reads besides: with equal step counts they share their `numbers`.
        batches: dict[Any, list[tuple[str, Value]]] = {}
        for name, p in zip(group.names, group.params, strict=True):
            if isinstance(p, Value):
                key = self._step_of(name) if self.elementwise else name
                batches.setdefault(key, []).append((name, p))
        if not batches:
            return
        scalars = recorder_of(capture)
        lr = numbers.rate(group, np.dtype(np.float64))
        for batch in batches.values():
            shape = (len(batch),) if self.elementwise else ()
            states = [self._state[name] for name, _ in batch]
            for x in states[0].values():
                if x.shape != () or x.dtype != float:
                    received = f"{self._kind} with a slot of {kind_of(x)} for a Value"
                    fix = "Let init give np.zeros(()), or step outside the compiled function."
                    raise ConcretizationError(message(self._kind, received, "one float64", fix))
            params = [p for _, p in batch]
            objects: list[Any] = [params, *([state[k] for state in states] for k in states[0])]
            places = [[scalars.index(x) for x in row] for row in objects]
            grads = [scalars.index(p, GRAD) for p in params]
            tensor, g, *slots = scalars.tensors([places[0], grads, *places[1:]], shape)
            state = dict(zip(states[0], slots, strict=True))
            name = batch[0][0]
            found = numbers.of(name, group, np.dtype(np.float64))
            new = self._updated(name, tensor, g, state, found, lr, group.weight_decay)
            for row, value in zip(objects, new, strict=True):
                scalars.assign_all(row, value)

    def _updated_by_parts(self, p: Array, g: Array, state: Slots, lr: float) -> tuple[Array, Slots]:
        """Run the rule on real and imaginary parts as separate elements, as PyTorch does."""
        own = [key for key, slot in state.items() if slot.dtype.kind == "c"]
        given = state | {key: real_and_imaginary(state[key]) for key in own}
        new_p, new = self.update(real_and_imaginary(p), real_and_imaginary(g), given, lr)
        return of_parts(new_p), new | {key: of_parts(new[key]) for key in own if key in new}

    def _updated(
        self,
        name: str,
        p: Any,
        g: Any,
        state: dict[str, Any],
        numbers: dict[str, Any],
        lr: Any,
        weight_decay: float,
    ) -> list[Any]:
        """Run the rule; return the new parameter and slots, in the order of the slots."""
        old = [p, *state.values()]
        if weight_decay and self.decoupled:
            p = p - lr * (weight_decay * p)  # in the dtype of p, whatever carries lr
        elif weight_decay:
            g = g + weight_decay * p
        update = self.update if p.dtype.kind != "c" else self._updated_by_parts
        new_p, new_state = update(p, g, {**state, **numbers}, lr)
        if set(new_state) != set(state):
            received = f"slots {sorted(new_state)} from update for {name!r}"
            raise ValueError(message(self._kind, received, f"{sorted(state)}, as init gave them"))
        new = [new_p, *(new_state[k] for k in state)]
        for slot_name, before, after in zip(("p", *state), old, new, strict=True):
            same = before.shape == np.shape(after) and before.dtype == np.result_type(after)
            if not same:
                received = f"{kind_of(after)} from update for {slot_name!r} of {name!r}"
                expected = f"dtype {before.dtype} and shape {before.shape}"
                kind = ValueError if before.shape != np.shape(after) else TypeError
                raise kind(message(self._kind, received, expected))
        return new


def _is_idle(p: Leaf) -> bool:
    """Return whether a parameter has no gradient, or a zeroed one."""
    grad = 0.0 if isinstance(p, Value) else held_gradient(p)
    return grad is None or grad is ZERO


@dataclass(eq=False)
class _OfRun(RunDependent):
    """A number of a captured step, after ``before`` other steps in the same run."""

    optimizer: Optimizer
    before: int
    steps: Mapping[int, int]
    of: Callable[[int], float]

    def __call__(self) -> float:
        return self.of(self.before)

    def ahead(self, runs: int) -> list[float]:
        each = self.steps[id(self.optimizer)]
        return list(map(self.of, range(self.before, self.before + runs * each, each)))


class _Numbers:
    """Leaves for learning rates and `numbers` in a captured step, which every run reads anew."""

    def __init__(self, optimizer: Optimizer, capture: Capture) -> None:
        self._optimizer = optimizer
        self._capture = capture
        self._missed = optimizer._missed._array
        self._start = capture.started.get(id(optimizer._missed), self._missed)
        self._known: dict[Any, Any] = {}
        self._places: list[int] = []  # of those that have `numbers`

    def rate(self, group: Group, dtype: DType) -> Any:
        key, of = (group, dtype), partial(self._optimizer._rate, group)
        if key not in self._known:
            self._known[key] = self._reading(of, dtype, self._now(of))
        return self._known[key]

    def _now(self, of: Callable[[], Any]) -> Any:
        self._capture.asks_a_schedule = True
        try:
            return of()
        finally:
            self._capture.asks_a_schedule = False

    def _reading(self, of: Callable[[int], float], dtype: DType, now: float) -> Any:
        """Return a number of a step; ``of`` gives it by how many steps of the run come before."""
        optimizer, capture = self._optimizer, self._capture
        if not capture.is_state(optimizer._steps):  # made inside, as in every run
            return as_leaf(np.asarray(now, dtype))
        start = capture.started.get(id(optimizer._steps), optimizer._steps._array)
        before = optimizer._taken() - int(start)
        return capture.reading(_OfRun(optimizer, before, capture.steps, of), dtype, now)

    def of(self, name: str, group: Group, dtype: DType) -> dict[str, Any]:
        optimizer = self._optimizer
        if not optimizer._has_numbers:
            return {}
        place = optimizer._places[name]
        self._places.append(place)
        key = group, dtype, self._missed[place], self._start[place]
        if key not in self._known:
            step = optimizer._step_of(name)
            now = self._now(lambda: optimizer.numbers(optimizer._rate(group), step))
            missed = int(self._missed[place] - self._start[place])
            of = partial(optimizer._number, group, name, missed)
            self._known[key] = {k: self._reading(partial(of, k), dtype, x) for k, x in now.items()}
        return self._known[key]

    def finish(self, missed: list[int]) -> None:
        """Enter the condition; later ones in a run depend on the one before."""
        optimizer, capture = self._optimizer, self._capture
        if not self._places or not capture.is_state(optimizer._missed):
            return
        capture.conditions.append(_SameCounts(optimizer, self._places, self._start))
        counts = [held for held in capture.conditions if isinstance(held, _SameCounts)]
        taken = [held.places for held in counts if held.optimizer is optimizer]
        if not set(missed).isdisjoint(chain(*taken)) or any(
            self._missed[place] != self._start[place] for place in self._places
        ):
            capture.schedules_read_state = True


class _SameCounts:
    """Whether parameters that had equal step counts still have."""

    def __init__(self, optimizer: Optimizer, places: list[int], missed: Array) -> None:
        self.optimizer, self.places = optimizer, places
        self._alike = self._classes(missed)
        self._seen = missed

    def __call__(self) -> bool:
        missed = self.optimizer._missed._array
        if missed is not self._seen:
            if self._classes(missed) != self._alike:
                return False
            self._seen = missed
        return True

    def _classes(self, missed: Array) -> list[int]:
        counts = missed[self.places].tolist()
        return [counts.index(count) for count in counts]


_KEYS = ("optimizer", "steps", "lr", "state")


def state_of(optimizer: Optimizer) -> dict[str, Any]:
    """Return read-only views of the slots for `state_dict` to copy."""
    taken = (optimizer._taken() - optimizer._missed._array).tolist()
    state = {
        name: {k: data_of(v) for k, v in slots.items()} | optimizer.counted(count)
        for (name, slots), count in zip(optimizer._state.items(), taken, strict=True)
    }
    rates = [value if isinstance(value, float) else None for value in _rates(optimizer)]
    values = (optimizer._kind, optimizer._taken(), rates, state)
    return dict(zip(_KEYS, values, strict=True))


def changes_to(
    optimizer: Optimizer,
    state_dict: Mapping[str, Any],
    op: str,
    owned: Callable[[Any, str, str], Array] = numeric,
) -> list[Change]:
    """Return the changes that load another run's state, all checked; ``owned`` copies slots."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(message(op, kind_of(state_dict), "a result of state_dict()"))
    _check_names(op, "entries", state_dict, _KEYS)
    kind, steps, rates, state = (state_dict[key] for key in _KEYS)
    if kind != optimizer._kind:
        raise ValueError(message(op, f"the state of {kind}", f"that of {optimizer._kind}"))
    if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 0:
        raise ValueError(message(op, f"{steps!r} for 'steps'", "a count of steps"))
    held = _rates(optimizer)
    if len(rates) != len(held):
        received = f"learning rates of {len(rates) - 1} groups"
        raise ValueError(message(op, received, f"{len(held) - 1} groups"))
    checked = [None if new is None else rate(op, new) for new in rates]
    arrays = list(_arrays(op, optimizer, state, owned))
    counts = [optimizer.count_of(state[name], int(steps)) for name in optimizer.state]
    owners = [optimizer, *optimizer.groups]
    changes = new_numbers(optimizer._steps, np.array(int(steps)))
    changes += new_numbers(optimizer._missed, int(steps) - np.array(counts, np.int64))
    for owner, now, new in zip(owners, held, checked, strict=True):
        if new is not None and not callable(now):
            changes.append(partial(setattr, owner, "_lr", new))
    for leaf, array in arrays:
        changes += new_numbers(leaf, array)
    return changes


def _rates(optimizer: Optimizer) -> list[Rate | None]:
    return [optimizer._lr, *(group.lr for group in optimizer.groups)]


def _arrays(
    op: str, optimizer: Optimizer, state: Any, owned: Callable[[Any, str, str], Array]
) -> Iterable[tuple[Any, Any]]:
    _check_names(op, "parameters", state, optimizer.state)
    for name, slots in optimizer.state.items():
        kept = {**slots, **optimizer.counted(0)}
        _check_names(op, f"slots of {name!r}", state[name], kept)
        for key, leaf in kept.items():
            array = owned(state[name][key], op, f"{name}.{key}")
            if array.shape != leaf.shape:
                received = f"shape {array.shape} for {key!r} of {name!r}"
                raise ValueError(message(op, received, f"shape {leaf.shape}"))
            if array.dtype != leaf.dtype:
                received = f"dtype {array.dtype} for {key!r} of {name!r}"
                raise TypeError(message(op, received, f"dtype {leaf.dtype}"))
            if key in slots:
                yield leaf, array


def _check_names(op: str, what: str, given: object, wanted: Iterable[str]) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(message(op, f"{kind_of(given)} for the {what}", "a dict by name"))
    missing = ", ".join(repr(name) for name in wanted if name not in given)
    unknown = ", ".join(repr(name) for name in given if name not in set(wanted))
    parts = [f"no {missing}"] * bool(missing) + [f"{unknown}, not known here,"] * bool(unknown)
    if parts:
        raise ValueError(message(op, f"{' and '.join(parts)} among the {what}", f"{list(wanted)}"))
