"""Programs in autograd's own words, run with either package: each gives numbers to compare."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

X = [0.3, -0.7, 1.9]


def package(root: str) -> SimpleNamespace:
    """The modules of autograd, or of the drop-in, that the programs use."""

    def module(name):
        return importlib.import_module(f"{root}.{name}")

    return SimpleNamespace(
        ag=importlib.import_module(root),
        np=module("numpy"),
        extend=module("extend"),
        flatten=module("misc.flatten"),
        optimizers=module("misc.optimizers"),
        fixed_points=module("misc.fixed_points"),
        builtins=module("builtins"),
        operators=module("differential_operators"),
        unbroadcast_f=module("numpy.numpy_vjps").unbroadcast_f,
        getval=module("tracer").getval,
        isbox=module("tracer").isbox,
        ArrayBox=module("numpy.numpy_boxes").ArrayBox,
        scipy=lambda name: module(f"scipy.{name}"),
    )


def rosenbrock(p):
    def f(x):
        return p.np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    x, v = p.np.array(X), p.np.array([1.0, 0.5, -2.0])
    return (
        p.ag.grad(f)(x),
        p.ag.value_and_grad(f)(x),
        p.ag.hessian(f)(x),
        p.ag.hessian_vector_product(f)(x, v),
        p.ag.make_hvp(f)(x)[0](v),
        p.ag.jacobian(p.ag.jacobian(p.ag.grad(f)))(x),
    )


def derivatives_of_tanh(p):
    f, found = p.np.tanh, []
    for _ in range(5):
        f = p.ag.elementwise_grad(f)
        found.append(f(p.np.linspace(-2.0, 2.0, 5)))
    return found


def products(p):
    x, v = p.np.array(X), p.np.array([1.0, 0.5, -2.0])

    def f(x):
        return p.np.outer(p.np.sin(x), x)

    vjp, value = p.ag.make_vjp(f)(x)
    return (
        value,
        vjp(p.np.ones((3, 3))),
        p.ag.make_jvp(f)(x)(v),
        p.operators.make_jvp_reversemode(f)(x)(v),
        p.ag.tensor_jacobian_product(p.np.exp)(x, v),
        p.ag.vector_jacobian_product(p.np.exp)(x, v),
        p.ag.make_ggnvp(p.np.tanh)(x)(v),
        p.ag.jacobian(f)(x),
        p.ag.deriv(lambda t: p.np.sum(p.np.sin(t * x)))(0.4),
    )


def structures(p):
    parameters = {"layers": [(p.np.ones((2, 3)) * 0.1, p.np.zeros(2))], "scale": 2.0}

    def loss(parameters, x):
        for w, b in parameters["layers"]:
            x = p.np.tanh(p.np.dot(w, x) + b)
        return p.np.sum(x**2) * parameters["scale"]

    x = p.np.array(X)
    gradient = p.ag.grad(loss)(parameters, x)
    both = p.ag.grad(loss, (0, 1))(parameters, x)
    named = p.ag.grad_named(loss, "x")(parameters, x)
    flat, unflatten = p.flatten.flatten(parameters)
    hessian = p.ag.hessian(lambda v: loss(unflatten(v), x))(flat)
    return gradient, both, named, flat, unflatten(2 * flat), hessian


def auxiliary(p):
    return p.ag.grad_and_aux(lambda x: (p.np.sum(x**3), p.np.exp(x)))(p.np.array(X))


def container_arguments(p):
    def f(pair):
        first, second = pair
        return p.np.sum(first * second) + len(pair) + (p.np.sum(first) if second[0] > 0 else 0.0)

    return p.ag.grad(f)((p.np.array(X), p.np.array(X) + 1)), p.ag.grad(f)(
        [p.np.array(X), p.np.array(X) + 1]
    )


def containers_inside(p):
    def f(x):
        made = p.builtins.dict({"a": x, "b": p.builtins.tuple((x[0], x[1]))})
        total = p.builtins.list([p.np.sum(made["a"] ** 2), made["b"][1]])
        return total[0] * total[1]

    return p.ag.grad(f)(p.np.array(X)), p.ag.hessian(f)(p.np.array(X))


def own_primitive(p):
    np = p.np

    @p.extend.primitive
    def logsumexp(x):
        top = np.max(x)
        return top + np.log(np.sum(np.exp(x - top)))

    def maker(ans, x):
        return lambda g: np.full(x.shape, g) * np.exp(x - np.full(x.shape, ans))

    p.extend.defvjp(logsumexp, maker)
    x = np.array(X)
    found = [p.ag.grad(logsumexp)(x), p.ag.hessian(logsumexp)(x)]
    p.extend.defjvp(logsumexp, lambda g, ans, x: np.sum(g * np.exp(x - ans)))
    found += [p.ag.make_jvp(logsumexp)(x)(np.array([1.0, 2.0, 3.0]))]
    found += [p.ag.deriv(p.ag.deriv(lambda t: logsumexp(t * x)))(0.5)]
    found += [p.ag.grad(p.ag.deriv(lambda t: logsumexp(t * x)))(0.5)]
    p.extend.defvjp(logsumexp, lambda ans, x: lambda g: g * 7.0 * np.ones(3))
    return [*found, p.ag.grad(logsumexp)(x)]


def primitive_of_several(p):
    np = p.np

    @p.extend.primitive
    def scaled(name, x, factor, offset):
        assert name == "label"
        return factor * x + offset

    p.extend.defvjp(
        scaled,
        p.unbroadcast_f and (lambda ans, name, x, factor, offset: lambda g: g * factor),
        lambda ans, name, x, factor, offset: p.unbroadcast_f(factor, lambda g: g * x),
        None,
        argnums=(1, 2, 3),
    )
    p.extend.defjvp(
        scaled,
        "same",
        lambda g, ans, name, x, factor, offset: g * x,
        None,
        argnums=(1, 2, 3),
    )
    x = np.array(X)

    def f(x, factor):
        return np.sum(scaled("label", x, factor, np.sum(x)) ** 3)

    return (
        p.ag.grad(f, (0, 1))(x, 1.5),
        p.ag.hessian(f)(x, 1.5),
        p.ag.grad(p.ag.grad(f, 1), 1)(x, 1.5),
        p.ag.grad(lambda t: f(t * x, t))(0.5),
    )


def primitive_of_structures(p):
    np = p.np

    @p.extend.primitive
    def split(x):
        return (x**2, np.sum(x))

    p.extend.defvjp(split, lambda ans, x: lambda g: 2 * x * g[0] + np.ones(3) * g[1])

    def f(x):
        squares, total = split(x)
        return np.sum(squares * total)

    return p.ag.grad(f)(np.array(X)), p.ag.hessian(f)(np.array(X))


def redefined(p):
    np = p.np

    @p.extend.primitive
    def sqrt(x):
        return np.sqrt(x)

    def maker(ans, x):
        return lambda g: g * np.where(x > 0, 0.5 / np.sqrt(x + (x <= 0)), 0.0)

    p.extend.defvjp(sqrt, maker)
    return p.ag.elementwise_grad(sqrt)(np.array([0.0, 4.0]))


def by_argnum(p):
    np = p.np

    @p.extend.primitive
    def weighted(*xs):
        return sum((i + 1.0) * x**2 for i, x in enumerate(xs))

    p.extend.defvjp_argnum(
        weighted, lambda i, ans, args, kwargs: lambda g: g * 2.0 * (i + 1.0) * args[i]
    )
    p.extend.defjvp_argnum(weighted, lambda i, g, ans, args, kwargs: g * 2.0 * (i + 1.0) * args[i])
    x = np.array(X)
    return (
        p.ag.grad(lambda *xs: np.sum(weighted(*xs)), (0, 2))(x, x, x),
        p.ag.deriv(lambda t: np.sum(weighted(t * x, x, t)))(0.7),
        p.ag.grad(lambda t: np.sum(weighted(t * x, x, t * x)) ** 2)(0.7),
    )


def arrays_of_results(p):
    np = p.np

    def f(x):
        made = np.array([[x[0], 1.0], [x[1] * x[2], np.sum(x)]])
        more = np.concatenate([made.ravel(), np.array([x[0]]), np.append(x, x[1])])
        stacked = np.stack([x, x**2]) + np.vstack([x, np.ones(3)])
        more = np.hstack([more, np.ravel(stacked), np.linspace(x[0], x[1], 4)])
        more = np.append(more, np.r_[x, 2.0, x[0]]) ** 2
        more = np.hstack((more, np.ravel(np.c_[x, x**3]), np.mean([x[0], x[1]]), np.full(2, x[2])))
        return (
            np.sum(more**2)
            + np.sum(np.gradient(np.concatenate([x, x**3])) ** 2)
            + np.sum(np.diff(np.sin(x)) ** 2)
        )

    return f(np.array(X)), p.ag.grad(f)(np.array(X)), p.ag.hessian(f)(np.array(X))


def diagonals(p):
    np = p.np
    a = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 3.0]])

    def f(x):
        made = np.make_diagonal(x, offset=0, axis1=-1, axis2=-2) + a
        sign, logdet = np.linalg.slogdet(made)
        values = np.linalg.eigh(made)[0]
        solved = np.linalg.solve(made, x)
        return logdet + np.sum(values**3) + np.sum(solved**2) + np.linalg.norm(made)

    return p.ag.grad(f)(np.array(X) ** 2), p.ag.hessian(f)(np.array(X) ** 2)


def many_functions(p):
    np = p.np
    x = np.array(X)
    functions = (
        np.exp, np.sin, np.cosh, np.arctan, np.square, np.abs, np.sign, np.expm1, np.sinc, np.conj,
        np.real, np.negative, np.cumsum, np.sort, np.floor, np.angle, np.nan_to_num, np.flipud,
        np.exp2, np.log1p, np.arcsinh, np.reciprocal, np.diag, np.std, np.var, np.prod, np.max,
        np.min, np.ravel, np.transpose, np.atleast_2d, np.rad2deg, np.fabs,
        lambda x: np.logaddexp(x, 2 * x), lambda x: np.maximum(x, 0.5),
        lambda x: np.clip(x, -0.5, 1),
        lambda x: np.where(x > 0, x**2, -x), lambda x: np.arctan2(x, x**2 + 1),
        lambda x: np.tensordot(x, x, 0), lambda x: np.einsum("i,j->ij", x, x**2),
        lambda x: np.kron(x, x), lambda x: np.repeat(x, 2), lambda x: np.tile(x, (2, 2)),
        lambda x: np.roll(x, 1), lambda x: np.pad(x, 1, "constant"), lambda x: np.mod(x, 0.4),
        lambda x: np.cross(x, x**2), lambda x: np.partition(x, 1),
        lambda x: np.array_split(x, 2)[0],
        lambda x: np.select([x > 0], [x**2], x), lambda x: np.power(np.abs(x), 1.7),
        lambda x: np.swapaxes(np.outer(x, x), 0, 1), lambda x: x.reshape(3, 1).T.sum(axis=0) ** 2,
        lambda x: np.full_like(x, 2.0) * x, lambda x: np.ones_like(x) * x, lambda x: x[::-1] * x[1],
        lambda x: x[np.array([0, 0, 2])] ** 2, lambda x: x[x > 0] ** 2, lambda x: x.astype(float),
    )  # fmt: skip
    found = []
    with np.errstate(all="ignore"):
        for f in functions:
            found.append(f(x))
            found.append(p.ag.jacobian(lambda x, f=f: 1.0 * f(x) + 0.0 * x[0])(x))
            found.append(p.ag.grad(lambda x, f=f: np.sum(np.sin(f(x) + 0.0 * x[0])))(x))
    return found


def closures(p):
    def outer(x):
        inner = p.ag.grad(lambda y: x * y**2)
        return x * inner(x) + p.ag.make_jvp(lambda y: x * y**3)(x)(1.0)[1]

    return [p.ag.grad(outer)(1.3), p.ag.grad(p.ag.grad(outer))(1.3), p.ag.deriv(outer)(1.3)]


def training(p):
    def loss(parameters, i=0):
        return p.np.sum((p.np.exp(parameters["w"]) - 2.0) ** 2) + (parameters["b"][0] - 1.0) ** 4

    start = {"w": p.np.array(X), "b": [3.0]}
    seen = []
    found = [
        optimize(p.ag.grad(loss), start, lambda x, i, g: seen.append(g["b"]), num_iters=7)
        for optimize in (p.optimizers.adam, p.optimizers.sgd, p.optimizers.rmsprop)
    ]

    def after_training(rate):
        return loss(p.optimizers.sgd(p.ag.grad(loss), start, num_iters=3, step_size=rate))

    return found, seen, p.ag.grad(after_training)(0.01)


def fixed_points(p):
    def newton(a):
        return lambda x: 0.5 * (x + a / x)

    def distance(x, y):
        return p.np.abs(x - y)

    def root(a):
        return p.fixed_points.fixed_point(newton, a, 1.0, distance, 1e-12)

    return root(2.0), p.ag.grad(root)(2.0), p.ag.grad(p.ag.grad(root))(2.0)


def checkpoints(p):
    f = p.ag.checkpoint(lambda x, y: p.np.tanh(p.np.exp(x) * y))

    def g(x, y):
        return p.np.sum(f(f(x, y), y))

    x = p.np.array(X)
    return p.ag.grad(g, (0, 1))(x, 0.3), p.ag.hessian(g)(x, 0.3)


def values(p):
    seen = []

    def f(x):
        seen.append(p.np.array(p.getval(x)))
        seen.append(float(p.isbox(x)) + isinstance(x, p.ArrayBox))
        seen.append(p.np.sum(x)._value)
        seen.append(float(p.builtins.isinstance(x, p.np.ndarray)))
        seen.append(x.shape + (x.ndim, x.size))
        return p.np.sum(x * p.np.array(p.getval(x)))

    return p.ag.grad(f)(p.np.array(X)), seen


def spaces(p):
    space = p.extend.vspace({"a": p.np.ones((2, 1)), "b": [1.0, 2.0]})
    basis = list(space.standard_basis())
    return (
        space.size,
        space.zeros(),
        space.add(space.ones(), space.ones()),
        space.inner_prod(basis[1], space.ones()),
        space.scalar_mul(space.ones(), 3.0),
        basis,
    )


def special(p):
    np, special = p.np, p.scipy("special")
    x = np.array([0.3, 0.8, 1.9])
    functions = (
        special.erf, special.erfc, special.gammaln, special.gamma, special.digamma, special.expit,
        special.rgamma, special.i0, special.i1, special.j0, special.j1, special.y0, special.y1,
        lambda x: special.polygamma(1, x), lambda x: special.jn(2, x), lambda x: special.yn(1, x),
        lambda x: special.iv(1.5, x), lambda x: special.ive(2, x), lambda x: special.betaln(x, 2.0),
        lambda x: special.gammainc(1.5, x), lambda x: special.gammaincc(1.5, x),
        lambda x: special.betainc(1.5, 2.0, x / 3), lambda x: special.erfinv(x / 3),
        lambda x: special.erfcinv(x / 3), lambda x: special.logit(x / 3),
        lambda x: special.logsumexp(np.outer(x, x), axis=0),
        lambda x: special.logsumexp(np.outer(x, x), b=2.0),
        lambda x: special.multigammaln(x + 2, 3),
    )  # fmt: skip
    found = []
    for f in functions:
        found.append((f(x), p.ag.grad(lambda x, f=f: np.sum(f(x) ** 2))(x)))
        found.append(p.ag.hessian(lambda x, f=f: np.sum(f(x) ** 2))(x))
    return found


def stats(p):
    np = p.np
    norm, t, beta = (p.scipy(f"stats.{name}") for name in ("norm", "t", "beta"))
    gamma, chi2, poisson = (p.scipy(f"stats.{name}") for name in ("gamma", "chi2", "poisson"))
    dirichlet = p.scipy("stats.dirichlet")
    normals = p.scipy("stats.multivariate_normal")
    x, counts = np.array([0.3, 0.8, 1.9]), np.array([0.0, 1.0, 4.0])
    cov = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 3.0]])
    calls = [
        (f, args, places)
        for f, args, places in (
            *((f, (x, 0.1, 1.7), (0, 1, 2)) for f in (norm.pdf, norm.logpdf, norm.cdf)),
            *((f, (x, 0.1, 1.7), (0, 1, 2)) for f in (norm.logcdf, norm.sf, norm.logsf)),
            *((f, (x, 2.5, 0.1, 1.7), (0, 1, 2, 3)) for f in (t.pdf, t.logpdf)),
            *((f, (x, 2.5, 0.1, 1.7), (0, 2)) for f in (t.cdf, t.logcdf)),
            *((f, (x / 2, 2.5, 1.3), (0, 1, 2)) for f in (beta.pdf, beta.logpdf)),
            (beta.cdf, (x / 2, 2.5, 1.3), (0,)),
            *((f, (x, 2.5), (0, 1)) for f in (gamma.pdf, gamma.logpdf)),
            (gamma.cdf, (x, 2.5), (0,)),
            *((f, (x, 3.0), (0,)) for f in (chi2.pdf, chi2.logpdf, chi2.cdf)),
            *((f, (counts, 1.4), (1,)) for f in (poisson.pmf, poisson.logpmf, poisson.cdf)),
            *((f, (x / 3, 1.0 + x), (1,)) for f in (dirichlet.pdf, dirichlet.logpdf)),
            *((f, (x, x**2, cov), (0, 1, 2)) for f in (normals.pdf, normals.logpdf)),
            (normals.logpdf, (np.outer(x, x), x**2, cov), (0, 1)),
            (normals.entropy, (x, cov), (1,)),
        )
    ]
    found = []
    for f, args, places in calls:
        if f is dirichlet.pdf or f is dirichlet.logpdf:
            args = (np.array([0.2, 0.3, 0.5]), args[1])

        def total(*args, f=f):
            return np.sum(f(*args))

        found.append((f(*args), p.ag.grad(total, places)(*args)))
    return found


def linear_algebra_of_scipy(p):
    np, linalg = p.np, p.scipy("linalg")
    a = np.array([[2.0, 0.3, 0.1], [0.4, 1.0, -0.2], [0.1, -0.3, 3.0]])
    b = np.array(X)
    bands = np.array([[0.0, 0.3, 0.2], [2.0, 3.0, 2.5], [0.1, -0.4, 0.0]])

    def total(f):
        return lambda *args: np.sum(np.sin(f(*args)))

    return (
        p.ag.grad(total(linalg.sqrtm))(np.dot(a, a.T)),
        p.ag.grad(total(linalg.solve_sylvester), (0, 1, 2))(a, a.T @ a, a),
        p.ag.grad(total(lambda a, b: linalg.solve_triangular(a, b)), (0, 1))(a, b),
        p.ag.grad(total(lambda a, b: linalg.solve_triangular(a, b, lower=True)), (0, 1))(a, b),
        p.ag.grad(total(lambda a, b: linalg.solve_triangular(a, b, trans="T")), (0, 1))(a, b),
        p.ag.grad(total(lambda ab, b: linalg.solve_banded((1, 1), ab, b)), (0, 1))(bands, b),
    )


def convolutions(p):
    np, convolve = p.np, p.scipy("signal").convolve
    a = np.sin(np.arange(2 * 3 * 5 * 4.0).reshape(2, 3, 5, 4))
    b = np.cos(np.arange(3 * 2 * 2 * 3.0).reshape(3, 2, 2, 3))
    calls = (
        lambda a, b: convolve(a, b, axes=([2, 3], [2, 3]), dot_axes=([1], [0]), mode="valid"),
        lambda a, b: convolve(a, b, axes=([2, 3], [2, 3]), dot_axes=([1], [0])),
        lambda a, b: convolve(a[0, 0], b[0, 0]),
        lambda a, b: convolve(a[0, 0], b[0, 0], mode="valid"),
        lambda a, b: convolve(a[0], b[:, 0], axes=([1], [2])),
    )
    return [
        (f(a, b), p.ag.grad(lambda a, b, f=f: np.sum(f(a, b) ** 2), (0, 1))(a, b)) for f in calls
    ]


def differential_equations(p):
    np, odeint = p.np, p.scipy("integrate").odeint
    times = np.array([0.0, 0.4, 1.0])

    def slope(y, t, rate, coupling):
        return np.array([y[1], -rate * y[0] - coupling * y[1] + np.sin(t)])

    def loss(y0, times, rate, coupling):
        arguments = p.builtins.tuple((rate, coupling))
        ys = odeint(slope, y0, times, arguments, rtol=1e-10, atol=1e-10)
        return np.sum(ys**2 * np.array([[1.0, 2.0]]))

    y0 = np.array([1.0, -0.5])
    found = p.ag.grad(loss, (0, 1, 2, 3))(y0, times, 1.3, 0.2)
    return [np.round(part, 7) for part in found]


PROGRAMS = [
    f
    for name, f in list(globals().items())
    if callable(f) and getattr(f, "__module__", "") == __name__ and name not in ("package",)
]
