"""The values that the gradient of each operation reads; the tape keeps no others."""

from __future__ import annotations

import dis
from itertools import pairwise

from tapegraph.differentiation.slopes import SLOPES, Divisor, Linear
from tapegraph.recording.op import OPS
from tapegraph.typed import Fun

# The result and the operands, as bits.
Y, A, B, C = 1, 2, 4, 8
NOTHING = 0

# The reads of each operand's gradient; the last one counts for all further operands.
READS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("broadcast_to", "concat", "reshape", "roll", "transpose"), (NOTHING,)),
    **dict.fromkeys(("sum", "mean", "cumsum", "fft", "ifft", "rfft", "irfft"), (NOTHING,)),
    **dict.fromkeys(("eigvalsh", "svdvals"), (NOTHING,)),  # they save the vectors
    "mse_loss": (NOTHING,),  # it saves the difference
    "avg_pool2d": (A,),  # the order in memory: the gradient takes it
    **dict.fromkeys(("gather", "scatter", "tensor_slice"), (B,)),
    "getitem": (B | C,),
    "index": (~(Y | A),),
    **dict.fromkeys(("cholesky", "eig", "eigh", "inv", "qr", "softmax", "svd"), (Y,)),
    **dict.fromkeys(("cumprod", "max", "max_pool2d", "min", "norm", "prod"), (Y | A,)),
    **dict.fromkeys(("det", "pinv", "slogdet"), (Y | A,)),
    "solve": (Y | A, A),
    "lstsq": (Y | A | B, A),
    **dict.fromkeys(("matmul", "batch_matmul", "convolve"), (B, A)),
    "softmax_crossentropy": (B, A),  # it saves the exponentials
    "einsum": (~(Y | A), ~(Y | B), ~(Y | C), ~Y),
    "conv2d": (B, NOTHING),  # it saves the windows
    "layer_norm": (B, NOTHING),  # it saves the standardised rows
}

_TYPE = ("dtype", "ndim", "shape", "size")


def _read_by(slope: Fun | Divisor | Linear | None) -> int:
    """Return what a slope reads: the arguments of which its code uses more than the type."""
    if slope is None:
        return NOTHING
    code = (slope.of if isinstance(slope, (Divisor, Linear)) else slope).__code__
    names = code.co_varnames[isinstance(slope, Linear) : code.co_argcount]
    found = NOTHING
    for instruction, after in pairwise(dis.get_instructions(code)):
        if instruction.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE")):
            loaded = instruction.argval  # of several, the last one is what an attribute is of
            loaded = [loaded] if isinstance(loaded, str) else [*loaded]
            if after.opname.startswith("LOAD_ATTR") and after.argval in _TYPE:
                loaded.pop()
            found |= sum(1 << names.index(name) for name in {*loaded}.intersection(names))
    return found


for _name, _row in SLOPES.items():
    OPS[_name].set_reads(tuple(map(_read_by, _row)))
for _name, _reads in READS.items():
    OPS[_name].set_reads(_reads)
