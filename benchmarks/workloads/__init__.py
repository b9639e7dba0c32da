"""The workloads, one module each: the problem, and each library's way of computing its loss.

A module has ``ABOUT`` (one line), ``problem()`` and ``CONTENDERS``, which maps a contender's name
to a function from the problem to a `Trainer`, or one that raises `Unavailable`; or, where nobody
competes, ``ABOUT`` and ``measure()``. The contenders ``tapegraph`` and ``tapegraph compiled`` take
part once for each engine.
"""

WORKLOADS = ("mlp", "transformer", "cnn", "tiny", "scalar", "embedding", "gpt", "record", "small")
