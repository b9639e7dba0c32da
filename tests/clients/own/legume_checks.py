"""legume's plane-wave expansion, whose tests take no derivatives, against finite differences.

Run by ``python -m tests.clients`` with autograd and with the drop-in under that name.
"""

import autograd.numpy as np
import legume
import numpy
import pytest
from autograd import grad, value_and_grad

KPOINTS = numpy.array([[0.3, 0.9], [0.7, 0.2]])
RADIUS_AND_PERMITTIVITIES = numpy.array([0.25, 9.0, 1.5])


@pytest.fixture(autouse=True)
def backend():
    legume.set_backend("autograd")
    yield
    legume.set_backend("numpy")


def bands(p, polarization, shape=legume.Circle):
    """The lowest frequencies of a crystal of holes in a slab, and its modes."""
    layer = legume.ShapesLayer(legume.Lattice("hexagonal"))
    layer.eps_b = p[1]
    if shape is legume.Circle:
        layer.add_shape(legume.Circle(eps=p[2], r=p[0]))
    else:
        r = p[0]
        layer.add_shape(legume.Poly(eps=p[2], x_edges=[-r, r, 0.0], y_edges=[-0.2, -0.1, 0.3]))
    crystal = legume.PlaneWaveExp(layer, gmax=2)
    crystal.run(kpoints=KPOINTS, pol=polarization, numeig=4)
    return crystal.freqs, crystal.eigvecs


def differences(f, x, step=1e-5):
    moved = step * numpy.eye(x.size)
    return [(f(x + dx) - f(x - dx)) / (2 * step) for dx in moved]


@pytest.mark.parametrize("shape", [legume.Circle, legume.Poly])
@pytest.mark.parametrize("polarization", ["tm", "te"])
def test_frequencies(polarization, shape):
    def loss(p):
        freqs, _ = bands(p, polarization, shape)
        return np.sum(freqs[:, 1:3] * numpy.array([[1.0, 2.0], [0.5, -1.0]]))

    value, found = value_and_grad(loss)(RADIUS_AND_PERMITTIVITIES)
    assert value == pytest.approx(loss(RADIUS_AND_PERMITTIVITIES))
    numpy.testing.assert_allclose(found, differences(loss, RADIUS_AND_PERMITTIVITIES), rtol=1e-4)


@pytest.mark.parametrize("polarization", ["tm", "te"])
def test_modes(polarization):
    def loss(p):
        _, vectors = bands(p, polarization)
        return np.sum(np.abs(vectors[0][:5, 1]) ** 2 * numpy.arange(1.0, 6.0))

    found = grad(loss)(RADIUS_AND_PERMITTIVITIES)
    expected = differences(loss, RADIUS_AND_PERMITTIVITIES)
    numpy.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-8)


def test_width_of_a_gap():
    def gap(p):
        freqs, _ = bands([p[0], 12.0, 1.0], "te")
        return np.min(freqs[:, 1]) - np.max(freqs[:, 0])

    p = numpy.array([0.3])
    found = grad(gap)(p)
    numpy.testing.assert_allclose(found, differences(gap, p), rtol=1e-4)
