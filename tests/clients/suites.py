"""The clients: packages that use autograd, which of their tests are run, and what is left out."""

from __future__ import annotations

from typing import NamedTuple


class Client(NamedTuple):
    """A package whose tests are run with autograd, and with the drop-in in its place.

    :ivar name, version: Str of the distribution.
    :ivar title: What the table calls it, where that is not the name.
    :ivar wheel: It comes from its wheel, with `REQUIREMENTS`; there are no tests to unpack.
    :ivar folders: What is unpacked of the source distribution.
    :ivar tests: What pytest is given, in the folder that holds the package's ``tests``.
    :ivar ignored: Files of tests that are not run; the note says why.
    :ivar conftest: Its own ``conftest.py`` is loaded; the note says why not.
    :ivar own: The source distribution has no tests of derivatives: `tests/clients/own` has some.
    :ivar note: What a reader of the table should know.
    """

    name: str
    version: str
    tests: tuple[str, ...] = ("tests",)
    ignored: tuple[str, ...] = ()
    conftest: bool = True
    own: bool = False
    note: str = ""
    title: str = ""
    wheel: bool = False
    folders: tuple[str, ...] = ("tests",)

    @property
    def label(self) -> str:
        """What it is called, here and in the table."""
        return self.title or self.name


CLIENTS = (
    Client(
        "autograd",
        "1.9.1",
        ignored=("tests/profiling.py",),
    ),
    Client(
        "autograd",
        "1.9.1",
        tests=("own/autograd_examples.py",),
        own=True,
        title="autograd's examples",
        folders=("examples",),
        note=(
            "those that download nothing, with four steps of their optimizers "
            "(`tests/clients/own`): what they find and print is what they do with autograd"
        ),
    ),
    Client(
        "autograd-gamma",
        "0.5.0",
        tests=("own/gamma_checks.py",),
        own=True,
        note=(
            "whose source distribution has no tests: each of its functions against differences of "
            "SciPy's (`tests/clients/own`)"
        ),
    ),
    Client(
        "ceviche",
        "0.1.3",
        tests=("own/ceviche_checks.py",),
        own=True,
        note=(
            "(photonics) whose source distribution has no tests: its solvers of Maxwell's "
            "equations and its sparse primitives against finite differences"
        ),
    ),
    Client("grcwa", "0.1.2", note="(photonics) all of its tests"),
    Client(
        "legume-gme",
        "1.0.3",
        tests=("tests/test_primitives.py", "tests/test_shapes.py", "own/legume_checks.py"),
        own=True,
        note=(
            "(photonic crystals) its plane-wave expansion against finite differences, and its own "
            "tests of primitives and shapes. Its other tests read files that the source "
            "distribution lacks, but for the one of the guided-mode expansion's gradient: autograd "
            "itself fails that with this NumPy, and the drop-in does, since legume tells a box by "
            "its class's name in full"
        ),
    ),
    Client(
        "PennyLane",
        "0.45.1",
        tests=("own/pennylane_checks.py",),
        own=True,
        wheel=True,
        note=(
            "(quantum circuits) programs of our own (`tests/clients/own`), held against what they "
            "give with autograd: circuits by parameter shifts, adjoints, backpropagation, "
            "differences and Hadamard tests, second derivatives, optimizers and classical "
            "gradients. Two more of them fail with autograd 1.9, which PennyLane does not allow "
            "yet, and not with the drop-in"
        ),
    ),
    Client("mici", "0.4.1", tests=("tests/test_autodiff.py",), note="its tests of derivatives"),
    Client(
        "pymanopt",
        "2.2.1",
        tests=(
            "tests/backends/test_autograd.py",
            "tests/manifolds/test_fixed_rank.py",
            "tests/manifolds/test_grassmann.py",
            "tests/manifolds/test_product.py",
            "tests/manifolds/test_sphere.py",
            "tests/manifolds/test_stiefel.py",
            "tests/optimizers",
            "tests/test_problem_backend_interface.py",
            "own/pymanopt_checks.py",
        ),
        conftest=False,
        own=True,
        note=(
            "(optimization on manifolds) its tests of the autograd backend, of optimizers and of "
            "the manifolds that are differentiated there, and gradients, Hessians and minima over "
            "complex manifolds (`tests/clients/own`). Its `conftest.py`, which imports TensorFlow "
            "and PyTorch, is left out"
        ),
    ),
    Client("reliability", "0.9.0"),
    Client(
        "tidy3d",
        "2.12.1",
        tests=("own/tidy3d_checks.py",),
        own=True,
        wheel=True,
        note=(
            "(photonics) programs of our own (`tests/clients/own`), held against what they give "
            "with autograd: its plugin for inverse design, and models with traced parameters"
        ),
    ),
)

# What the tests need besides the clients, and the clients that come from their wheels: of these
# first, for PennyLane asks for an older autograd.
REQUIREMENTS = (
    "matplotlib",
    "mplcursors",
    "multiprocess",
    "numpy",
    "pandas",
    "pennylane==0.45.1",
    "pytest",
    "scipy",
    "tidy3d==2.12.1",
    "xarray",
)

# The reason of a test that may pass as well.
LAST_BITS = "the last bits of a machine decide"
# Tests that fail with the drop-in and stay so, and why, by the beginning of their names.
KNOWN = {
    "autograd": {
        "tests/test_linalg.py::test_pinv": (
            "it calls `numpy.linalg._dot`, a private name of autograd's, and passes where it is "
            "given"
        ),
        "tests/test_fft.py::test_rfftn_odd_not_implemented": (
            "expects an error of odd lengths, which have derivatives here"
        ),
        "tests/test_misc.py::test_const_graph": (
            "counts the calls of a function that `const_graph` has recorded; here it is called"
        ),
        "tests/test_systematic.py::test_max": (
            "the largest of complex numbers, which NumPy tells by their real parts, is refused"
        ),
        "tests/test_systematic.py::test_min": (
            "the smallest of complex numbers, which NumPy tells by their real parts, is refused"
        ),
        "tests/test_wrappers.py::test_dtypes": "float16 is refused",
        "tests/test_wrappers.py::test_custom_where_dtypes": (
            "autograd's `np.where` of Python numbers and lists gives such; here it is NumPy's own"
        ),
        "tests/test_wrappers.py::test_wrapped_name_and_docs": (
            "compares the first words of a docstring"
        ),
    },
    "autograd's examples": {
        "own/autograd_examples.py::test_example[print_trace]": (
            "it prints the names and the number of the operations inside"
        ),
        "own/autograd_examples.py::test_example[bayesian_optimization]": (
            f"{LAST_BITS}: which of several equal points comes next"
        ),
    },
    "tidy3d": {
        "own/tidy3d_checks.py::test_a_dispersive_medium": (
            "it gives a traced pole to NumPy's own `np.array`, which makes an array of objects of "
            "autograd's box; here that is an error"
        ),
    },
    "reliability": {
        "tests/test_ALT_fitters.py::test_Fit_Exponential_Power": (
            f"{LAST_BITS}: where an optimizer stops on a flat likelihood. Autograd's own gradient, "
            "moved up by one unit in the last place, fails it too, and both end at a higher "
            "likelihood than the one that is expected"
        ),
    },
}


def known(client: str, test: str) -> str | None:
    """Return why a test is expected to fail with the drop-in, or None."""
    reasons = KNOWN.get(client, {})
    return next((why for start, why in reasons.items() if test.startswith(start)), None)
