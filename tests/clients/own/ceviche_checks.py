"""ceviche's solvers of Maxwell's equations, which has no tests, against finite differences.

Run by ``python -m tests.clients`` with autograd and with the drop-in under that name.
"""

import autograd.numpy as np
import ceviche
import ceviche.optimizers
import numpy
import pytest
from autograd import grad, holomorphic_grad, value_and_grad
from ceviche import primitives
from ceviche.constants import C_0

SHAPE = (14, 12)
STEP = 1e-7
OMEGA = 2 * numpy.pi * C_0 / 1.55e-6
PML = [3, 3]
MIDDLE = (slice(5, 9), slice(4, 8))
SOURCE = numpy.zeros(SHAPE)
SOURCE[4, 5] = 1e6
PROBE = numpy.zeros(SHAPE)
PROBE[9, 4:8] = [1.0, 2.0, 0.5, 1.5]


def permittivity(rho):
    """The design region in the middle of a slab, without an assignment."""
    slab = numpy.full(SHAPE, 2.0)
    inside = numpy.zeros(SHAPE)
    inside[MIDDLE] = 1.0
    places = numpy.zeros(SHAPE, int)
    places[MIDDLE] = numpy.arange(16).reshape(4, 4)
    return slab + inside * rho[places]


def design():
    return numpy.linspace(0.5, 2.5, 16)


def differences(f, x, places, step=1e-5):
    found = []
    for place in places:
        dx = numpy.zeros(x.shape, x.dtype)
        dx[place] = step
        found.append((f(x + dx) - f(x - dx)) / (2 * step))
    return numpy.array(found)


def conjugate_gradient(f, x, places, step=1e-5):
    """The derivative by the real part minus i times the one by the imaginary part."""
    return differences(f, x, places, step) - 1j * (
        numpy.array(
            [differences(lambda t, p=p: f(x + 1j * t), 0 * x.real, [p], step)[0] for p in places]
        )
    )


@pytest.mark.parametrize("component", [0, 1, 2])
@pytest.mark.parametrize("solver", ["fdfd_ez", "fdfd_hz"])
def test_intensity(solver, component):
    simulation = getattr(ceviche, solver)(OMEGA, STEP, permittivity(design()), PML)
    scale = 1.0 / numpy.max(numpy.abs(simulation.solve(SOURCE)[component])) ** 2

    def loss(rho):
        simulation.eps_r = permittivity(rho)
        return scale * np.sum(np.abs(simulation.solve(SOURCE)[component] * PROBE) ** 2)

    value, found = value_and_grad(loss)(design())
    assert value == pytest.approx(loss(design()))
    expected = differences(loss, design(), range(16))
    numpy.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7 * max(abs(expected)))


def test_overlap_with_a_phase():
    simulation = ceviche.fdfd_ez(OMEGA, STEP, permittivity(design()), PML, bloch_phases=[0.3, 0.1])
    mode = PROBE * numpy.exp(0.7j * numpy.arange(SHAPE[1]))

    def loss(rho):
        simulation.eps_r = permittivity(rho)
        field = simulation.solve(SOURCE)[2]
        overlap = np.sum(np.conj(field) * mode)
        return np.real(overlap) + np.angle(overlap)

    expected = differences(loss, design(), range(16))
    found = grad(loss)(design())
    numpy.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7 * max(abs(expected)))


def test_absorption():
    """By a complex permittivity."""
    simulation = ceviche.fdfd_ez(OMEGA, STEP, permittivity(design()), PML)

    def loss(rho):
        simulation.eps_r = permittivity(rho)
        return np.sum(np.abs(simulation.solve(SOURCE)[2] * PROBE) ** 2)

    rho = design() + 0.1j * design()[::-1]
    places = [0, 5, 15]
    expected = conjugate_gradient(loss, rho, places)
    numpy.testing.assert_allclose(grad(loss)(rho)[places], expected, rtol=1e-5)


