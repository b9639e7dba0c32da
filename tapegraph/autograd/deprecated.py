"""`primitive` with the methods that rules were defined by in autograd's first releases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tapegraph.autograd import primitives
from tapegraph.autograd.primitives import Rule, defvjp
from tapegraph.autograd.vspaces import vspace
from tapegraph.errors import warn

F = TypeVar("F", bound=Callable[..., Any])


def primitive(f_raw: F) -> F:
    """Make a function one operation, as `tapegraph.autograd.extend.primitive` does.

    The result also has the methods that rules were defined by before `defvjp`: ``defgrad``,
    ``defvjp`` and ``defvjp_is_zero``, which warn.
    """
    fun: Any = primitives.primitive(f_raw)
    makers: dict[int, Rule | None] = {}

    def define(name: str, found: dict[int, Rule | None]) -> None:
        warn(f"{name}: deprecated, as in autograd; write defvjp(fun, maker, ...)", UserWarning)
        makers.update(found)
        defvjp(fun, *makers.values(), argnums=list(makers))

    def defgrad(gradfun: Rule, argnum: int = 0) -> None:
        """Define a product by ``gradfun(ans, *args, **kwargs)``, a function of the cotangent."""
        define("defgrad", {argnum: gradfun})

    def old_defvjp(vjpmaker: Rule, argnum: int = 0) -> None:
        """Define a product by ``vjpmaker(g, ans, vs, gvs, *args, **kwargs)``."""

        def maker(ans: Any, *args: Any, **kwargs: Any) -> Rule:
            return lambda g: vjpmaker(g, ans, vspace(args[argnum]), vspace(g), *args, **kwargs)

        define("defvjp", {argnum: maker})

    def defvjp_is_zero(argnums: Sequence[int] = (0,)) -> None:
        """Declare that the derivative by some arguments is zero."""
        define("defvjp_is_zero", dict.fromkeys(argnums))

    fun.defgrad, fun.defvjp, fun.defvjp_is_zero = defgrad, old_defvjp, defvjp_is_zero
    return fun  # type: ignore[no-any-return]
