"""PennyLane's circuits, classical gradients and optimizers, with autograd and with the drop-in."""

from __future__ import annotations

import autograd
import autograd.numpy as anp
import numpy
import pennylane as qml
import pytest
from beside import same
from pennylane import numpy as np
from pennylane.exceptions import NonDifferentiableError

METHODS = ("parameter-shift", "adjoint", "backprop", "finite-diff", "hadamard")
X = np.array([0.543, -0.654, 0.321], requires_grad=True)


def circuit(method, wires=2, **options):
    """Return a circuit of three angles with one expectation value."""
    device = qml.device("default.qubit", wires=wires + 1)

    @qml.qnode(device, diff_method=method, **options)
    def run(x):
        qml.RX(x[0], wires=0)
        qml.CRY(x[1], wires=[0, 1])
        qml.Rot(x[2], x[0] * x[1], 0.3, wires=1)
        qml.CNOT(wires=[0, 1])
        return qml.expval(qml.Z(0) @ qml.X(1))

    return run


def probabilities(method):
    device = qml.device("default.qubit", wires=3)

    @qml.qnode(device, diff_method=method)
    def run(x):
        qml.RX(x[0], wires=0)
        qml.RY(x[1], wires=1)
        qml.CNOT(wires=[0, 1])
        qml.RZ(x[2], wires=1)
        qml.RX(x[2], wires=1)
        return qml.probs(wires=[0, 1])

    return run


