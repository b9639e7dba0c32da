"""Runnable both ways: `python examples/digits.py` and `python -m examples.digits`."""

import sys
from pathlib import Path

# A script's own folder is on the path; `-m` puts the working directory there instead.
sys.path.insert(0, str(Path(__file__).parent))
