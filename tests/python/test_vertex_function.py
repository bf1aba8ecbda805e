"""Tracing vertex functions: their values against NumPy, and their errors."""

import gc
import inspect
import weakref

import numpy as np
import pytest

import windrow
from windrow import Graphs, Runner


def line_of(error, function):
    """The number of the line of `function`, from its def, that raised the error."""
    traceback, line = error.value.__traceback__, None
    while traceback is not None:
        if traceback.tb_frame.f_code is function.__code__:
            line = traceback.tb_lineno - function.__code__.co_firstlineno
        traceback = traceback.tb_next
    return line


def computed(body, x, arity=0, parameters=None, **inputs):
    """The output "y" of a function of vertices without children, whose values "x" are these rows."""
    x = np.asarray(x, np.float32)
    function = windrow.vertex_function(arity=arity)(body)
    n = len(x)
    graphs = Graphs.from_arrays(function, [0, n], np.zeros(n + 1, int), np.zeros(0, int), x=x, **inputs)
    parameters = parameters if parameters is not None else windrow.Parameters()
    return np.array(Runner(function, parameters).run(graphs).output("y").tolist(), np.float32)


RANDOM = np.random.default_rng(7)
X = RANDOM.uniform(0.5, 2, (6, 4)).astype(np.float32)


