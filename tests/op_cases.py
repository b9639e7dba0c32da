"""The table of operation cases under the name that tests import; it ships with the package."""

from tapegraph.cases import CASES, Case

__all__ = ["CASES", "Case"]
