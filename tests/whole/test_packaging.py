"""The package as a whole: what it imports, from where, how fast; its docstrings are true."""

import ast
import doctest
import functools
import graphlib
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tapegraph
from tapegraph.lowering import runtime

pytestmark = pytest.mark.versions

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "tapegraph": "tapegraph",
    "tapegraph.fallback": "fallback",
    "tapegraph.lowering": "lowering",
}
ENGINES = ("tapegraph.fallback", "tapegraph.lowering")


def modules() -> dict[str, Path]:
    """Every module by the name users import it by."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join([package, *parts]).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def python(code: str, *, cwd: Path, flags: tuple[str, ...] = (), **environment: str) -> str:
    """Run a program in a new interpreter and return what it printed."""
    hidden = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "TAPEGRAPH_BACKEND")
    done = subprocess.run(
        [sys.executable, *flags, "-c", code],
        cwd=cwd,
        env={k: v for k, v in os.environ.items() if k not in hidden} | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ------------------------------------------------------------------ import


def test_import_is_quick():
    code = (
        "import time, numpy; start = time.process_time(); import tapegraph; "
        "print(time.process_time() - start)"
    )
    # The least of many runs: the rest measure what else the machine is doing.
    least = float("inf")
    for _ in range(20):
        least = min(least, float(python(code, cwd=ROOT)))
        if least <= 0.1:
            break
    assert least <= 0.1


def test_import_takes_numpy_alone():
    loaded = python("import sys, tapegraph; print(*sys.modules)", cwd=ROOT).split()
    optional = {"tensorflow", "matplotlib", "sklearn", "scipy", "tqdm", "hypothesis", "pytest"}
    optional |= {"safetensors", "zipfile", "json", "mpi4py"}
    assert "numpy" in loaded
    assert optional.isdisjoint(loaded)


WHERE = "import tapegraph as t, tapegraph.fallback as f; print(t.__file__, f.__file__)"


def copy_package(target: Path, folders: dict[str, str]) -> None:
    for source, destination in folders.items():
        shutil.copytree(ROOT / source, target / destination, ignore=lambda *_: {"__pycache__"})


def test_checkout_works_uninstalled(tmp_path):
    copy_package(tmp_path, {folder: folder for folder in FOLDERS.values()})
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    # As a plain folder, site-packages does not say where an editable install has put the folders.
    installed = str(Path(np.__file__).parents[1])
    files = python(WHERE, cwd=tmp_path, flags=("-S",), PYTHONPATH=installed).split()
    assert files == [
        str(tmp_path / "tapegraph" / "__init__.py"),
        str(tmp_path / "fallback" / "__init__.py"),
    ]


def test_installed_layout_ignores_a_users_own_fallback(tmp_path):
    copy_package(tmp_path, {folder: name.replace(".", "/") for name, folder in FOLDERS.items()})
    (tmp_path / "fallback").mkdir()
    (tmp_path / "fallback" / "__init__.py").write_text("raise SystemExit('the wrong fallback')")
    files = python(WHERE, cwd=tmp_path).split()
    assert files[1] == str(tmp_path / "tapegraph" / "fallback" / "__init__.py")


@pytest.mark.parametrize("name", ["fallback", "lowering"])
def test_nothing_generic_at_the_top_of_site_packages(name, tmp_path):
    code = f"import importlib.util; print(importlib.util.find_spec({name!r}))"
    assert python(code, cwd=tmp_path, flags=("-I",)).strip() == "None"


def test_every_package_is_in_the_wheel():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML by itself")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    assert set(project["tool"]["setuptools"]["packages"]) == packages


def test_the_tensorflow_that_installs_is_the_one_that_is_accepted():
    (least,) = re.findall(
        r'^tensorflow = \["tensorflow>=([\d.]+)"\]$',
        (ROOT / "pyproject.toml").read_text(),
        re.MULTILINE,
    )
    assert least == ".".join(map(str, runtime.MINIMUM))


def test_every_dependency_has_a_lower_bound():
    # .ci/matrix installs exactly these, and finds them by this pattern.
    text = (ROOT / "pyproject.toml").read_text()
    bounded = set(re.findall(r'"([A-Za-z0-9-]+)>=[\d.]+', text))
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML by itself")
    project = tomllib.loads(text)["project"]
    wanted = [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]
    names = {re.match(r"[\w-]+", requirement)[0] for requirement in wanted} - {"tapegraph"}
    assert names and names <= bounded


# ------------------------------------------------------------------ direction of imports


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports(name: str, *, inside_functions: bool, typed: bool = False) -> set[str]:
    """The modules and names a module imports, absolute; with ``typed`` for type checkers too."""
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not typed:
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not inside_functions:
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            relative = "." * node.level + (node.module or "")
            base = importlib.util.resolve_name(relative, package)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found.add(full if full in MODULES else base)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt | ast.ExceptHandler):  # no import stands in an expression
                visit(child)

    visit(parsed(path))
    return found


def inside(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == p or name.startswith(p + ".") for p in packages)


# The rooms of the core, from the ground up: each knows those before it alone.
ROOMS = (
    "environment",
    "errors",
    "other_names",
    "interrupts",
    "display",
    "typed",
    "pytree",
    "arrays",
    "numpy_warnings",
    "row_sparse",
    "recording",
    "draws",
    "capture",
    "scalars",
    "random",
    "kinds",
    "ops",
    "engines",
    "differentiation",
    "batching",
    "tensors",
    "tree",
    "data",
    "compiling",
    "transforms",
    "loops",
    "custom_rules",
    "integrate",
    "optim",
    "saving",
    "distributed",
    "exporting",
    "drawing",
    "seeing",
    "autograd",
    "testing",
    "commands",
)
# The command line stands above both engines, and nothing stands above it.
COMMANDS = ("tapegraph.__main__",)


def floor(name: str) -> int:
    """On which floor a module of the core stands; the package itself on top, `__main__` too."""
    room = name.removeprefix("tapegraph").removeprefix(".").partition(".")[0]
    return ROOMS.index(room) if room in ROOMS else len(ROOMS)


def test_no_import_runs_up():
    up = []
    for name in MODULES:
        known = {m for m in imports(name, inside_functions=True) if inside(m, ("tapegraph",))}
        if inside(name, COMMANDS):
            known.discard("tapegraph")
        if not inside(name, ENGINES):
            up += [(name, m) for m in known if floor(m) > floor(name) and not inside(m, ENGINES)]
    assert up == []


def test_types_from_above_are_named_in_one_module():
    up = set()
    for name, path in MODULES.items():
        for block in ast.walk(parsed(path)):
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
                found = [n.module for n in ast.walk(block) if isinstance(n, ast.ImportFrom)]
                up |= {name for m in found if m in MODULES and floor(m) > floor(name)}
    assert up == {"tapegraph.kinds"}


def test_core_knows_no_engine():
    known = []
    for name in MODULES:
        # One module loads the engines, and only when one is asked for.
        lazily = name == "tapegraph.engines.registry"
        found = imports(name, inside_functions=not lazily)
        if not inside(name, (*ENGINES, *COMMANDS)):
            known += [(name, m) for m in found if inside(m, (*ENGINES, *COMMANDS, "tensorflow"))]
    assert known == []


def test_engines_do_not_know_each_other():
    known = []
    for engine, forbidden in (
        ("tapegraph.fallback", ("tapegraph.lowering", "tensorflow")),
        ("tapegraph.lowering", ("tapegraph.fallback",)),
    ):
        for name in MODULES:
            found = imports(name, inside_functions=True) if inside(name, (engine,)) else ()
            known += [(name, m) for m in found if inside(m, forbidden)]
    assert known == []


def test_rooms_of_the_graph_engine_stand_apart():
    rows, backward, steps = (f"tapegraph.lowering.{r}" for r in ("rows", "backward", "steps"))
    emitting = "tapegraph.lowering.translate"
    known = []
    for room, forbidden in (
        (rows, (backward, steps, emitting)),
        (backward, (steps,)),
        (steps, (backward,)),
        ("tapegraph.lowering.export", (backward, steps)),
        (emitting, (backward, steps)),
    ):
        for name in MODULES:
            found = imports(name, inside_functions=True) if inside(name, (room,)) else ()
            known += [(name, m) for m in found if inside(m, forbidden)]
    assert known == []


def test_imports_have_no_circle():
    graph = {name: imports(name, inside_functions=False) & set(MODULES) for name in MODULES}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_types_have_one_circle_of_operations_and_what_they_return():
    graph = {
        name: imports(name, inside_functions=False, typed=True) & set(MODULES) for name in MODULES
    }
    graphlib.TopologicalSorter(graph | {"tapegraph.kinds": ()}).prepare()  # there is no other

    def reached(start: str) -> set[str]:
        found, last = {start}, set()
        while found != last:
            last, found = found, found.union(*(graph[name] for name in found))
        return found

    circle = {m for m in reached("tapegraph.kinds") if "tapegraph.kinds" in reached(m)}
    rooms = {m.split(".")[1] for m in circle}
    assert rooms == {"kinds", "ops", "tensors", "differentiation"}


@pytest.mark.parametrize(("backend", "most"), [("native", 6), ("tensorflow", 5)])
def test_a_backward_enters_few_rooms_and_climbs_seldom(backend, most):
    if backend == "tensorflow":
        pytest.importorskip("tensorflow")
    name_of = {str(path): name for name, path in MODULES.items()}
    rooms, climbs = set(), []

    def profile(frame, event, arg):
        called = name_of.get(frame.f_code.co_filename)
        if event != "call" or called is None:
            return
        rooms.add(MODULES[called].parent)
        while (frame := frame.f_back) and frame.f_code.co_filename not in name_of:
            pass
        caller = name_of[frame.f_code.co_filename] if frame else called
        if floor(called) > floor(caller):
            climbs.append((caller, called))

    w = tapegraph.param(np.ones((4, 3)))
    x = np.ones((2, 4))
    with tapegraph.use_backend(backend):
        for warm in (False, False, True):
            loss = tapegraph.sum(tapegraph.tanh(x @ w) ** 2 * w.sum())
            sys.setprofile(profile if warm else None)
            try:
                loss.backward()
            finally:
                sys.setprofile(None)
    assert tapegraph.last_backward().backend == backend
    assert len(rooms) <= most, rooms
    assert len(climbs) <= 4, climbs


# ------------------------------------------------------------------ docstrings


@pytest.mark.parametrize("name", [n for n, path in MODULES.items() if ">>> " in path.read_text()])
def test_docstring_examples_are_true(name):
    if inside(name, ("tapegraph.exporting", "tapegraph.lowering")):
        pytest.importorskip("tensorflow")
    if name in ("tapegraph.optim.implicit", "tapegraph.optim.minimizers"):
        pytest.importorskip("scipy")
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    known = {"np": np, "tg": tapegraph}  # as every example takes for granted
    module = importlib.import_module(name)
    result = doctest.testmod(module, extraglobs=known, optionflags=flags)
    assert result.failed == 0


def test_a_checkout_makes_two_sibling_folders_importable_and_nothing_else(run_python):
    done = run_python(
        """
        import importlib, os
        import tapegraph
        for name in ("fallback", "lowering", "fallback.sweep", "lowering.rows"):
            importlib.import_module(f"tapegraph.{name}")
        importable = []
        for name in os.listdir():
            module = name.removesuffix(".py")
            try:
                importlib.import_module(f"tapegraph.{module}")
            except ModuleNotFoundError:
                continue
            importable.append(module)
        print(sorted(importable), "lowering" in dir(tapegraph), len(tapegraph.__path__))
        """
    )
    assert done.stdout == "['fallback', 'lowering'] True 1\n", done.stderr


# What has one meaning in several rooms: their tables, and each engine's form of an operation or a
# derivative.
OF_EACH_ROOM = {
    *("Rule", "Row", "VJPS", "RECORDED", "LOWERINGS"),
    *("ENGINE", "gradients", "export", "function"),
    "permuted",
    *("divide", "log", "power", "sigmoid"),  # of Python's floats
    *("linearize", "leaves"),  # of what is recorded, and JAX's
    *("array", "to_numpy"),  # which other libraries look for
}


def public_words(tree: ast.Module) -> set[str]:
    """Return what a module defines, without underscores and variables of types."""
    words = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            words.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            made_by = getattr(getattr(node.value, "func", None), "id", "")
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if made_by not in ("TypeVar", "ParamSpec"):
                stored = [x for t in targets for x in ast.walk(t) if isinstance(x, ast.Name)]
                words |= {x.id for x in stored if isinstance(x.ctx, ast.Store)}
    return {word for word in words if not word.startswith("_")}


def test_a_public_word_means_one_thing():
    homes: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        # Which have autograd's names, and the standard's.
        if ".autograd" not in name and name != "tapegraph.array_api":
            for word in public_words(parsed(path)):
                homes.setdefault(word, set()).add(name)
    several = {word: found for word, found in homes.items() if len(found) > 1}
    assert several.keys() == OF_EACH_ROOM, several