@pytest.mark.parametrize(
    "name, expression, expected",
    [
        ("add", lambda x: x + x, lambda x: x + x),
        ("broadcast", lambda x: x * x[1:2], lambda x: x * x[:, 1:2]),
        ("numbers", lambda x: 1 - 2 * x / 3 + 0.5, lambda x: 1 - 2 * x / 3 + 0.5),
        ("divide", lambda x: 1 / x + x / x[:1], lambda x: 1 / x + x / x[:, :1]),
        ("power", lambda x: x**3, lambda x: x**3),
        ("negative", lambda x: abs(-x), np.abs),
        ("slice", lambda x: x[1:3], lambda x: x[:, 1:3]),
        ("open slice", lambda x: windrow.concat([x[2:], x[:2]]), lambda x: np.roll(x, 2, 1)),
        ("tanh", windrow.tanh, np.tanh),
        ("row_sum", windrow.row_sum, lambda x: x.sum(1, keepdims=True)),
        ("mean", windrow.mean, lambda x: x.mean(1, keepdims=True)),
        ("maximum", lambda x: windrow.maximum(x, x[:1]), lambda x: np.maximum(x, x[:, :1])),
        ("sum of a list", lambda x: windrow.sum([x, x, 2 * x]), lambda x: 4 * x),
        ("max of a list", lambda x: windrow.max([x, 3 - x]), lambda x: np.maximum(x, 3 - x)),
        ("mean of a list", lambda x: windrow.mean([x, 2 * x]), lambda x: 1.5 * x),
        ("log_sum_exp of a list", lambda x: windrow.log_sum_exp([x, 2 * x]), lambda x: np.logaddexp(x, 2 * x)),
        ("softmax of a list", lambda x: windrow.softmax([x, 0 * x])[0], lambda x: 1 / (1 + np.exp(-x))),
        ("k_max", lambda x: windrow.k_max([x, 2 * x, 0 * x], 2), lambda x: np.hstack([x, 2 * x])),
        (
            "weighted_sum",
            lambda x: windrow.weighted_sum([x[:1], x[1:2]], [x, 2 * x]),
            lambda x: x * x[:, :1] + 2 * x * x[:, 1:2],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_expressions_equal_numpy(name, expression, expected):
    got = computed(lambda v: v.push("y", expression(v.pull("x", 4))), X)
    np.testing.assert_allclose(got, expected(X), rtol=1e-5, atol=1e-6)


def test_parameters_are_operands_on_both_sides():
    parameters = windrow.Parameters(seed=3)
    w, row = parameters.add("w", 4, 3), parameters.add("row", np.arange(3).reshape(1, 3) + 1.0)
    wn, rown = (np.array(p.value.tolist(), np.float32) for p in (w, row))

    def body(v):
        product = v.pull("x", 4) @ w
        v.push(
            "y",
            windrow.concat([product + row, row - product, row * product, product / row, v.parameter(row) + product]),
        )

    product = X @ wn
    expected = [product + rown, rown - product, rown * product, product / rown, rown + product]
    np.testing.assert_allclose(computed(body, X, parameters=parameters), np.hstack(expected), rtol=1e-5, atol=1e-5)


def test_indices_look_rows_up():
    parameters = windrow.Parameters(seed=3)
    table = parameters.add("table", 5, 4)
    words = [4, -1, 0, 2, 2, -1]

    def body(v):
        v.push("y", windrow.embedding(table, v.pull_index("word", optional=True)) + v.pull("x", 4))

    rows = np.array(table.value.tolist(), np.float32)
    expected = X + np.array([rows[w] if w >= 0 else np.zeros(4) for w in words], np.float32)
    np.testing.assert_allclose(computed(body, X, parameters=parameters, word=words), expected, rtol=1e-6)


def test_children_of_any_number_are_reduced():
    @windrow.vertex_function(arity="any")
    def function(v):
        state = v.state("s", 2)
        x, below = v.pull("x", 2), v.each(state)
        v.scatter(state, x)
        v.push(
            "y",
            windrow.concat(
                [
                    windrow.sum_children(below),
                    windrow.mean_children(below),
                    windrow.max_children(below),
                    windrow.log_sum_exp_children(below),
                    windrow.sum_children(windrow.softmax_children(below) * below),
                    windrow.sum_children(below * windrow.to_children(x)),
                    windrow.k_max_children(below, 1),
                    windrow.dot_attention(x, [below, x], [below, x]),
                ]
            ),
        )

    x = X[:4, :2]
    graphs = Graphs.from_arrays(function, [0, 4], [0, 0, 0, 0, 3], [2, 0, 1], x=x)
    got = np.array(Runner(function, windrow.Parameters()).run(graphs).at_roots("y").tolist())[0]
    below, own = x[[2, 0, 1]], x[3]
    weights = np.exp(below) / np.exp(below).sum(0)
    all_ = np.vstack([below, own])
    attention = np.exp(all_ @ own) / np.exp(all_ @ own).sum()
    expected = [
        below.sum(0),
        below.mean(0),
        below.max(0),
        np.log(np.exp(below).sum(0)),
        (weights * below).sum(0),
        (below * own).sum(0),
        below.max(0),
        attention @ all_,
    ]
    np.testing.assert_allclose(got, np.concatenate(expected), rtol=1e-5)


def test_kinds_have_inputs_of_their_own():
    @windrow.vertex_function()
    def leaf(v):
        v.scatter(v.state("s", 1), v.pull("x"))

    @windrow.vertex_function(arity=2)
    def inner(v):
        state = v.state("s", 1)
        total = v.gather(0, state) * v.gather(1, state)
        v.scatter(state, total)
        v.push("y", total)

    tree = windrow.VertexFunction("tree", [leaf, inner])
    assert (tree.kinds, tree.inputs, tree.outputs) == (2, {"x": ("values", "vertices", 1)}, [("y", 1)])
    graphs = Graphs.from_arrays(tree, [0, 3], [0, 0, 0, 2], [0, 1], kinds=[0, 0, 1], x=[3, 5, 0])
    assert Runner(tree, windrow.Parameters()).run(graphs).at_roots("y").tolist() == [[15]]
    with pytest.raises(windrow.MisuseError, match="sample 0: vertex 2, child 1: inner gathers 's'|kind"):
        Graphs.from_arrays(tree, [0, 3], [0, 0, 0, 2], [0, 1], kinds=[0, 2, 1], x=[3, 5, 0])


def test_a_function_tells_what_it_needs():
    @windrow.vertex_function(arity="any", fixed=1, name="cell")
    def function(v):
        state = v.state("s", 3)
        v.scatter(state, v.gather(0, state) + windrow.sum_children(v.each(state)))
        v.pull_edge_index("relation", optional=True)
        v.push("y", v.pull_row("features", 7))

    assert (function.name, function.states, function.tensors) == ("cell", [("s", 3)], [("features", 7)])
    assert function.inputs == {"relation": ("optional index", "edges", 1)}
    assert "relation (optional index)" in repr(function)


def test_an_exception_of_the_body_is_raised_as_it_is():
    def body(v):
        v.state("s", 1)
        {}["missing"]

    with pytest.raises(KeyError, match="missing") as error:
        windrow.vertex_function()(body)
    assert line_of(error, body) == 2


def raising(statement):
    """A body of which only the second line raises an error."""

    def body(v):
        v.zeros(1)
        statement(v)

    return body


@pytest.mark.parametrize(
    "statement, text",
    [
        (lambda v: v.zeros(3) + v.zeros(2), "body: add: operands vertices x 3, vertices x 2"),
        (lambda v: v.gather(1, v.state("s", 2)), "body: gather\\(1\\) of state 's'; expected less than 1, the arity"),
        (lambda v: [v.state("s", 1), v.state("s", 1)], "body: state 's'"),
        (lambda v: v.each(v.state("s", 1)), "body: .*any"),
        (lambda v: v.zeros(3)[::2], "columns with a step of 2; expected 1"),
        (lambda v: v.loss(v.zeros(2)), "body: "),
        (
            lambda v: windrow.softmax_cross_entropy(v.zeros(2), v.pull_index("a", width=2)),
            "body: softmax_cross_entropy",
        ),
        (lambda v: v.constant(1, 1e300), "body: "),
        (lambda v: windrow.concat([]), "concat|empty|parts"),
    ],
)
def test_misuse_is_raised_at_the_line_of_the_body(statement, text):
    body = raising(statement)
    with pytest.raises(windrow.MisuseError, match=text) as error:
        windrow.vertex_function(arity=1)(body)
    assert line_of(error, body) == 2


@pytest.mark.parametrize(
    "statement",
    [
        lambda v: v.zeros(3) + "a",
        lambda v: v.zeros("a"),
        lambda v: windrow.tanh(3.0),
        lambda v: v.push("y", 3),
        lambda v: v.zeros(1) + np.zeros(1),
        lambda v: v.gather(-1, v.state("s", 1)),
        lambda v: v.push(None, v.zeros(1)),
        lambda v: windrow.sum([v.zeros(1), None]),
        lambda v: v.zeros(1) < 3,
        lambda v: 1 if v.zeros(1) else 2,
        lambda v: list(v.zeros(3)),
    ],
)
def test_wrong_types_raise_a_type_error(statement):
    with pytest.raises(TypeError):
        windrow.vertex_function(arity=1)(raising(statement))


@pytest.mark.parametrize("arity", [-1, "all", 1.5, None])
def test_a_wrong_arity_is_refused(arity):
    with pytest.raises(TypeError, match="expected a number of children, or 'any'"):
        windrow.vertex_function(arity=arity)
    with pytest.raises(windrow.MisuseError):
        windrow.vertex_function(arity=40)(lambda v: v.push("y", v.zeros(1)))


def test_vertices_and_expressions_end_with_the_trace():
    kept = []

    @windrow.vertex_function()
    def function(v):
        kept.extend([v, v.zeros(1), v.state("s", 1)])
        v.scatter(kept[2], kept[1])

    vertex, expr, state = kept
    with pytest.raises(windrow.MisuseError, match="after its function was traced"):
        vertex.zeros(1)
    with pytest.raises(windrow.MisuseError):
        expr + expr
    with pytest.raises(windrow.MisuseError):
        windrow.vertex_function(arity=1)(lambda v: v.gather(0, state))
    with pytest.raises(windrow.MisuseError):
        windrow.vertex_function()(lambda v: v.push("y", v.zeros(1) + expr))


def test_functions_may_be_traced_inside_others():
    inner = []

    @windrow.vertex_function()
    def outer(v):
        inner.append(windrow.vertex_function(name="inner")(lambda w: w.push("y", w.pull("x") * 2)))
        v.push("y", v.pull("x") + 1)

    graphs = [Graphs.from_arrays(f, [0, 1], [0, 0], [], x=[3]) for f in (outer, inner[0])]
    values = [Runner(f, windrow.Parameters()).run(g).output("y").item() for f, g in zip((outer, inner[0]), graphs)]
    assert values == [4, 6]


def test_a_trace_keeps_no_object_of_its_body():
    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)

    def body(v, thing=thing):
        v.push("y", v.zeros(1))

    function = windrow.vertex_function()(body)
    del body, thing
    gc.collect()
    assert gone() is None and function.name == "body"


def test_docstrings_are_there():
    for name in (
        "vertex_function",
        "VertexFunction",
        "Vertex",
        "Graphs",
        "Runner",
        "Parameters",
        "Minibatch",
        "Optimiser",
    ):
        assert len(inspect.getdoc(getattr(windrow, name))) > 60, name
