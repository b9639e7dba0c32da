"""The scalar engine against micrograd alone: ``python benchmarks/scalar.py``, with the options of
``python -m benchmarks``.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["--workload", "scalar", *sys.argv[1:]]))
