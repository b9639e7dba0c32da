"""A grammar of training steps, and of what may change between their calls.

``drawn(seed)`` draws a `Program` (`tests.compiling.step_program`). Each has a few features, such as
tables or leaves made inside; each feature brings statements, names to compute with, and changes.
All values stay small, and away from where a last bit decides: arrays of shape (3,) or (rows, 3).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.compiling.step_program import Change, Program

CALLS = 12
FIRST_CHANGE = 2  # before which call a change comes at the earliest, from 0
FOUND_BY_A_REAL_CALL = range(2, 7)  # the 4th and the 8th are real

UNARY = [
    "tg.tanh({})",
    "np.sin({})",
    "tg.sigmoid({})",
    "np.cos({})",
    "tg.relu({})",
    "np.abs({})",
    "-({})",
    "({}) ** 2 * 0.5",
    "np.exp(-np.abs({}))",
    "tg.softmax({}, axis=-1)",
    "np.cumsum({}, axis=-1) * 0.5",
    "np.sort({}, axis=-1)",
    "({})[..., ::-1]",
    "tg.gelu({})",
    "np.sqrt(1.0 + ({}) ** 2)",
]
BINARY = [
    "({} + {})",
    "({} - {})",
    "({} * {})",
    "({}) / (1.0 + ({}) ** 2)",
    "np.maximum({}, {})",
    "np.where(({}) > 0.1, {}, 0.5)",
]
OPTIMIZERS = [
    "tg.SGD({}, lr={})",
    "tg.SGD({}, lr={}, momentum=0.9)",
    "tg.SGD({}, lr={}, momentum=0.5, nesterov=True, weight_decay=0.01)",
    "tg.Adam({}, lr={})",
    "tg.AdamW({}, lr={}, weight_decay=0.1)",
    "tg.RMSprop({}, lr={})",
    "tg.Adagrad({}, lr={})",
    "tg.Lion({}, lr={})",
]
SCHEDULES = [
    "schedules.exponential(0.1, 0.7)",
    "schedules.cosine(0.1, 9)",
    "schedules.step(0.1, 0.5, 2)",
    "lambda step: 0.1 / (1.0 + step)",
]


class Draft:
    """A program while it is drawn."""

    def __init__(self, seed: int, features: list[str] | None = None) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.module: list[str] = []
        self.made: list[str] = []
        self.body: list[str] = []
        self.state: list[str] = []
        self.arguments: list[tuple[str, Callable[[int], str]]] = []
        self.vectors: list[str] = []  # of shape (3,), that can always be read
        self.rows: list[str] = ["x"]
        self.numbers: list[str] = []
        self.unary: list[str] = list(UNARY)
        self.graphs: list[tuple[str, bool]] = []  # results: the name, and whether it has rows
        self.losses: list[str] = []
        self.leaves: list[str] = []  # vectors that can be assigned to
        self.optimizers: list[str] = []
        self.acts: list[Callable[[], None]] = []
        # What each change may be: the first in its list is how it is at the beginning.
        self.changes: list[tuple[list[str], bool]] = []
        self.count = 0
        self.exact = True  # to the bit, natively
        self.sloped = False  # there is a derivative, which a later loss may read
        self.basic()
        chosen = features or self.random.sample(sorted(FEATURES), self.random.randint(2, 5))
        self.features = [seed_feature(seed), *chosen] if features is None else chosen
        for name in dict.fromkeys(self.features):
            FEATURES[name](self)

    # Choosing

    def pick(self, choices: Any) -> Any:
        return self.random.choice(list(choices))

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def new(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def literal(self) -> str:
        return repr(round(self.random.uniform(-1.5, 1.5), 2))

    def literals(self, count: int = 3) -> str:
        return "[" + ", ".join(self.literal() for _ in range(count)) + "]"

    # Expressions

    def number(self) -> str:
        return self.pick(self.numbers) if self.numbers and self.chance(0.7) else self.literal()

    def vector(self, depth: int = 2) -> str:
        return self.expression(self.vectors + [n for n, rows in self.graphs if not rows], depth)

    def row(self, depth: int = 2) -> str:
        vectors = self.vectors + [name for name, _ in self.graphs]
        return self.expression(vectors + 2 * self.rows, depth)

    def expression(self, atoms: list[str], depth: int) -> str:
        if depth <= 0 or self.chance(0.15):
            return self.pick(atoms)
        kind = self.random.random()
        if kind < 0.4:
            return self.pick(self.unary).replace("{}", self.expression(atoms, depth - 1))
        if kind < 0.6:
            return f"({self.expression(atoms, depth - 1)}) * {self.number()}"
        form = self.pick(BINARY)
        while "{}" in form:
            form = form.replace("{}", self.expression(atoms, depth - 1), 1)
        return form

    # What every program has

    def basic(self) -> None:
        for name in ("w0", "w1"):
            self.made.append(f"{name} = tg.param({self.literals()})")
            self.leaf(name)
        self.optimizer("opt", "[w0, w1]")
        rows = self.random.randint(1, 3)
        other = self.random.randint(1, 3)
        many = self.chance(0.2)
        self.alike = self.chance(0.7)  # then comparing the first two calls finds nothing frozen

        def x(call: int) -> str:
            if self.alike and call == 1:
                call = 0
            rng = random.Random(f"{self.seed} {call}")
            count = other if many and call % 3 == 2 else rows
            drawn = [[round(rng.uniform(-1, 1), 2) for _ in range(3)] for _ in range(count)]
            return f"np.array({drawn})"

        self.argument("x", x)
        self.acts += [self.define, self.loss, self.loss, self.zero, self.step, self.step]
        self.acts += [self.early, self.update, self.loss_again]

    def argument(self, name: str, text: Callable[[int], str]) -> None:
        self.arguments.append((name, text))

    def leaf(self, name: str) -> None:
        self.state.append(name)
        self.vectors += [name]
        self.leaves.append(name)
        self.changes += [
            ([f"{name}.assign({self.literals()})"], True),
            ([f"{name}.data[1] = {self.literal()}"], True),
            ([f"{name}.data = np.array({self.literals()})"], True),
            ([f"{name}.grad = None"], True),
            ([f"{name}.grad = np.array({self.literals()})"], True),
        ]

    def optimizer(self, name: str, over: str, scheduled: bool = False) -> None:
        rate = (
            self.pick(SCHEDULES) if scheduled or self.chance(0.15) else self.pick(["0.1", "0.03"])
        )
        self.made.append(f"{name} = " + self.pick(OPTIMIZERS).format(over, rate))
        self.made.append(f"{name}_saved = {name}.state_dict()")
        self.optimizers.append(name)
        self.state.append(name)
        self.changes += [
            ([f"{name}.lr = {self.pick(['0.01', '0.2', *SCHEDULES])}"], True),
            ([f"{name}.load_state_dict({name}_saved)"], True),
        ]

    def result(self, name: str, probability: float = 0.6) -> None:
        if self.chance(probability):
            self.body.append(f'out["{name}"] = {name}')

    def graph(self, text: str, rows: bool = True) -> str:
        name = self.new("v")
        self.body.append(f"{name} = {text}")
        self.graphs.append((name, rows))
        return name

    def changed(self) -> None:
        """Forget the results whose graphs an update has made useless."""
        if not self.chance(0.02):
            self.graphs, self.losses = [], []

    # Statements

    def define(self) -> None:
        name = self.graph(self.row(3))
        self.result(name, 0.3)

    def loss_text(self) -> str:
        form = self.pick(
            [
                "tg.sum(tg.tanh(({}) * w0) * w1)",
                "tg.mean((({}) - w0 * w1) ** 2)",
                "tg.sum(np.sin(w0) * ({})) + 0.1 * tg.sum(w1 ** 2)",
                "tg.sum(({}) * w0 * w1)",
            ]
        )
        return form.format(self.row(2))

    def loss(self) -> None:
        name = self.new("loss")
        self.body.append(f"{name} = {self.loss_text()}")
        self.body.append(f"{name}.backward()")
        self.losses.append(name)
        self.result(name)

    def loss_again(self) -> None:
        if self.losses:
            self.body.append(f"{self.pick(self.losses)}.backward()")

    def zero(self) -> None:
        choices = [f"{self.pick(self.optimizers)}.zero_grad()", "tg.zero_grad([w0, w1])"]
        self.body.append(self.pick([*choices, *choices, "w0.grad = None", "w1.zero_grad()"]))

    def step(self) -> None:
        self.body.append(f"{self.pick(self.optimizers)}.step()")
        self.changed()

    def early(self) -> None:
        leaf = self.pick(self.leaves)
        grad = "None if {0}.grad is None else {0}.grad * 1.0"  # later ones are added to it in place
        text = self.pick([grad, "{0}", "{0} * 2.0", "{0}.detach()", "np.sum({0})"])
        self.body.append(f'out["{self.new("early")}"] = ' + text.format(leaf))
        if self.chance(0.3):
            scaled = self.pick(["{0}.grad = {0}.grad * 0.5", "{0}.grad *= 0.5"])
            self.body.append(f"if {leaf}.grad is not None:\n    " + scaled.format(leaf))

    def update(self) -> None:
        leaf = self.pick(self.leaves)
        texts = ["{0}.assign({1})", "{0}.data = {1}"]
        if leaf.isidentifier():
            alias = self.new("u")
            texts.append(f"{alias} = {{0}}\n    {alias} -= 0.1 * ({{1}})")
        text = self.pick(texts).format(leaf, f"1.0 * ({self.vector(2)})")
        self.body.append(f"with tg.no_grad():\n    {text}")
        self.changed()

    # Programs

    def program(self) -> Program:
        for _ in range(self.random.randint(5, 12)):
            self.pick(self.acts)()
        for leaf in ("w0", "w1"):
            if self.chance(0.3):
                self.body.append(f'out["last_{leaf}"] = {leaf}')
        call = [", ".join(text(i) for _, text in self.arguments) for i in range(CALLS)]
        return Program(
            module=tuple(self.module),
            made=tuple(self.made),
            body=tuple(self.body),
            changes=tuple(self.drawn_changes()),
            calls=tuple(call),
            parameters=", ".join(name for name, _ in self.arguments),
            state=tuple(self.state),
            method="method" in self.features,
            exact=self.exact,
            seed=self.seed,
        )

    def drawn_changes(self) -> list[Change]:
        changes: list[Change] = []
        special = [change for change in self.changes if len(change[0]) > 1]
        for _ in range(self.pick([0, 1, 2, 3, 4])):
            texts, seen = self.pick(special if special and self.chance(0.8) else self.changes)
            when = sorted(self.random.sample(range(FIRST_CHANGE, CALLS), 2))
            if not seen:  # alone, so that what comes of it is known
                return [Change(self.pick(FOUND_BY_A_REAL_CALL), self.pick(texts[1:]), seen)]
            if len(texts) == 1:
                changes += [Change(when[0], texts[0])]
            else:
                back = self.pick([texts[0], *texts])
                changes += [Change(when[0], self.pick(texts[1:])), Change(when[1], back)]
        return sorted(changes, key=lambda change: change.call)


FEATURES: dict[str, Callable[[Draft], None]] = {}


def feature(enter: Callable[[Draft], None]) -> Callable[[Draft], None]:
    FEATURES[enter.__name__] = enter
    return enter


@feature
def method(d: Draft) -> None:
    """The step is a method of `m` (see `Draft.program`), which has attributes of every kind."""
    attributes(d)


@feature
def attributes(d: Draft) -> None:
    if "m.scale = 0.4" in d.made:
        return
    d.made += ["m.scale = 0.4", "m.training = True", "m.act = tg.tanh"]
    d.made += [f"m.w = tg.param({d.literals()})", f"m.other = tg.param({d.literals()})"]
    d.made += [f"m.shift = np.array({d.literals()})"]
    d.leaf("m.w")
    d.vectors += ["m.shift"]
    d.numbers += ["m.scale"] * 2
    d.unary += ["m.act({})"] * 3
    d.changes += [
        (["m.scale = 0.4", "m.scale = 0.9", "m.scale = -0.3"], True),
        (["m.training = True", "m.training = False"], True),
        (["m.act = tg.tanh", "m.act = np.sin"], True),
        (["m.w, m.other = m.other, m.w"], True),
        ([f"m.w = tg.param({d.literals()})"], True),
        (["m.shift = m.shift * 1.0", "m.shift = m.shift * 2.0"], True),
        (["m.shift[1] = 0.3", "m.shift[1] = 0.7", "m.shift *= 0.5"], True),
    ]

    def mode() -> None:
        name = d.graph(d.row(2))
        texts = [f"tg.dropout({name}, 0.5)", f"{name} * 0.5", f"tg.tanh({name})"]
        d.body.append(f"if m.training:\n    {name} = {d.pick(texts)}")
        d.result(name)

    d.acts += [mode] * 2


@feature
def numbers(d: Draft) -> None:
    d.module += ["RATE = 0.6", "SHARP = True"]
    d.made += ["k = 0.5", "count = 2", "sharp = False", 'mode = "a"', "nothing = None"]
    d.numbers += ["k", "k", "RATE", "count"]
    d.changes += [
        (["k = 0.5", "k = 0.8", "k = -1.25", "k = 2"], True),
        (["RATE = 0.6", "RATE = 0.1"], True),
        (["count = 2", "count = 1", "count = 3"], True),
        (["count += 1", "count += 1"], True),
        (["sharp = False", "sharp = True"], True),
        (["SHARP = True", "SHARP = False"], True),
        (['mode = "a"', 'mode = "b"'], True),
        (["nothing = None", "nothing = 0.25", f"nothing = tg.param({d.literals()})"], True),
    ]

    def branch() -> None:
        name = d.graph(d.row(2))
        test = d.pick(["sharp", "SHARP", 'mode == "a"', "count > 1", "nothing is None"])
        d.body.append(f"if {test}:\n    {name} = {name} * {d.number()}")
        if d.chance(0.5):
            d.body.append(f"if nothing is not None:\n    {name} = {name} + nothing")
        d.result(name)

    def loop() -> None:
        name = d.graph(d.row(2))
        d.body.append(f"for _ in range(count):\n    {name} = tg.tanh({name} + w0)")
        d.result(name)

    d.acts += [branch, branch, loop]


@feature
def arrays(d: Draft) -> None:
    d.module += [f"SHIFT = np.array({d.literals()})"]
    d.made += [f"shift = np.array({d.literals()})", "big = np.zeros(40000)"]
    d.vectors += ["shift", "SHIFT"]
    d.numbers += ["np.sum(big)"]
    d.changes += [
        (["shift = shift * 1.0", "shift = shift * 2.0", "shift = np.ones(3)"], True),
        (["shift[0] = 0.3", "shift[0] = -0.7", "shift *= 0.5"], True),
        (["SHIFT = SHIFT * 1.0", "SHIFT = SHIFT[::-1]"], True),
        (["SHIFT[2] = 0.3", "SHIFT += 0.25"], True),
        (["big[...] = 0.0", "big[12345] = 0.5"], False),
    ]


@feature
def containers(d: Draft) -> None:
    d.made += [f"ws = [tg.param({d.literals()}), tg.param({d.literals()})]"]
    d.made += [f"spare = tg.param({d.literals()})"]
    d.made += [
        f'held = {{"w": tg.param({d.literals()}), "scale": 0.3, "ema": tg.tensor(np.ones(3))}}'
    ]
    d.made += [f'deep = {{"inner": {{"scale": 0.4, "w": tg.param({d.literals()})}}}}']
    for name in ("ws[0]", 'held["w"]'):
        d.leaf(name)
    d.state += ["*ws", 'held["ema"]']
    d.vectors += ["ws[1]", 'held["ema"]', 'deep["inner"]["w"]']
    d.made += ["far = [[[[0.5, *range(4096)]]]]"]
    d.numbers += ['held["scale"]', 'deep["inner"]["scale"]', "far[0][0][0][0]"]
    d.changes += [
        (["ws[0], spare = spare, ws[0]", "ws[0], spare = spare, ws[0]"], True),
        ([f"ws.append(tg.param({d.literals()}))", "ws.append(spare)"], True),
        (["ws.reverse()", "ws.reverse()"], True),
        (['held["scale"] = 0.3', 'held["scale"] = 0.9'], True),
        ([f'held["w"] = tg.param({d.literals()})'] * 2, True),
        ([f'held["ema"].assign({d.literals()})'], True),
        (['held = {**held, "scale": 0.3}', 'held = {**held, "scale": 0.2}'], True),
        (["far[0][0][0][0] = 0.5", "far[0][0][0][0] = 0.9"], False),
        (['deep["inner"]["scale"] = 0.4', 'deep["inner"]["scale"] = 0.7'], False),
        ([f'deep["inner"]["w"] = tg.param({d.literals()})'] * 2, False),
    ]

    def over() -> None:
        name = d.graph(d.row(2))
        d.body.append(f"for w in ws:\n    {name} = tg.tanh({name} * w)")
        d.result(name)

    def running_mean() -> None:
        text = f'held["ema"].assign(0.9 * held["ema"] + 0.1 * ({d.vector(2)}))'
        d.body.append(f"with tg.no_grad():\n    {text}")
        d.changed()

    d.acts += [over, over, running_mean]


@feature
def functions(d: Draft) -> None:
    d.module += [
        "SLOPE = 0.7",
        "DEEP = 0.4",
        "",
        "def deepest(a):\n    return a * DEEP",
        "def helper(a, by=0.9):\n    return np.sin(a * SLOPE) + deepest(a) * by",
        "def other(a):\n    return tg.tanh(a) - 0.25",
        "def scaled(by):\n    return lambda a: a * by",
    ]
    d.made += ["act = tg.tanh", "line = scaled(0.5)", "pair = [np.sin, np.cos]"]
    d.unary += ["act({})", "line({})", "helper({})", "helper({})", "pair[0]({})"]
    d.changes += [
        (["act = tg.tanh", "act = np.sin", "act = other"], True),
        (["line = scaled(0.5)", "line = scaled(0.8)"], True),
        (["helper = helper", "helper = other"], True),
        (["pair.reverse()", "pair.reverse()"], True),
        (["SLOPE = 0.7", "SLOPE = 0.1"], True),
        (["DEEP = 0.4", "DEEP = 0.9"], True),
        (["helper.__defaults__ = (0.9,)", "helper.__defaults__ = (0.1,)"], True),
    ]


@feature
def schedule(d: Draft) -> None:
    d.optimizer("opt2", "[w1, w0]", scheduled=True)
    d.optimizer("opt3", "[w0]")
    d.changes += [
        (["opt2, opt3 = opt3, opt2", "opt2, opt3 = opt3, opt2"], True),
        (["opt2 = tg.SGD([w0, w1], lr=0.3)", "opt2 = tg.SGD([w0], lr=0.05)"], True),
    ]
    d.acts += [d.step] * 2


@feature
def buffers(d: Draft) -> None:
    d.made += [f"mean = tg.tensor({d.literals()})", "total = tg.tensor(0.0)"]
    d.state += ["mean", "total"]
    d.vectors.append("mean")
    d.numbers.append("total")
    d.leaves.append("mean")
    d.changes += [
        (["mean.data[...] = 0.25"], True),
        (["mean, w1 = w1, mean"], True),
        (["mean = tg.tensor([1.0, 0.5, 0.25])"] * 2, True),
        (["mean.requires_grad_(False)", "mean.requires_grad_(True)"], True),
    ]

    def count() -> None:
        d.body.append(f"with tg.no_grad():\n    total.assign(0.5 * total + np.sum({d.vector(1)}))")
        d.changed()

    d.acts += [d.update, count]


@feature
def inside(d: Draft) -> None:
    """Leaves made in the step."""
    made: list[str] = []
    constants: set[str] = set()

    def leaf() -> None:
        name = d.new("c")
        texts = ["tg.tensor(np.zeros(3))", "tg.tensor({})", "tg.param({})", "tg.param({})"]
        text = d.pick(texts).format(d.literals())
        d.body.append(f"{name} = {text}")
        if "param" not in text or d.chance(0.1):
            constants.add(name)
        made.append(name)
        d.vectors += [name] * 2

    def slope() -> None:
        name, loss = d.new("c"), d.new("loss")
        d.body.append(f"{name} = {d.pick(['tg.param(x)', 'tg.tensor(x).requires_grad_()'])}")
        d.body.append(f"{loss} = tg.sum(tg.tanh({name} * ({d.vector(1)})) * {name})")
        d.body.append(f"{loss}.backward()")
        d.body.append(f'out["{loss}"] = {name}.grad')

    def touch() -> None:
        if not made or d.chance(0.3):
            leaf()
        name = d.pick(made)
        given = d.pick(["np.mean(x, axis=0)", "x[0] * 0.5", d.vector(1), d.vector(1)])
        texts = [f"{name}.assign(1.0 * ({given}))"] * 3 + [f"{name}.data = 1.0 * ({given})"]
        if name in constants:  # elements of one that has changing numbers are not written to
            texts += [f"{name}.data[...] = {d.literal()}", f"{name}.data[0] = {d.literal()}"]
            texts += [f"{name}.data += 0.5"] * 4
        uses = ["{}", "{} * 2.0", "{} * w0", "{} * w0 - x", "np.sum({}) * x", "{}.detach()"]
        for after in (False, True):
            if after:
                text = d.pick(texts)
                if ".data[" not in text and "+=" not in text and d.chance(0.9):
                    constants.discard(name)
                d.body.append(f"with tg.no_grad():\n    {text}")
            if d.chance(0.8):
                d.body.append(f'out["{d.new("inner")}"] = {d.pick(uses).format(name)}')
        d.changed()

    def read() -> None:
        if made and d.chance(0.3):
            name, v = d.pick(made), d.graph(d.row(1))
            test = d.pick(["float(tg.sum({})) > 0.0", "{}.data[0] > 0.0", "{}.numpy()[1] > 0"])
            d.body.append(f"if {test.format(name)}:\n    {v} = {v} * 0.5")
            d.result(v)

    d.acts += [leaf, touch, touch, touch, read, slope]


@feature
def second(d: Draft) -> None:
    def penalty() -> None:
        name, g, h = d.new("loss"), d.new("g"), d.new("h")
        d.body.append(f"{name} = {d.loss_text()}")
        d.body.append(f"{g}, {h} = tg.gradients({name}, [w0, w1], create_graph=True)")
        again = d.chance(0.5)
        if again:
            d.graphs += [(g, False), (h, False)]
        if again or d.sloped:
            d.exact = False  # derivatives of the third order, where a loss is computed from them
        pen = d.new("pen")
        d.body.append(f"{pen} = tg.sum({g} ** 2) + tg.sum({h} * ({d.vector(1)})) * 0.1")
        d.body.append(f"{pen}.backward()")
        d.result(pen)
        d.result(g)

    def gradients() -> None:
        name, g = d.new("loss"), d.new("g")
        d.body.append(f"{name} = {d.loss_text()}")
        d.body.append(f"{g}, = tg.gradients({name}, [{d.pick(['w0', 'w1'])}])")
        d.vectors.append(g)
        d.result(g)

    d.acts += [penalty] * 4 + [gradients, d.step, d.update]


@feature
def transforms(d: Draft) -> None:
    def derivative() -> None:
        leaf, inner = d.pick(["w0", "w1", "x[0]"]), d.vector(1)
        f = f"lambda a: tg.sum(tg.tanh(a * ({inner})) * a)"
        texts = [
            f"tg.grad({f})({leaf})",
            f"tg.value_and_grad({f})({leaf})[1]",
            f"tg.jvp({f}, ({leaf},), (np.ones(3),))[1] * {leaf}",
            f"tg.hvp({f}, ({leaf},), (np.ones(3),))",
            f"tg.jacobian(lambda a: tg.tanh(a * ({inner})))({leaf}) @ {leaf}",
            f"tg.grad(lambda b: tg.sum(tg.grad({f})(b) ** 2))({leaf})",
            f"tg.vjp(lambda a: tg.tanh(a * ({inner})), {leaf})[1](np.ones(3))",
        ]
        text = d.pick(texts)
        if "hvp" in text or "lambda b" in text:
            d.exact = False
        d.result(d.graph(text, rows=False))
        d.sloped = True

    d.acts += [derivative] * 3


@feature
def clipping(d: Draft) -> None:
    def clip() -> None:
        name = d.new("norm")
        d.body.append(f"{name} = tg.clip_grad_norm([w0, w1], {d.pick(['0.5', '1.0', '100.0'])})")
        d.result(name)

    def clip_value() -> None:
        d.body.append("tg.clip_grad_value([w0, w1], 0.3)")

    d.acts += [clip, clip, clip_value]


@feature
def draws(d: Draft) -> None:
    d.made += ["rate = 0.5"]
    d.changes += [
        (["rate = 0.5", "rate = 0.0", "rate = 0.25"], True),
        (["tg.random.seed(5)"] * 2, True),
        (["tg.random.normal(size=2)"] * 2, True),
    ]

    def draw() -> None:
        texts = [
            f"tg.dropout({d.row(1)}, rate)",
            "tg.random.normal(size=3)",
            f"({d.row(1)}) * tg.random.uniform(size=3)",
            f"tg.gather({d.vector(0)}, tg.random.permutation(3))",
            "tg.random.dropout_mask((3,), 0.3) * w0",
        ]
        d.result(d.graph(d.pick(texts)))

    d.acts += [draw] * 3


@feature
def blocks(d: Draft) -> None:
    """`no_grad`, `detach`, checkpoints, and squares of bools."""

    def no_grad() -> None:
        name = d.new("n")
        d.body.append(f"with tg.no_grad():\n    {name} = {d.row(2)}")
        d.rows.append(name)
        d.result(name)

    def checkpoint() -> None:
        d.result(d.graph(f"tg.checkpoint(lambda a: tg.tanh(a * w0 + w1))({d.row(1)})"))

    def bools() -> None:
        test = f"(({d.row(1)}) > {d.literal()})"
        texts = [
            "{} ** 2 * w0",
            "np.sum({}) * w1",
            "({} + 1) * w1",
            "{} * {} * w0",
            "np.square({}) - w0",
        ]
        texts += ["np.cumsum({}, axis=-1) * w0", "np.mean({}) * w0"]
        d.result(d.graph(d.pick(texts).replace("{}", test)))

    d.acts += [no_grad, checkpoint, bools]


@feature
def operations(d: Draft) -> None:
    """The user's own."""
    d.module += [
        "@tg.defop(\n    vjp=lambda g, y, a: g * 3.0 * a**2,\n"
        "    jvp=lambda t, y, a: 3.0 * t[0] * a**2,\n)\ndef cube(a):\n    return a**3",
        "@tg.defop(vjp=(lambda g, y, a, b: g * b, lambda g, y, a, b: g * a))\n"
        "def times(a, b):\n    return a * b",
    ]
    d.unary += ["cube({})", "cube(tg.tanh({}))", "times({}, w0)"]
    d.acts += [d.define, d.loss]


