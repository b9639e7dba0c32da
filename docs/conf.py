"""How the site is built: ``python -m sphinx -W -b html docs <target>``.

The pages are Markdown that reads the same in the repository's web view. What the site needs beside
is done as they are read: the lists of an index become its navigation, the pages at the repository's
root are taken in, and the reference's tables give way to the whole docstrings.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS)]

from reference import TABLE, public  # noqa: E402

import tapegraph  # noqa: E402

project = "tapegraph"
author = "The tapegraph authors"
version = release = tapegraph.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
myst_heading_anchors = 3  # named as the web view names them
autosummary_generate = False  # its tables alone: the entries stand below them
autodoc_typehints = "none"  # the aliases in signatures, such as Kind, are for type checkers
default_role = "py:obj"

# The tutorial's notebooks are shown as they are stored; the texts that they are made from are not.
nb_execution_mode = "off"
exclude_patterns = ["tutorial/*.md"]

html_theme = "furo"
html_title = f"tapegraph {version}"
html_copy_source = False

# Pages at the repository's root, by the page of the site that shows them.
AT_THE_ROOT = {
    "overview": ROOT / "README.md",
    "contributing": ROOT / "CONTRIBUTING.md",
    "changes": ROOT / "CHANGELOG.md",
    "security": ROOT / "SECURITY.md",
}
INDEXES = ("index", "api")
LINK = re.compile(r"\[([^][]+)\]\(([^)#:\s]+)((?:#[^)\s]*)?)\)")


def prepare(app: Sphinx, docname: str, source: list[str]) -> None:
    """Change the text of a page into the site's."""
    page = Path(app.env.doc2path(docname))
    if docname in AT_THE_ROOT:
        page = AT_THE_ROOT[docname]
        app.env.note_dependency(str(page))
        source[0] = page.read_text()
    if page.suffix == ".md":
        on_site = (DOCS / docname).parent
        source[0] = LINK.sub(lambda link: _of_the_site(link, page.parent, on_site), source[0])
        declared: set[str] = set()
        source[0] = TABLE.sub(lambda table: _directive(table, declared), source[0])
    if docname in INDEXES:
        source[0] += _navigation(source[0])


def _of_the_site(link: re.Match[str], folder: Path, on_site: Path) -> str:
    text, target, anchor = link.groups()
    path = (folder / target).resolve()
    for docname, page in AT_THE_ROOT.items():
        if path == page:
            path = DOCS / f"{docname}.md"
    if path.is_dir():  # the site has no page for it
        return text
    return f"[{text}]({os.path.relpath(path, on_site)}{anchor})" if path.is_file() else link[0]


def _directive(table: re.Match[str], declared: set[str]) -> str:
    """Return what shows the docstrings of a table's names, or its rows as they are.

    :param declared: The packages that the page has named as modules.
    """
    kind, package, modules, rows = table.groups()
    if kind == "data":
        entries = re.findall(r"^\| `(\w+)` \| (.+) \|$", rows, re.MULTILINE)
        lines = [f".. py:currentmodule:: {package}", ""]
        lines += [f".. py:data:: {name}\n\n   {text}\n" for name, text in entries]
    else:  # the library's own names come from many modules, a part's stand together
        new = "." in package and package not in declared
        declared.add(package)
        lines = [f".. py:module:: {package}", ""] if new else []
        lines += [f".. api:: {package}", *([f"   :from: {modules}"] if modules else [])]
    return "\n".join(["```{eval-rst}", *lines, "```", ""])


def _navigation(text: str) -> str:
    """Return a hidden toctree of the pages that each section links to."""
    trees = []
    for section in re.split(r"^(?=#)", text, flags=re.MULTILINE):
        pages = [target for _, target, _ in LINK.findall(section) if (DOCS / target).is_file()]
        caption = re.match(r"## (.+)\n", section)
        title = f":caption: {caption[1]}\n" if caption else ""
        trees.append("\n".join(["", "```{toctree}", f":hidden:\n{title}", *pages, "```", ""]))
    return "".join(trees)


class Api(SphinxDirective):
    """The public names of a package, or those that it has from some of its modules.

    A table of them, then the docstring of each.
    """

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"from": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """Return what autosummary and autodoc make of them."""
        (package,) = self.arguments
        names = public(package, self.options.get("from", ""))
        lines = [f".. py:currentmodule:: {package}", "", ".. autosummary::", ""]
        lines += [f"   {name}" for name in names]
        for name, value in names.items():
            lines += ["", *_entry(name, value)]
        container = nodes.container()
        self.state.nested_parse(StringList(lines, "api"), self.content_offset, container)
        return container.children


def _entry(name: str, value: Any) -> list[str]:
    if value.__name__ != name:
        return [f".. py:function:: {name}", "", f"   Another name of `{value.__name__}`."]
    if not isinstance(value, type):
        return [f".. autofunction:: {name}"]
    if issubclass(value, Exception):
        return [f".. autoexception:: {name}"]
    entry = [f".. autoclass:: {name}", "   :members:", "   :exclude-members: count, index"]
    # Dual has the methods of Tensor, which are shown there.
    return entry if name == "Dual" else [*entry, "   :inherited-members:"]


def shorten(app: Sphinx, kind: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Give a method that is one of the operations its summary, and a link to the whole."""
    module = getattr(value, "__module__", None) or ""
    if kind == "method" and module.startswith("tapegraph.ops"):
        lines[:] = [*lines[: lines.index("")], f"See `tapegraph.{value.__name__}`."]


def one_field_a_name(
    app: Sphinx, kind: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Give each parameter a field of its own: to Sphinx all but the last of several are a type."""
    found: list[str] = []
    for line in lines:
        line = re.sub(r"^(:param [^:]*):", lambda field: field[0].replace("*", r"\*"), line)
        several = re.match(r":(param|ivar) ([^:]*, [^:]*):", line)
        for other in several[2].split(", ")[:-1] if several else ():
            found.append(f":{several[1]} {other}: As the next.")
        found.append(
            line.replace(several[2], several[2].rpartition(", ")[2], 1) if several else line
        )
    lines[:] = found


def setup(app: Sphinx) -> None:
    """Connect what this file does to Sphinx."""
    app.connect("source-read", prepare)
    app.connect("autodoc-process-docstring", shorten)
    app.connect("autodoc-process-docstring", one_field_a_name)
    app.add_directive("api", Api)
