"""Make other people's text, such as names and paths, safe in code, terminals and markup."""

from __future__ import annotations


def escaped(text: str) -> str:
    r"""Return a text as one line: each unprintable character as in `repr`, backslashes unchanged.

    >>> from tapegraph.escapes import escaped
    >>> print(escaped("a\x1b[2Jb\nc ü"))
    a\x1b[2Jb\nc ü
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def escaped_lines(text: str) -> str:
    """Escape each line of a text, except its tabs."""
    if text.isprintable():
        return text
    return "".join(part if part in ("\n", "\t") else escaped(part) for part in text)