@feature
def table(d: Draft) -> None:
    values = "[" + ", ".join(d.literals() for _ in range(5)) + "]"
    d.made += [f"table = tg.param({values})"]
    d.state.append("table")
    d.made.append(
        "rows_of = "
        + d.pick(["tg.SGD([table], lr=0.1)", *[o.format("[table]", "0.1") for o in OPTIMIZERS]])
    )
    d.state.append("rows_of")
    length = d.random.randint(1, 4)

    def rows(call: int) -> str:
        rng = random.Random(f"{d.seed} rows {call}")
        return f"np.array({[rng.randrange(5) for _ in range(length)]})"

    d.argument("rows", rows)
    d.changes += [
        (["table.data[2] = 0.5"], True),
        (["table.grad = None"], True),
        (["rows_of.lr = 0.2"], True),
        (["rows_of = tg.SGD([table], lr=0.05)"] * 2, True),
        ([f"table = tg.param({values})"] * 2, True),
    ]

    reads: list[str] = []

    def read() -> None:
        name = d.new("loss")
        text = d.pick(["tg.gather(table, rows)", "table[rows]", "np.take(table, rows, axis=0)"])
        d.body.append(f"{name} = tg.sum(({text} - ({d.vector(1)})) ** 2)")
        if d.chance(0.6):
            d.body.append("rows_of.zero_grad()")
        d.body.append(f"{name}.backward()")
        if d.chance(0.3):
            d.body.append("tg.clip_grad_norm([table, w0], 0.5)")
            d.exact = False
        d.exact &= not reads  # rows are added up in another order, as squares of a norm are
        reads.append(name)
        d.body.append("rows_of.step()")
        d.changed()
        d.result(name)

    def mean_row() -> None:
        d.graph("np.mean(tg.gather(table, rows), axis=0)", rows=False)

    d.acts += [read, read, mean_row]