@pytest.mark.parametrize("method", METHODS)
def test_gradient_of_a_circuit(method):
    f = circuit(method)
    same(f(X), qml.grad(f)(X), rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_gradient_through_a_circuit(method):
    f = circuit(method)
    found = autograd.value_and_grad(lambda x: anp.sin(f(anp.tanh(x))) ** 2 + anp.sum(x**2))(X)
    same(*found, rtol=1e-6)


@pytest.mark.parametrize("method", [m for m in METHODS if m != "adjoint"])
def test_jacobian_of_probabilities(method):
    same(qml.jacobian(probabilities(method))(X), rtol=1e-6)


@pytest.mark.parametrize("method", ["backprop", "parameter-shift"])
def test_second_derivatives(method):
    f = circuit(method, max_diff=2)
    hessian = qml.jacobian(qml.grad(f))(X)
    steps = [qml.grad(f)(X + h) - qml.grad(f)(X - h) for h in 1e-5 * numpy.eye(3)]
    numpy.testing.assert_allclose(hessian, numpy.array(steps) / 2e-5, atol=1e-8)
    assert numpy.abs(hessian).min() > 1e-3


@pytest.mark.parametrize("method", ["backprop", "parameter-shift", "adjoint"])
def test_several_results(method):
    device = qml.device("default.qubit", wires=2)

    @qml.qnode(device, diff_method=method)
    def run(x, y):
        qml.RX(x, wires=0)
        qml.RY(y[0], wires=1)
        qml.CRX(y[1], wires=[0, 1])
        return qml.expval(qml.Z(0)), qml.expval(qml.Y(1))

    def joined(x, y):
        return anp.hstack(run(x, y))

    x, y = np.array(0.4), np.array([0.3, -0.8])
    found = qml.jacobian(joined)(x, y)
    same(*found, *qml.grad(lambda x, y: anp.sum(joined(x, y) ** 2))(x, y))


def test_batches_of_angles():
    f = probabilities("backprop")
    angles = np.array(numpy.linspace(0.1, 1.0, 12).reshape(3, 4))
    same(qml.jacobian(lambda a: f(a)[:, 0])(angles))


def test_states_and_matrices():
    device = qml.device("default.qubit", wires=2)

    @qml.qnode(device, diff_method="backprop")
    def state(x):
        qml.RY(x[0], wires=0)
        qml.CRX(x[1], wires=[0, 1])
        return qml.state()

    def overlap(x):
        psi = state(x)
        return anp.real(anp.sum(psi * anp.conj(psi[::-1]))) + anp.abs(psi[1]) ** 2

    same(qml.grad(overlap)(X), *map(numpy.real, (state(X),)))
    same_matrix = autograd.grad(lambda x: anp.real(anp.trace(qml.RX(x, 0).matrix())))(0.7)
    assert same_matrix == pytest.approx(-numpy.sin(0.35), rel=1e-12)


def test_hamiltonians_and_their_coefficients():
    device = qml.device("default.qubit", wires=2)

    @qml.qnode(device)
    def run(c, x):
        qml.RX(x[0], wires=0)
        qml.RY(x[1], wires=1)
        qml.CNOT(wires=[0, 1])
        return qml.expval(qml.dot(c, [qml.Z(0), qml.X(0) @ qml.X(1)]))

    same(*qml.grad(run)(np.array([0.7, -0.4]), np.array([0.3, 0.9])))


def test_templates():
    device = qml.device("default.qubit", wires=3)

    @qml.qnode(device, diff_method="backprop")
    def run(w, x):
        qml.AngleEmbedding(x, wires=range(3))
        qml.StronglyEntanglingLayers(w, wires=range(3))
        return qml.expval(qml.Z(0))

    w = numpy.random.default_rng(3).normal(size=(2, 3, 3))
    x = np.array([0.1, 0.5, 0.9], requires_grad=False)
    (found,) = [qml.grad(run)(np.array(w, requires_grad=True), x)]
    same(found)


OPTIMIZERS = {
    "gradient_descent": lambda: qml.GradientDescentOptimizer(0.2),
    "adam": lambda: qml.AdamOptimizer(0.1),
    "adagrad": lambda: qml.AdagradOptimizer(0.2),
    "momentum": lambda: qml.MomentumOptimizer(0.1),
    "nesterov": lambda: qml.NesterovMomentumOptimizer(0.1),
    "rmsprop": lambda: qml.RMSPropOptimizer(0.05),
    "natural_gradient": lambda: qml.QNGOptimizer(0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    f = circuit("parameter-shift")
    optimizer, x, costs = OPTIMIZERS[name](), X, []
    for _ in range(4):
        x, cost = optimizer.step_and_cost(f, x)
        costs.append(cost)
    assert costs[-1] < costs[0]
    same(x, costs, rtol=1e-6)


def test_rotosolve():
    device = qml.device("default.qubit", wires=2)

    @qml.qnode(device)
    def run(angles):
        qml.RX(angles[0], wires=0)
        qml.RY(angles[1], wires=1)
        qml.CNOT(wires=[0, 1])
        return qml.expval(qml.Z(0) @ qml.Z(1))

    optimizer = qml.RotosolveOptimizer()
    x = np.array([0.4, 0.3], requires_grad=True)
    for _ in range(2):
        x = optimizer.step(run, x, nums_frequency={"angles": {(0,): 1, (1,): 1}})
    same(run(x), rtol=1e-6)


@pytest.mark.parametrize("name", ["gradient_descent", "adam", "nesterov"])
def test_optimizers_of_several_arguments(name):
    def cost(x, y, scale=1.0):
        return anp.sum((x - 1.0) ** 2) * scale + anp.sum(anp.sin(y) ** 2)

    optimizer = OPTIMIZERS[name]()
    x, y = np.array([0.2, 0.4]), np.array([0.5], requires_grad=False)
    (x, y), value = optimizer.step_and_cost(cost, x, y, scale=2.0)
    assert y.tolist() == [0.5]
    same(x, value)


def test_nothing_to_train():
    frozen = np.array([0.2, 0.4], requires_grad=False)
    with pytest.warns(UserWarning):
        value = qml.GradientDescentOptimizer(0.1).compute_grad(
            lambda x: anp.sum(x**2), (frozen,), {}
        )
    assert value[0] == ()


# Classical gradients


def test_classical_gradients():
    def f(x, y):
        return anp.sin(x) * anp.cos(y) + x * y**2

    x, y = np.array(0.5), np.array(0.2)
    gradient = qml.grad(f)
    by_x = numpy.cos(0.5) * numpy.cos(0.2) + 0.04
    by_y = -numpy.sin(0.5) * numpy.sin(0.2) + 0.2
    numpy.testing.assert_allclose(gradient(x, y), [by_x, by_y], rtol=1e-12)
    assert gradient.forward == pytest.approx(numpy.sin(0.5) * numpy.cos(0.2) + 0.02, rel=1e-12)
    assert qml.grad(f, argnums=1)(x, y) == pytest.approx(by_y, rel=1e-12)
    frozen = np.array(0.2, requires_grad=False)
    assert qml.grad(f)(x, frozen) == pytest.approx(by_x, rel=1e-12)
    with pytest.raises(NonDifferentiableError, match="non-differentiable"):
        qml.grad(f, argnums=1)(x, frozen)


def test_classical_jacobians():
    a = numpy.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]])
    same(qml.jacobian(lambda x: anp.dot(a, anp.tanh(x)))(X))
    same(qml.jacobian(lambda x: anp.stack([x * anp.roll(x, 1), anp.exp(x)]))(X))


