"""Minima over complex manifolds, found by pymanopt with autograd's gradients and Hessians."""

import autograd.numpy as np
import numpy
import pymanopt
import pytest
from pymanopt.manifolds import (
    ComplexCircle,
    ComplexGrassmann,
    Euclidean,
    Product,
    PSDFixedRankComplex,
)
from pymanopt.optimizers import ConjugateGradient, TrustRegions


def hermitian(n):
    parts = numpy.random.default_rng(n).normal(size=(2, n, n))
    matrix = parts[0] + 1j * parts[1]
    return matrix + matrix.conj().T


@pytest.mark.parametrize("optimizer", [ConjugateGradient, TrustRegions])
def test_the_dominant_subspace_of_a_hermitian_matrix(optimizer):
    matrix = hermitian(6) + 10.0 * numpy.eye(6)
    manifold = ComplexGrassmann(6, 2)

    @pymanopt.function.autograd(manifold)
    def cost(x):
        return -np.real(np.trace(np.conj(x.T) @ matrix @ x))

    found = optimizer(verbosity=0, max_iterations=300).run(pymanopt.Problem(manifold, cost)).point
    vectors = numpy.linalg.eigh(matrix)[1][:, -2:]
    projection = vectors @ vectors.conj().T
    assert numpy.abs(found @ found.conj().T - projection).max() < 1e-4


@pytest.mark.parametrize("manifold", [ComplexCircle(5), PSDFixedRankComplex(5, 2)])
def test_gradient_and_hessian_against_differences(manifold):
    matrix = hermitian(5)

    @pymanopt.function.autograd(manifold)
    def cost(x):
        return np.real(np.sum(np.conj(x) * (matrix @ x))) + np.sum(np.abs(x) ** 4)

    problem = pymanopt.Problem(manifold, cost)
    x = manifold.random_point()
    v = manifold.random_tangent_vector(x)
    step = 1e-5
    ends = (x + step * v, x - step * v)
    gradient = problem.euclidean_gradient
    slope = (cost(ends[0]) - cost(ends[1])) / (2 * step)
    along = numpy.real(numpy.vdot(gradient(x), v))
    assert numpy.abs(along - slope) < 1e-6 * (1.0 + abs(slope))
    bend = (gradient(ends[0]) - gradient(ends[1])) / (2 * step)
    assert numpy.abs(problem.euclidean_hessian(x, v) - bend).max() < 1e-6 * (
        1.0 + numpy.abs(bend).max()
    )


def test_a_product_of_a_real_and_a_complex_manifold():
    matrix = hermitian(4)
    manifold = Product([ComplexGrassmann(4, 1), Euclidean(3)])

    @pymanopt.function.autograd(manifold)
    def cost(x, a):
        shift = np.sum((a - np.arange(3.0)) ** 2)
        return np.real(np.sum(np.conj(x) * (matrix @ x))) * (1.0 + 0.1 * shift) + 50.0 * shift

    optimizer = ConjugateGradient(verbosity=0, max_iterations=500, min_gradient_norm=1e-8)
    x, a = optimizer.run(pymanopt.Problem(manifold, cost)).point
    lowest = numpy.linalg.eigvalsh(matrix)[0]
    assert numpy.abs(a - numpy.arange(3.0)).max() < 1e-4
    assert abs(numpy.real(numpy.vdot(x, matrix @ x)) - lowest) < 1e-6
