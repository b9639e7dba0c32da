"""Operations of the user's own: a forward on arrays, and its rules."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, Protocol, overload

import numpy as np

from tapegraph.arrays import read_only, spreads
from tapegraph.batching import BatchedCall, element_by_element
from tapegraph.capture import OPERATION
from tapegraph.errors import check_callable, kind_of, message
from tapegraph.kinds import Kind
from tapegraph.recording import node as nodes
from tapegraph.recording import numpy_functions
from tapegraph.recording.node import as_leaf, numeric
from tapegraph.recording.op import DEFINED, OPS, Op, Rules
from tapegraph.recording.record import apply, is_complex, operand
from tapegraph.row_sparse import conjugated
from tapegraph.typed import Array, ArrayLike, DuckArray, Fun

Rule = Fun


class OfMany(Protocol):
    """A user's function of any number of arrays."""

    __name__: str

    def __call__(self, /, *arrays: Kind | ArrayLike, **attrs: object) -> Kind: ...


@overload
def defop(
    forward: None = None,
    *,
    vjp: Rule | tuple[Rule | None, ...],
    jvp: Rule | None = None,
    lowering: Rule | None = None,
    batch: Rule | Literal["elementwise"] | None = None,
    name: str | None = None,
    takes_complex: bool = False,
) -> Callable[[Fun], OfMany]: ...
@overload
def defop(
    forward: Fun,
    *,
    vjp: Rule | tuple[Rule | None, ...],
    jvp: Rule | None = None,
    lowering: Rule | None = None,
    batch: Rule | Literal["elementwise"] | None = None,
    name: str | None = None,
    takes_complex: bool = False,
) -> OfMany: ...
def defop(
    forward: Fun | None = None,
    *,
    vjp: Rule | tuple[Rule | None, ...],
    jvp: Rule | None = None,
    lowering: Rule | None = None,
    batch: Rule | Literal["elementwise"] | None = None,
    name: str | None = None,
    takes_complex: bool = False,
) -> Fun:
    """Register a function of arrays, from any library, as an operation that differentiates.

    It is recorded like the library's own, and takes tensors, duals, arrays and numbers. Also a
    decorator.

    :param forward: ``forward(*arrays, **attrs)`` returns one array of floats, or with
        ``takes_complex`` of complex numbers. Arrays are positional and read-only; attributes are
        keyword-only and hashable. A ufunc from another library (``scipy.special.jv``) then works on
        tensors by its own name too.
    :param vjp: The gradient rule on arrays, ``vjp(g, y, *arrays, **attrs)`` with the gradient ``g``
        of the result ``y``. It returns the gradient, or a tuple with one per input, None for none;
        each has the shape of its input, or of ``y``, and is summed back. With a tuple of rules, one
        per input or None, only the needed ones run. Multiply ``g`` by the derivative, so that zeros
        of ``g`` stay zero where the derivative is not finite.
    :param jvp: The tangent rule for `jvp` and `grad`, ``jvp(tangents, y, *inputs, **attrs)``, in
        operations on tensors; a constant input's tangent is None.
    :param lowering: The forward in TensorFlow, ``lowering(*tensors, **attrs)``, which TensorFlow
        differentiates. Without it, tapes with the operation run in the native engine.
    :param batch: The rule for `vmap`, ``batch(batched, *inputs, **attrs)``, in operations on
        tensors: ``batched`` says which inputs hold examples along their first axis, as the result
        does. ``"elementwise"`` if inputs broadcast example by example. Without a rule examples run
        one after another, with a `SlowBatchingWarning`.
    :param name: The name on the tape and in messages; by default the function's own.
    :param takes_complex: Forward and rules support complex numbers, which otherwise raise. ``vjp``
        takes and returns gradients ``dL/dx + i dL/dy``: for a holomorphic f, ``g * conj(f'(z))``.
        ``jvp`` returns ``f'(z) dz``, or the real-linear map. A real input takes the real part.
    :returns: A callable with the forward's arguments that returns a `Tensor`, or a `Dual`; a
        decorator without ``forward``.
    :raises TypeError: A part is not callable, or the forward has an optional positional parameter.
        In a call: a number is complex without ``takes_complex``.
    :raises ValueError: The name belongs to another function (the same one again replaces the
        operation). In a call or ``backward``: a result or gradient is no float array of the right
        shape.

    >>> @tg.defop(vjp=lambda g, y, x, *, rate: g * y * rate)
    ... def growth(x, *, rate):
    ...     return np.exp(rate * x)
    >>> tg.testing.check_gradients(lambda x: growth(x, rate=0.5), [0.0, 1.0]).checked
    2
    """
    if forward is None:
        return functools.partial(
            defop,
            vjp=vjp,
            jvp=jvp,
            lowering=lowering,
            batch=batch,
            name=name,
            takes_complex=takes_complex,
        )
    check_callable("defop", forward, "forward")
    title = getattr(forward, "__name__", "") if name is None else name
    if not isinstance(title, str) or not title.isidentifier():
        fix = "Give it one with name=."
        raise ValueError(message("defop", f"the name {title!r}", "an identifier", fix))
    ours = title in OPS or (title in DEFINED and title not in _FORWARDS)
    if ours or not _is_same(_FORWARDS.get(title, forward), forward):
        fix = "Pass another name with name=."
        raise ValueError(message("defop", f"the name {title!r}, which is taken", "a new one", fix))
    takes = _Parameters(title, forward)
    for rule in vjp if isinstance(vjp, tuple) else (vjp,):
        if rule is not None or not isinstance(vjp, tuple):
            check_callable("defop", rule, "vjp")
            takes.check_taken_by(rule, "vjp", ("g", "y"))
    for argument, rule, before in (("jvp", jvp, ("tangents", "y")), ("lowering", lowering, ())):
        if rule is not None:
            check_callable("defop", rule, argument)
            takes.check_taken_by(rule, argument, before)
    flows = tuple(rule is not None for rule in vjp) if isinstance(vjp, tuple) else None
    if flows is not None and takes.arrays is not None and len(flows) != takes.arrays:
        received = f"{len(flows)} rules in vjp for {title}"
        raise ValueError(message("defop", received, f"one per input, {takes.arrays}"))
    rules = Rules(
        vjp=functools.partial(_gradients, title, vjp),
        jvp=jvp,
        lowering=None if lowering is None else lambda out, *xs, **attrs: lowering(*xs, **attrs),
        batch=_batching_rule(batch),
    )
    again = title in DEFINED
    DEFINED.pop(title, None)
    _FORWARDS[title] = forward
    op = Op(
        title,
        functools.partial(_result, title, forward, takes_complex),
        differentiable=flows,
        takes_complex=takes_complex,
        rules=rules,
    )

    @functools.wraps(forward)
    def record(*arrays: DuckArray, **attrs: object) -> DuckArray:
        attrs = takes.matched(arrays, attrs)
        operands = _operands(title, arrays)
        if not takes_complex and is_complex(*operands):
            raise _real_numbers_alone(title, "complex numbers")
        return apply(op, operands, attrs)

    record.__name__ = title
    if isinstance(forward, np.ufunc) and (again or forward not in numpy_functions.COUNTERPARTS):
        numpy_functions.COUNTERPARTS[forward] = record  # where it is not one of the library's own
    return record