@pytest.mark.parametrize("kind", ["list", "tuple", "dict", "array"])
def test_classical_structures(kind):
    given = {"list": [0.3, 0.7], "tuple": (0.3, 0.7), "dict": {"a": 0.3, "b": 0.7}}.get(
        kind, numpy.array([0.3, 0.7])
    )
    keys = ("a", "b") if kind == "dict" else (0, 1)
    found = qml.grad(lambda p: p[keys[0]] ** 2 * anp.sin(p[keys[1]]), argnums=0)(given)
    same(*(found[key] for key in keys))


def test_independence():
    independent = qml.math.is_independent
    assert not independent(lambda x: anp.sum(x**2), "autograd", (numpy.ones(3),))
    assert independent(lambda x: anp.sum(numpy.ones(3)), "autograd", (numpy.ones(3),))
    assert not independent(lambda x, y: (1.0, x * 2.0), "autograd", (0.3, 0.4))


def test_functions_of_any_library():
    def f(x):
        assert qml.math.get_interface(x) == "autograd" and qml.math.requires_grad(x)
        assert qml.math.in_backprop(x) and isinstance(qml.math.toarray(x), numpy.ndarray)
        y = qml.math.stack([x[0], x[1] ** 2, qml.math.sum(x)])
        z = qml.math.dot(y, qml.math.cast(x, "float64")) + qml.math.norm(y)
        z = z + qml.math.concatenate([x, y])[4] * qml.math.where(x > 0.0, x, -x)[1]
        matrix = qml.math.reshape(qml.math.kron(x, y), (3, 3))
        z = z + qml.math.trace(matrix @ qml.math.T(matrix)) + qml.math.einsum("i,i->", x, y)
        z = z + qml.math.take(y, [2])[0] + qml.math.block_diag([matrix, matrix])[4, 4]
        return z + qml.math.unwrap([x])[0][0]

    same(qml.grad(f)(X))


def test_fidelity():
    def state(x):
        return qml.math.stack([anp.cos(x) + 0j, anp.sin(x) * anp.exp(1j * x)])

    def f(x):
        rho, sigma = (qml.math.dm_from_state_vector(state(a)) for a in (x, 0.4))
        return qml.math.fidelity(0.7 * rho + 0.15 * numpy.eye(2), 0.9 * sigma + 0.05 * numpy.eye(2))

    same(f(0.9), qml.grad(f, argnums=0)(0.9), rtol=1e-6)


def test_metric_tensor():
    found = qml.metric_tensor(circuit("parameter-shift"), approx="block-diag")(X)
    same(found[0] if isinstance(found, tuple) else found)


def test_transforms():
    f = circuit("backprop")
    shifted = qml.gradients.param_shift(f)(X)
    numpy.testing.assert_allclose(shifted, qml.grad(f)(X), atol=1e-10)
    same(shifted)
