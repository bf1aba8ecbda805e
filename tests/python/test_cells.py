"""Cells outside of graphs, and functions of parameters."""

import gc
import threading
import weakref

import numpy
import pytest

import windrow

H = 6


@pytest.fixture
def parameters():
    return windrow.Parameters(seed=1)


@pytest.fixture
def step(parameters):
    return make_step(parameters)


def make_step(parameters):
    w, u = parameters.add("w", H, H), parameters.add("u", H, H)

    @windrow.cell
    def step(cell):
        """One step."""
        x, state = cell.operand(H), cell.operand(H)
        cell.result(windrow.tanh(x @ w + state @ u))

    return step


def test_a_cell_works_in_any_graph(parameters, step):
    w, u = (parameter.value.numpy() for parameter in parameters)
    training, inference = windrow.LazyGraph(parameters), windrow.LazyGraph(parameters, training=False)
    assert step.__doc__ == "One step." and repr(step) == "<windrow.LazyCell 'step'>"
    for graph in (training, inference, training):
        x = graph.input([0.5] * H)
        one = step(x, None)
        two = step(x, one)
        expected = numpy.tanh([0.5] * H @ w)
        numpy.testing.assert_allclose(one.value(), expected, rtol=1e-5)
        numpy.testing.assert_allclose(two.value(), numpy.tanh([0.5] * H @ w + expected @ u), rtol=1e-5)


def test_each_graph_runs_the_body_once(parameters):
    runs = []

    @windrow.cell
    def counts(cell):
        runs.append(1)
        cell.result(cell.operand(1) * 2)

    assert not runs
    graphs = [windrow.LazyGraph(parameters) for _ in range(3)]
    for _ in range(2):
        for graph in graphs:
            counts(graph.zeros(1))
    assert len(runs) == 3


def test_an_index_or_an_element_of_the_list_tells_the_graph(parameters):
    table = parameters.add("table", 4, H)

    @windrow.cell
    def look_up(cell):
        cell.result(windrow.embedding(table, cell.index()) + cell.operand(H))

    @windrow.cell
    def add(cell):
        cell.result(windrow.sum_children(cell.each(1)))

    graph = windrow.LazyGraph(parameters)
    numpy.testing.assert_array_equal(look_up(graph.index(2), None).value(), table.value.numpy()[2])
    assert add(list=(graph.input([float(i)]) for i in range(4))).scalar() == 6


def test_lists_choose_their_kind_of_expressions(parameters):
    x = windrow.LazyGraph(parameters).zeros(2)
    for function in (windrow.sum, windrow.mean, windrow.max, windrow.log_sum_exp, windrow.softmax):
        with pytest.raises((windrow.MisuseError, TypeError)):
            function([])
        with pytest.raises(TypeError):
            function([x, "x"])
    with pytest.raises((windrow.MisuseError, TypeError)):
        windrow.weighted_sum([], [])
    with pytest.raises(TypeError):
        windrow.concat(part for part in (x, x))


def test_calls_that_do_not_fit(parameters, step):
    graph, other = windrow.LazyGraph(parameters), windrow.LazyGraph(parameters)
    row = parameters.add("row", 1, H)
    for operands in ((None, None), (row, None), ()):
        with pytest.raises(windrow.MisuseError, match=r"^step: .*such as graph.zeros\(width\) in place of None"):
            step(*operands)
    with pytest.raises(windrow.MisuseError, match="another lazy graph"):
        step(graph.zeros(H), other.zeros(H))
    with pytest.raises(windrow.MisuseError, match="^step: "):
        step(graph.zeros(H))
    with pytest.raises(windrow.MisuseError, match="^step: "):
        step(graph.zeros(H), graph.zeros(H + 1))
    for wrong in ("x", 3, windrow.full(1, H, 0.0), row, row * 2):
        with pytest.raises(
            TypeError, match="^step: an operand of type .*; expected lazy expressions, indices and None"
        ):
            step(graph.zeros(H), wrong)
    with pytest.raises(TypeError):
        step(graph.zeros(H), None, list=[3])
    with pytest.raises(TypeError):
        step(graph.zeros(H), None, list=3)
    kept = graph.zeros(H)
    del graph
    with pytest.raises(windrow.MisuseError, match="^step: an expression of a lazy graph that is gone"):
        step(kept, None)
    with pytest.raises(TypeError):
        windrow.cell(None)(other.zeros(H))
    elsewhere = windrow.LazyGraph(windrow.Parameters(seed=2))
    with pytest.raises(windrow.MisuseError, match="another"):
        step(elsewhere.zeros(H), None)


