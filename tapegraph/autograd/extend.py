"""Define functions with custom derivatives, and vector spaces of custom types."""

from tapegraph.autograd.core import JVPNode as JVPNode
from tapegraph.autograd.core import SparseObject as SparseObject
from tapegraph.autograd.core import VJPNode as VJPNode
from tapegraph.autograd.core import VSpace as VSpace
from tapegraph.autograd.core import def_linear as def_linear
from tapegraph.autograd.core import defjvp as defjvp
from tapegraph.autograd.core import defjvp_argnum as defjvp_argnum
from tapegraph.autograd.core import defjvp_argnums as defjvp_argnums
from tapegraph.autograd.core import defvjp as defvjp
from tapegraph.autograd.core import defvjp_argnum as defvjp_argnum
from tapegraph.autograd.core import defvjp_argnums as defvjp_argnums
from tapegraph.autograd.core import vspace as vspace
from tapegraph.autograd.tracer import Box as Box
from tapegraph.autograd.tracer import notrace_primitive as notrace_primitive
from tapegraph.autograd.tracer import primitive as primitive
from tapegraph.autograd.tracer import register_notrace as register_notrace
