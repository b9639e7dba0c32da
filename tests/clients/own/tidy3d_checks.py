"""tidy3d's plugin for inverse design, and its traced models, with autograd and with the drop-in."""

from __future__ import annotations

import autograd.numpy as np
import numpy
import pytest
import tidy3d as td
import tidy3d.plugins.autograd as tda
from autograd import grad, jacobian, value_and_grad
from autograd.tracer import getval, isbox
from beside import same
from tidy3d.components.autograd import TracedFloat, get_static, hasbox
from tidy3d.components.data.data_array import DataArray, SpatialDataArray
from tidy3d.components.geometry.base import Box as Cuboid
from tidy3d.plugins.autograd.invdes.penalties import make_curvature_penalty
from tidy3d.plugins.autograd.invdes.symmetries import expand_mirror_symmetry

RNG = numpy.random.default_rng(7)
A = RNG.uniform(0.1, 0.9, (8, 7))
WEIGHTS = RNG.normal(size=(64,))
KERNEL = RNG.uniform(size=(3, 3))
RING = numpy.array([[0.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 0.0]])


def weighed(x):
    """Return a number that every element counts in, each differently."""
    flat = np.ravel(x)
    count = flat.shape[0]
    return np.sum(flat * numpy.resize(WEIGHTS, count)) + 0.1 * np.sum(np.sin(3.0 * flat))


PADDINGS = ("constant", "edge", "reflect", "symmetric", "wrap")
GREY = {
    "dilation": tda.grey_dilation,
    "erosion": tda.grey_erosion,
    "opening": tda.grey_opening,
    "closing": tda.grey_closing,
    "gradient": tda.morphological_gradient,
    "gradient_internal": tda.morphological_gradient_internal,
    "gradient_external": tda.morphological_gradient_external,
}
GRID = (numpy.linspace(0.0, 1.0, 8), numpy.linspace(0.0, 1.0, 7))
POINTS = (numpy.array([0.11, 0.52, 0.93]), numpy.array([0.07, 0.48, 0.77]))
OF_ARRAYS = {
    **{f"pad_{m}": lambda x, m=m: tda.pad(x, (2, 3), mode=m, axis=0) for m in PADDINGS},
    **{f"pad_both_{m}": lambda x, m=m: tda.pad(x, 1, mode=m) for m in PADDINGS},
    **{f"convolve_{m}": lambda x, m=m: tda.convolve(x, KERNEL, padding=m) for m in PADDINGS},
    "convolve_valid": lambda x: tda.convolve(x, KERNEL, mode="valid"),
    "convolve_full": lambda x: tda.convolve(x, KERNEL, mode="full"),
    "convolve_along_one_axis": lambda x: tda.convolve(x, KERNEL[0], axes=([1], [0])),
    **{f"grey_{name}": lambda x, f=f: f(x, 3) for name, f in GREY.items()},
    "grey_dilation_constant": lambda x: tda.grey_dilation(x, 3, mode="constant"),
    "grey_dilation_structure": lambda x: tda.grey_dilation(x, structure=RING),
    "grey_erosion_structure": lambda x: tda.grey_erosion(x, structure=RING),
    "rescale": lambda x: tda.rescale(x, -1.0, 3.0),
    "threshold": lambda x: x * tda.threshold(x),
    "smooth_max": lambda x: tda.smooth_max(x, tau=0.3),
    "smooth_max_along": lambda x: tda.smooth_max(x, tau=0.3, axis=1),
    "smooth_min": lambda x: tda.smooth_min(x, tau=0.3),
    "trapz": lambda x: tda.trapz(x, numpy.linspace(0.0, 2.0, 8) ** 2, axis=0),
    "trapz_spacing": lambda x: tda.trapz(x, dx=0.3),
    "add_at": lambda x: tda.add_at(x, (numpy.array([1, 2]), numpy.array([0, 3])), x[0, :2] ** 2),
    "interpolate_linear": lambda x: tda.interpn(GRID, x, POINTS),
    "interpolate_nearest": lambda x: tda.interpn(GRID, x, POINTS, method="nearest"),
    **{
        f"spline_{n}": lambda x, n=n: tda.interpolate_spline(GRID[0], x[:, 0], 20, n)[1]
        for n in (1, 2, 3)
    },
    "spline_with_slopes": lambda x: tda.interpolate_spline(GRID[0], x[:, 0], 20, 3, (0.0, 1.0))[1],
    "gaussian_filter": lambda x: tda.gaussian_filter(x, 1.2),
    "gaussian_filter_wrap": lambda x: tda.gaussian_filter(x, (0.8, 1.5), mode="wrap"),
    "conic_filter": lambda x: tda.make_conic_filter(size_px=3)(x),
    "circular_filter": lambda x: tda.make_circular_filter(radius=0.2, dl=0.1)(x),
    "gaussian_kernel_filter": lambda x: tda.make_gaussian_filter(size_px=(3, 5))(x),
    "filter_and_project": lambda x: tda.make_filter_and_project(0.2, 0.1, beta=4.0)(x),
    "ramp_projection": lambda x: tda.ramp_projection(x, width=0.5),
    "tanh_projection": lambda x: tda.tanh_projection(x, beta=6.0),
    "smoothed_projection": lambda x: tda.smoothed_projection(
        tda.make_conic_filter(size_px=3)(x), beta=6.0
    ),
    "mirrored": lambda x: tda.symmetrize_mirror(x, axis=0),
    "mirrored_twice": lambda x: tda.symmetrize_mirror(x, axis=(0, 1)),
    "rotated": lambda x: tda.symmetrize_rotation(x[:7]),
    "diagonal": lambda x: tda.symmetrize_diagonal(x[:7]),
    "unfolded": lambda x: expand_mirror_symmetry(x, ("low", None))[0],
    "indicator": tda.grey_indicator,
    "erosion_dilation_penalty": lambda x: tda.make_erosion_dilation_penalty(0.2, 0.1)(x),
    "curvature_penalty": lambda x: make_curvature_penalty(0.3)(x[:, :2]),
    "chained": lambda x: tda.chain(np.tanh, tda.make_conic_filter(size_px=3), tda.ramp_projection)(
        x
    ),
}