def _batching_rule(batch: Any) -> Callable[[BatchedCall], Any] | None:
    if batch is None:
        return None
    if batch == "elementwise":
        return element_by_element
    check_callable("defop", batch, "batch")
    return lambda call: batch(tuple(call.batched), *call.xs, **call.attrs)


_NUMBERS = (float, int, bool, complex)
# The function behind each name.
_FORWARDS: dict[str, Fun] = {}


def _is_same(a: Fun, b: Fun) -> bool:
    """Return whether two functions come from one definition, perhaps run twice."""
    if a is b:
        return True
    names = [(getattr(f, "__module__", None), getattr(f, "__qualname__", None)) for f in (a, b)]
    if names[0] != names[1] or names[0][1] is None:
        return False
    if "<lambda>" not in names[0][1]:
        return True
    return bool(getattr(a, "__code__", a) == getattr(b, "__code__", b))


class _Parameters:
    """The number of arrays that a forward takes, None for any, and its attributes' defaults."""

    def __init__(self, name: str, forward: Fun) -> None:
        self.name = name
        self.arrays: int | None = None
        self.attrs: dict[str, Any] | None = None
        if isinstance(forward, np.ufunc):
            self.arrays, self.attrs = forward.nin, {}
            return
        try:
            parameters = inspect.signature(forward).parameters.values()
        except (TypeError, ValueError):  # written in C without one
            return
        count, variadic, self.attrs = 0, False, {}
        for p in parameters:
            if p.kind is p.KEYWORD_ONLY:
                self.attrs[p.name] = p.default
            elif p.kind is p.VAR_POSITIONAL:
                variadic = True
            elif p.kind is p.VAR_KEYWORD or p.default is not p.empty:
                received = f"{name} with the parameter {p}"
                expected = "arrays positional, attributes keyword-only"
                fix = "Wrap it: lambda x, *, n=1: function(x, n)."
                raise TypeError(message("defop", received, expected, fix))
            else:
                count += 1
        self.arrays = None if variadic else count

    def check_taken_by(self, rule: Any, argument: str, before: tuple[str, ...]) -> None:
        """Raise if a rule cannot take the forward's arguments after its own."""
        if self.arrays is None or self.attrs is None:
            return
        try:
            signature = inspect.signature(rule)
        except (TypeError, ValueError):  # written in C without one
            return
        names = ["x"] if self.arrays == 1 else [f"x{i + 1}" for i in range(self.arrays)]
        names = [*before, *names]
        try:
            signature.bind(*names, **self.attrs)
        except TypeError as error:
            received = f"{argument}{signature} for {self.name!r}"
            options = f", *, {', '.join(self.attrs)}" if self.attrs else ""
            expected = f"{argument}({', '.join(names)}{options})"
            raise TypeError(message("defop", received, expected, f"({error}.)")) from None

    def matched(self, arrays: tuple[DuckArray, ...], given: dict[str, Any]) -> dict[str, Any]:
        """Return all attributes in one order; raise for arguments that do not match."""
        if not arrays or (self.arrays is not None and len(arrays) != self.arrays):
            expected = "at least one" if self.arrays is None else str(self.arrays)
            raise TypeError(message(self.name, f"{len(arrays)} positional arrays", expected))
        attrs = given
        if self.attrs is not None:
            unknown = ", ".join(k for k in given if k not in self.attrs)
            if unknown:
                names = ", ".join(self.attrs) or "none"
                raise TypeError(message(self.name, f"the attribute {unknown}", names))
            attrs = {k: given.get(k, default) for k, default in self.attrs.items()}
        for k, value in attrs.items():
            if value is inspect.Parameter.empty:
                raise TypeError(message(self.name, f"no {k}=", "a value for it"))
            try:
                hash(value)
            except TypeError:
                fix = "Pass arrays as positional arguments, and lists as tuples."
                received = f"{kind_of(value)} for {k}="
                raise TypeError(message(self.name, received, "a hashable attribute", fix)) from None
        return attrs


