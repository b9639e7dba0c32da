"""Text that others chose, such as names and paths, in a form that is safe in code and on screens.

Python comments, terminals and markup each give a meaning to characters that no name needs. Every
place that writes such text for them passes it through here first.
"""

from __future__ import annotations


def escaped(text: str) -> str:
    r"""Return a text as one line: each character that does not print is written as in `repr`.

    Those are line ends, escape codes of terminals, marks that turn the direction of writing, and
    halves of surrogate pairs, which no file encoding takes. Backslashes stay as they are.

    >>> from tapegraph.escapes import escaped
    >>> print(escaped("a\x1b[2Jb\nc ü"))
    a\x1b[2Jb\nc ü
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def escaped_lines(text: str) -> str:
    """Return a text of several lines, each of them escaped but for its tabs."""
    if text.isprintable():
        return text
    return "".join(part if part in ("\n", "\t") else escaped(part) for part in text)