@pytest.mark.parametrize("name", OF_ARRAYS)
def test_gradient_by_an_array(name):
    value, slope = value_and_grad(lambda x: weighed(OF_ARRAYS[name](x)))(A)
    assert numpy.shape(slope) == A.shape
    same(value, slope)


def test_convolution_by_its_kernel():
    same(grad(lambda k: weighed(tda.convolve(A, k, padding="reflect")))(KERNEL))


def test_interpolation_in_three_dimensions():
    grid, at = (numpy.arange(4.0),) * 3, tuple(RNG.uniform(0.0, 3.0, (3, 5)))
    same(grad(lambda x: weighed(tda.interpn(grid, x, at)))(RNG.normal(size=(4, 4, 4))))


def test_least_squares():
    x = numpy.linspace(0.0, 2.0, 12)

    def fitted(y):
        return tda.least_squares(lambda x, a, b: a * np.exp(b * x), x, y, (0.9, 0.4))

    same(fitted(2.0 * numpy.exp(0.3 * x)), jacobian(fitted)(2.0 * numpy.exp(0.3 * x)), rtol=1e-6)


@pytest.mark.parametrize(
    "aux",
    [{"a": 1}, "text", 3, [1.0, {"b": A}], numpy.array([1, 2])],
    ids=["dict", "text", "int", "list", "array"],
)
def test_auxiliary_results(aux):
    def f(x):
        return np.sum(x**3), aux

    (value, slope), found = tda.value_and_grad(f, has_aux=True)(A)
    assert type(found) is type(aux)
    same(value, slope, tda.grad(f, has_aux=True)(A)[0])


def test_auxiliary_results_that_are_traced():
    def f(x):
        y = np.sin(x)
        return np.sum(y * x), {"y": y, "name": "first"}

    (value, slope), aux = tda.value_and_grad(f, has_aux=True)(A)
    numpy.testing.assert_allclose(get_static(aux)["y"], numpy.sin(A))
    same(value, slope)


def test_objectives_of_one_element():
    same(tda.value_and_grad(lambda x: np.sum(x**2)[None])(A)[1])
    same_of_arrays = tda.grad(lambda x: DataArray(np.sum(x**2)))(A)
    numpy.testing.assert_allclose(same_of_arrays, 2 * A)
    with pytest.raises(Exception, match="scalar"):
        tda.grad(lambda x: x)(A)


def test_optimization():
    found, _, history = tda.optimize(
        lambda x: weighed(tda.make_filter_and_project(0.2, 0.1)(x)),
        A,
        tda.adam(0.05),
        8,
        bounds=(0.0, 1.0),
    )
    same(found, history["objective_fn_val"], history["grad_norm"], rtol=1e-7)


