"""``python -m tapegraph``."""

from __future__ import annotations

import sys

from tapegraph.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