@pytest.mark.filterwarnings("ignore:nanobind:RuntimeWarning")
def test_objects_that_were_not_made_right(parameters):
    x = windrow.LazyGraph(parameters).zeros(1)
    for wrong in ((), ("name",), (3, len)):
        with pytest.raises(TypeError):
            windrow.LazyCell(*wrong)
    cell = windrow.LazyCell.__new__(windrow.LazyCell)
    cell.itself = cell
    with pytest.raises(TypeError):
        cell(x)
    del cell
    gc.collect()
    for of in (windrow.LazyWeight, windrow.CellBody):
        with pytest.raises(TypeError):
            of()


def test_a_body_that_fails_can_be_called_again(parameters):
    fails = [True]

    @windrow.cell
    def body(cell):
        if fails:
            raise ValueError("in the body")
        cell.result(cell.operand(1) + 1)

    graph = windrow.LazyGraph(parameters)
    with pytest.raises(ValueError, match="in the body"):
        body(graph.zeros(1))
    fails.clear()
    assert body(graph.zeros(1)).scalar() == 1


def test_a_body_records_nothing(parameters):
    graph = windrow.LazyGraph(parameters)

    @windrow.cell
    def records(cell):
        graph.zeros(1)

    @windrow.cell
    def calls(cell):
        calls(outside)

    outside = graph.zeros(1)
    for cell in (records, calls):
        with pytest.raises(windrow.MisuseError, match="no lazy expressions in a body"):
            cell(outside)
    assert outside.scalar() == 0


def test_graphs_end_and_cells_are_collected(parameters):
    step = make_step(parameters)
    graphs = []
    for _ in range(50):
        graph = windrow.LazyGraph(parameters)
        assert len(step(graph.zeros(H), None).value()) == H
        graphs.append(weakref.ref(graph))
    del graph
    assert not any(graph() for graph in graphs)  # the body does not refer to them

    class Model:
        def __init__(self):
            self.graph = windrow.LazyGraph(parameters)

            @windrow.cell
            def refers(cell):  # to its graph and to itself
                assert self.graph is not None and self.refers is not None
                cell.result(cell.operand(1))

            self.refers = refers

    models = [Model() for _ in range(5)]
    for model in models[1:]:
        assert model.refers(model.graph.zeros(1)).scalar() == 0
    ends = [weakref.ref(part) for model in models for part in (model, model.graph, model.refers)]
    del models, model
    gc.collect()
    windrow.full(1, 1, 0.0).numpy()  # a wait drops what other threads may have kept
    gc.collect()
    assert not any(end() for end in ends)


def test_a_graph_may_end_while_another_thread_computes(parameters):
    step = make_step(parameters)
    for _ in range(20):
        graph = windrow.LazyGraph(parameters)
        state = graph.zeros(H)
        for _ in range(200):
            state = step(graph.zeros(H), state)
        results = []

        def compute(state=state, results=results):
            try:
                results.append(state.value())
            except windrow.MisuseError as error:
                results.append(error)

        thread = threading.Thread(target=compute)
        thread.start()
        del graph
        thread.join()
        assert len(results) == 1


def test_a_computed_value_is_awaited_at_once(parameters):
    graph = windrow.LazyGraph(parameters, training=False)
    order = []

    async def sample(name):
        x, y = graph.input([1.0]), graph.input([2.0])
        order.append(await windrow.value(x) + await windrow.value(y))
        order.append(name)

    graph.run(sample(name) for name in "ab")
    assert order == [[1.0, 2.0], "a", [1.0, 2.0], "b"]
    with pytest.raises(windrow.MisuseError, match=r"before clear\(\)"):
        gone = graph.zeros(1)
        graph.clear()

        async def awaits_gone():
            await windrow.value(gone)

        graph.run([awaits_gone()])