@feature
def values(d: Draft) -> None:
    d.made += ["slope, offset = tg.Value(0.3), tg.Value(-0.2)"]
    d.made += ["by_values = tg.SGD([slope, offset], lr=0.05)"]
    d.state += ["slope", "offset", "by_values"]
    d.changes += [
        (["slope.data = 0.4"], True),
        (["slope.grad = 0.0"], True),
        (["slope, offset = offset, slope"] * 2, True),
        (["by_values.lr = 0.1"], True),
    ]

    def fit() -> None:
        name = d.new("fit")
        text = d.pick(
            [
                "tg.vsum((slope * v + offset - 0.5) ** 2 for v in x[0])",
                "((slope * x[0, 0] + offset) * (slope - offset)).tanh()",
                f"(slope * {d.number()} + offset).exp() * slope",
            ]
        )
        d.body.append(f"{name} = {text}")
        if d.chance(0.7):
            d.body.append("slope.grad = offset.grad = 0.0")
        d.body.append(f"{name}.backward()")
        d.body.append(d.pick(["by_values.step()", "slope.data -= 0.1 * slope.grad"]))
        d.result(name)

    d.acts += [fit] * 2


@feature
def compiled_inside(d: Draft) -> None:
    d.module += ["INNER = 0.8", "@tg.compile\ndef inner(a):\n    return np.sin(a * INNER)"]
    d.made += [
        "within = 0.6",
        "@tg.compile\ndef trained(a):\n    loss = tg.sum((a * w0 * within - w1) ** 2)\n"
        "    loss.backward()\n    return loss",
    ]
    d.unary += ["inner({})"] * 4
    d.changes += [
        (["INNER = 0.8", "INNER = 0.2"], True),
        (["within = 0.6", "within = -0.4"], True),
    ]

    def train() -> None:
        name = d.new("loss")
        d.body.append(f"{name} = trained({d.pick(['x', 'w0.detach()', 'x * 0.5'])})")
        d.result(name)

    d.acts += [train]


