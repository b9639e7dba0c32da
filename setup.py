"""The C extension: NumPy keeps its headers where pyproject.toml cannot say.

It is optional: without a compiler the package installs and runs without it. It holds a checksum of
its source, for a checkout whose source may change afterwards.
"""

import zlib
from pathlib import Path

import numpy as np
from setuptools import Extension, setup

SOURCE = "fallback/plan/_records.c"

setup(
    ext_modules=[
        Extension(
            "tapegraph.fallback.plan._records",
            [SOURCE],
            define_macros=[("SOURCE", str(zlib.crc32(Path(SOURCE).read_bytes()) >> 1))],
            include_dirs=[np.get_include()],
            optional=True,
        )
    ]
)