def test_sidebands():
    """Several frequencies, coupled by a modulation."""
    rng = numpy.random.default_rng(0)
    delta, phi = rng.uniform(0.1, 0.3, (1, *SHAPE)), rng.uniform(0.0, 3.0, (1, *SHAPE))

    def loss(parts):
        scale, turn = parts
        simulation = ceviche.fdfd_mf_ez(
            OMEGA,
            STEP,
            permittivity(design()),
            OMEGA / 5,
            scale * delta,
            phi + turn * delta,
            1,
            PML,
        )
        source = numpy.stack([0 * SOURCE, SOURCE, 0 * SOURCE])
        return np.sum(np.abs(simulation.solve(source)[2][2] * PROBE) ** 2)

    parts = numpy.array([1.0, 0.5])
    numpy.testing.assert_allclose(grad(loss)(parts), differences(loss, parts, [0, 1]), rtol=1e-5)


@pytest.fixture
def sparse():
    rng = numpy.random.default_rng(1)
    n = 6
    away = rng.integers(0, n, (2, 10))
    indices = numpy.concatenate([numpy.stack([numpy.arange(n)] * 2), away], axis=1)
    entries = rng.normal(size=16) + 1j * rng.normal(size=16)
    entries[:n] += 4.0
    x = rng.normal(size=n) + 1j * rng.normal(size=n)
    return entries, indices, x


@pytest.mark.parametrize("function", [primitives.sp_mult, primitives.sp_solve])
@pytest.mark.parametrize("argument", [0, 2])
def test_sparse_primitives(sparse, function, argument):
    weights = numpy.exp(1j * numpy.arange(6))

    def loss(value):
        arguments = [value if i == argument else x for i, x in enumerate(sparse)]
        out = function(*arguments)
        return np.sum(np.abs(out) ** 4) + np.real(np.sum(weights * out))

    value = sparse[argument]
    places = range(value.size)
    expected = conjugate_gradient(loss, value, places)
    numpy.testing.assert_allclose(grad(loss)(value), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("function", [primitives.sp_mult, primitives.sp_solve])
@pytest.mark.parametrize("argument", [0, 2])
@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_jacobians_of_holomorphic_functions(sparse, function, argument, mode):
    """By both modes; ceviche's own stacks the products with the unit vectors."""

    def outcome(value):
        return function(*(value if i == argument else x for i, x in enumerate(sparse)))

    value = sparse[argument]
    places = range(value.size)
    expected = differences(outcome, value, places).T
    if mode == "forward":
        found = ceviche.jacobian(outcome, mode="forward")(value)
        # ceviche joins the columns by 1 and by i as a - i b; of a holomorphic one these are 2 a.
        numpy.testing.assert_allclose(found, 2 * expected, rtol=1e-5, atol=1e-7)
    else:
        found = numpy.stack(
            [holomorphic_grad(lambda v, k=k: outcome(v)[k])(value) for k in range(6)]
        )
        numpy.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_jacobian_of_intensities(mode):
    simulation = ceviche.fdfd_ez(OMEGA, STEP, permittivity(design()), PML)

    def intensities(rho):
        simulation.eps_r = permittivity(rho)
        return np.abs(simulation.solve(SOURCE)[2][9, 4:8]) ** 2

    found = ceviche.jacobian(intensities, mode=mode)(design())
    expected = differences(intensities, design(), range(16)).T
    numpy.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6 * abs(expected).max())


def test_in_time():
    def energy(rho, steps=12):
        simulation = ceviche.fdtd(permittivity(rho)[:, :, None], 5e-8, [0, 0, 0])
        total = 0.0
        for t in range(steps):
            fields = simulation.forward(Jz=SOURCE[:, :, None] * numpy.exp(-((t - 4) ** 2) / 8))
            total = total + np.sum(fields["Ez"][:, :, 0] * PROBE)
        return total

    expected = differences(energy, design(), range(16))
    found = grad(energy)(design())
    numpy.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * max(abs(expected)))


def test_inverse_design():
    """More light at the probe, by ceviche's optimizer."""
    simulation = ceviche.fdfd_ez(OMEGA, STEP, permittivity(design()), PML)

    def loss(rho):
        simulation.eps_r = permittivity(rho)
        return np.sum(np.abs(simulation.solve(SOURCE)[2] * PROBE) ** 2)

    scale = loss(design())
    _, values = ceviche.optimizers.adam_optimize(
        lambda rho: loss(rho) / scale,
        design(),
        grad(lambda rho: loss(rho) / scale),
        Nsteps=10,
        step_size=5e-2,
        bounds=[0.0, 4.0],
        direction="max",
        verbose=False,
    )
    assert values[0] == pytest.approx(1.0) and values[-1] > 1.1