@feature
def arguments(d: Draft) -> None:
    """Floats, ints, bools, strings, dicts and defaults."""
    with_dict = d.chance(0.5)
    varying = d.pick(["n", "flag", "both", ""])  # one at most: each value is a trace

    def varied(name: str, texts: list[str]) -> None:
        rng = random.Random(f"{d.seed} {name}")
        two = [texts[0], rng.choice(texts[1:])] if name == varying else texts[:1]
        chosen = [rng.choice(two) for _ in range(CALLS)]
        d.argument(name, lambda call: chosen[call])

    fed = [repr(round(random.Random(f"{d.seed} s {i}").uniform(0.1, 1), 2)) for i in range(CALLS)]
    d.argument("s", lambda call: fed[0 if d.alike and call == 1 else call])
    varied("n", ["2", "1", "3"])
    varied("flag", ["True", "False"])
    if with_dict:
        a, b = f"np.array({d.literals()})", f"np.array({d.literals()})"
        varied(
            "both",
            [f'{{"a": {a}, "b": {b}}}', f'{{"b": {b}, "a": {a}}}', f'{{"a": {b}, "b": {a}}}'],
        )
        d.vectors += ['both["a"]', 'both["b"]']
    d.numbers += ["s", "s", "(1.0 - s)", "n"]

    def branch() -> None:
        name = d.graph(d.row(2))
        texts = [
            f"if flag:\n    {name} = {name} * s",
            f"for _ in range(n):\n    {name} = tg.tanh({name} + w1)",
        ]
        if with_dict:
            texts += [f"for i, key in enumerate(both):\n    {name} = {name} + both[key] * i"]
        d.body.append(d.pick(texts))
        d.result(name)

    d.acts += [branch] * 2


@feature
def frozen(d: Draft) -> None:
    """Parameters that come to need no gradient for a while."""
    d.made.append(f"bias = tg.param({d.literals()})")
    d.leaf("bias")
    d.vectors += ["bias"] * 3
    d.changes += [(["bias.requires_grad_(True)", "bias.requires_grad_(False)"], True)] * 3


def seed_feature(seed: int) -> str:
    """Return the feature that a program has in any case: each in its turn."""
    names = list(FEATURES)
    return names[seed % len(names)]


def drawn(seed: int, features: list[str] | None = None) -> Program:
    """Draw a program; the same for the same seed."""
    return Draft(seed, features).program()