FUNCTIONS = {
    "-w": (lambda w, u: -w, lambda w, u: -w),
    "w * 2": (lambda w, u: w * 2, lambda w, u: w * 2),
    "1 - w / 2": (lambda w, u: 1 - w / 2, lambda w, u: 1 - w / 2),
    "w + u": (lambda w, u: w + u, lambda w, u: w + u),
    "tanh(w) * u": (lambda w, u: windrow.tanh(w) * u, lambda w, u: numpy.tanh(w) * u),
    "(w - u) @ u": (lambda w, u: (w - u) @ u, lambda w, u: (w - u) @ u),
    "maximum(w, -u)": (lambda w, u: windrow.maximum(w, -u), lambda w, u: numpy.maximum(w, -u)),
    "abs(w) ** 2": (lambda w, u: abs(w) ** 2, lambda w, u: abs(w) ** 2),
    "w / column_sum(w)": (
        lambda w, u: w / windrow.column_sum(windrow.square(w)),
        lambda w, u: w / (w * w).sum(0, keepdims=True),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_parameters_are_operands(parameters, name):
    of, expected = FUNCTIONS[name]
    w, u = parameters.add("w", H, H), parameters.add("u", H, H)
    function = of(w, u)
    assert isinstance(function, windrow.LazyWeight) and function.shape == (H, H)
    assert repr(function) == f"<windrow.LazyWeight, {H} x {H}>"
    x = numpy.linspace(-1, 1, H, dtype=numpy.float32)
    value = x @ expected(w.value.numpy(), u.value.numpy())
    graph = windrow.LazyGraph(parameters)
    result = graph.input(x.tolist()) @ function
    numpy.testing.assert_allclose(result.value(), value, rtol=1e-4, atol=1e-5)

    @windrow.cell
    def product(cell):
        cell.result(cell.operand(H) @ cell.parameter(function))

    numpy.testing.assert_allclose(product(graph.input(x.tolist())).value(), value, rtol=1e-4, atol=1e-5)

    @windrow.vertex_function()
    def vertex(v):
        y = v.pull("x", H) @ v.parameter(function)
        v.push("y", y)
        v.loss(windrow.row_sum(y))

    runner = windrow.Runner(vertex, parameters)
    minibatch = runner.differentiate(windrow.Graphs.from_lists(vertex, [{"children": [[]], "x": [x.tolist()]}]))
    numpy.testing.assert_allclose(minibatch.output("y").numpy()[0], value, rtol=1e-4, atol=1e-5)
    of_vertices = w.gradient.numpy()
    graph.backward([windrow.row_sum(result)])
    numpy.testing.assert_allclose(w.gradient.numpy(), of_vertices, rtol=1e-4, atol=1e-5)
    assert of_vertices.any()


def test_rows_of_parameters_are_operands(parameters):
    row = parameters.add("row", [[1.0, 2.0]])
    graph = windrow.LazyGraph(parameters)
    x = graph.input([1.0, 1.0])
    assert (x + row * 2).value() == [3, 5] and (row * 2 - x).value() == [1, 3] and (row + 1) is not None
    assert graph.parameter(row * 3).value() == [3, 6] and graph.parameter(row).value() == [1, 2]
    assert windrow.concat([x, row * 2, row]).value() == [1, 1, 2, 4, 1, 2]
    assert windrow.maximum(row * 2, x).value() == [2, 4]

    @windrow.cell
    def add(cell):
        cell.result(cell.operand(2) + cell.operand(2))

    assert add(x, graph.parameter(-row)).value() == [0, -1]
    assert x[1:].value() == [1] and windrow.slice(row * 2, 1, 2).shape == (1, 1)


def test_where_functions_of_parameters_are_errors(parameters):
    w, row = parameters.add("w", H, H), parameters.add("row", 1, H)
    of_body = "a function of parameters as an operand in a body; expected an expression: v.parameter"
    misuses = [
        lambda h: h @ (w * 2),
        lambda h: h + row * 2,
        lambda h: row * 2 + h,
        lambda h: windrow.maximum(h, row * 2),
        lambda h: windrow.concat([h, row * 2]),
        lambda h: windrow.matmul(h, -w),
    ]
    graph = windrow.LazyGraph(parameters)
    for misuse in misuses:
        with pytest.raises(TypeError, match=of_body):
            windrow.vertex_function()(lambda v, misuse=misuse: misuse(v.pull("x", H)))
        with pytest.raises(TypeError, match=of_body):
            windrow.cell(lambda cell, misuse=misuse: misuse(cell.operand(H)))(graph.zeros(H))
    with pytest.raises(windrow.MisuseError, match="matmul"):
        w @ row
    with pytest.raises(windrow.MisuseError, match="dropout"):
        windrow.dropout(w, 0.5)
    with pytest.raises(windrow.MisuseError, match="add"):
        graph.zeros(H) + w * 2
    for wrong in ("x", None, windrow.full(H, H, 1.0), numpy.ones((H, H))):
        if not isinstance(wrong, windrow.Tensor):  # beside a Tensor, a parameter acts as its value
            with pytest.raises(TypeError):
                w + wrong
        with pytest.raises(TypeError):
            wrong * (w * 2)
    with pytest.raises(TypeError):
        windrow.softmax_cross_entropy(w, graph.index(1))
    many = w
    with pytest.raises(windrow.MisuseError, match="1000"):
        for _ in range(1001):
            many = many + 1