def test_optimization_of_a_dict():
    start = {"map": A, "scale": 1.5}
    found, _, _ = tda.optimize(
        lambda p: weighed(np.tanh(p["scale"] * p["map"])), start, tda.adam(0.1), 6, direction="max"
    )
    same(found["map"], found["scale"], rtol=1e-7)


# Models with traced parameters


def test_a_cuboid():
    def volume(x):
        box = td.Box(center=(x[0], 0.0, 1.0), size=(x[1], 2.0, x[2] ** 2))
        assert hasbox(box.center) and isbox(box.size[2])
        (low, high) = box.bounds
        return box.volume() + weighed(np.array(high) - 0.5 * np.array(low))

    same(grad(volume)(numpy.array([0.3, 1.2, 0.7])))
    assert type(getval(Cuboid(size=(1.0, 1.0, 1.0)).size[0])) is float


def test_a_sphere_and_a_cylinder():
    def f(r):
        sphere = td.Sphere(radius=r, center=(r, 0.0, 0.0))
        cylinder = td.Cylinder(radius=2 * r, length=r + 1.0, axis=2)
        return np.sum(np.array(sphere.bounds) ** 2) + cylinder.radius**2 * cylinder.length

    same(grad(f)(0.8))


def test_a_polygon():
    def f(vertices):
        slab = td.PolySlab(vertices=vertices, axis=2, slab_bounds=(0.0, 0.3))
        assert hasbox(slab.vertices)
        x, y = np.array(slab.vertices).T
        return 0.5 * np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))

    square = numpy.array([[0.0, 0.0], [1.0, 0.1], [1.2, 1.0], [0.1, 0.9]])
    same(grad(f)(square))


def test_a_medium():
    def f(p):
        medium = td.Medium(permittivity=p[0], conductivity=p[1])
        copied = medium.updated_copy(permittivity=medium.permittivity * 2.0)
        return np.real(medium.eps_model(2e14)) * copied.permittivity + 10.0 * medium.conductivity

    same(grad(f)(numpy.array([2.3, 0.01])))


def test_a_dispersive_medium():
    def f(p):
        medium = td.PoleResidue(eps_inf=p[0], poles=((-1e14 * p[1], 2e14 * p[2]),))
        return np.abs(medium.eps_model(1.5e14))

    same(grad(f)(numpy.array([1.7, 0.3, 1.1])))


def test_a_custom_medium():
    coords = {"x": [0.0, 1.0, 2.0], "y": [0.0, 1.0], "z": [0.0]}

    def f(eps):
        medium = td.CustomMedium(permittivity=SpatialDataArray(1.0 + eps**2, coords=coords))
        return weighed(medium.permittivity.values) + np.sum(medium.permittivity.data)

    same(grad(f)(RNG.uniform(1.0, 2.0, (3, 2, 1))))


def test_arrays_with_names():
    coords = {"f": [1.0, 2.0, 3.0], "mode": [0, 1]}

    class Of(DataArray):
        _dims = ("f", "mode")

    def f(x):
        data = Of(x, coords=coords)
        part = data.sel(mode=1) * 2.0 + data.isel(mode=0) ** 2
        at = data.interp(f=1.4).sum()
        return np.sum(np.abs(part.values)) + at.values + np.mean(np.real(data.data))

    same(grad(f)(RNG.uniform(1.0, 2.0, (3, 2))))


def test_a_structure_in_a_simulation():
    def f(x):
        structure = td.Structure(
            geometry=td.Box(size=(x[0], x[1], 0.2)), medium=td.Medium(permittivity=x[2])
        )
        simulation = td.Simulation(
            size=(4.0, 4.0, 1.0),
            structures=[structure],
            grid_spec=td.GridSpec.uniform(0.2),
            run_time=1e-13,
        )
        traced = simulation._strip_traced_fields()
        assert all(isbox(value) for value in traced.values()) and len(traced) >= 2
        plain = simulation.to_static()
        assert not hasbox(plain.structures[0].geometry.size)
        return sum(weighed(np.array(value)) for value in traced.values())

    same(grad(f)(numpy.array([1.0, 2.0, 2.5])))


def test_copies_of_traced_values():
    import copy

    same(grad(lambda x: np.sum(copy.copy(x) * copy.deepcopy([x])[0]))(A))
    assert TracedFloat is not None
