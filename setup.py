"""The one thing that pyproject.toml cannot say: where NumPy keeps the headers for the C extension.

It is optional: without a compiler the package installs and runs without it.
"""

import numpy as np
from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "tapegraph.fallback.plan._records",
            ["fallback/plan/_records.c"],
            include_dirs=[np.get_include()],
            optional=True,
        )
    ]
)