def _operands(name: str, values: tuple[DuckArray, ...]) -> tuple[DuckArray, ...]:
    """Return the arguments as tensors and foreign objects; numbers take the arrays' precision."""
    operands = [
        x if type(x) is complex else operand(name, x, f"argument {i}") for i, x in enumerate(values)
    ]
    dtypes = [x.dtype for x in operands if hasattr(x, "dtype")]
    return tuple(
        as_leaf(np.asarray(x, np.result_type(*dtypes, x))) if type(x) in _NUMBERS else x
        for x in operands
    )


def _arguments(*arrays: DuckArray) -> list[Array]:
    """Return read-only views, so that a function that writes into its argument fails harmlessly."""
    return [read_only(np.asanyarray(x)) for x in arrays]  # of no axes it may be a NumPy number


def _real_numbers_alone(name: str, received: str) -> TypeError:
    fix = "Take x.real, or give tg.defop takes_complex=True once its rules conjugate."
    return TypeError(message(name, received, "real numbers", fix))


def _result(name: str, forward: Fun, takes_complex: bool, *arrays: Array, **attrs: object) -> Array:
    token = OPERATION.set(name)
    try:
        out = forward(*_arguments(*arrays), **attrs)
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        received = "a forward that writes into its argument"
        raise ValueError(message(name, received, "a new array", "Copy it first.")) from error
    finally:
        OPERATION.reset(token)
    if isinstance(out, (tuple, list, nodes.Node)):
        fix = "Register one operation per result, on plain arrays."
        raise TypeError(message(name, f"a {type(out).__name__} from forward", "one array", fix))
    out = numeric(out, name, "forward's result", widens=False)
    if out.dtype.kind == "c" and not takes_complex:
        raise _real_numbers_alone(name, f"{kind_of(out)} from forward")
    if out.dtype.kind not in "fc" and any(a.dtype.kind in "fc" for a in arrays):
        expected = "floats or complex numbers" if takes_complex else "float32 or float64"
        raise TypeError(message(name, f"{kind_of(out)} from forward", expected))
    return out


def _gradients(
    name: str,
    vjp: Rule | tuple[Rule | None, ...],
    needs: list[bool],
    g: Array,
    y: Array,
    *arrays: Array,
    **attrs: object,
) -> tuple[DuckArray, ...]:
    """Run a user's gradient rule in `backward`'s convention, and check the gradients."""
    arguments = _arguments(conjugated(g), y, *arrays)
    if isinstance(vjp, tuple):
        given: tuple[DuckArray, ...] = tuple(
            rule(*arguments, **attrs) if rule is not None and wanted else None
            for rule, wanted in zip(vjp, needs, strict=True)
        )
    else:
        made = vjp(*arguments, **attrs)
        given = made if isinstance(made, tuple) else (made,)
    if len(given) != len(arrays):
        received = f"{len(given)} gradients from vjp"
        fix = "Return a tuple with one per input, None for an input that has none."
        raise ValueError(message(name, received, f"{len(arrays)}, one per input", fix))
    found: list[DuckArray] = []
    for i, (part, x) in enumerate(zip(given, arrays, strict=True)):
        if part is None:
            found.append(None)
            continue
        grad: Array = np.array(part)  # a copy: the rule may keep the array, or write to it later
        if grad.dtype.kind not in ("fiubc" if "c" in (x.dtype.kind, y.dtype.kind) else "fiub"):
            received = f"{kind_of(grad)} for input {i} from vjp"
            raise TypeError(message(name, received, "real numbers"))
        if grad.shape != x.shape and not (grad.shape == y.shape and spreads(x.shape, y.shape)):
            received = f"a gradient of shape {grad.shape} for input {i} from vjp"
            raise ValueError(message(name, received, f"the input's shape {x.shape}"))
        found.append(conjugated(grad))
    return tuple(found)
