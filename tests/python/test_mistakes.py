"""Mistakes and habits of users raise errors that say what to do instead; nothing goes wrong silently."""

import asyncio
import re

import pytest

import windrow
import windrow._windrow

np = pytest.importorskip("numpy")

PARAMETERS = windrow.Parameters(seed=1)
TABLE = PARAMETERS.add("table", 10, 4)
OUT = PARAMETERS.add("out", 4, 5)


@windrow.vertex_function(arity=2)
def tree(v):
    state = v.state("state", 4)
    h = windrow.tanh(
        windrow.embedding(TABLE, v.pull_index("word", optional=True)) + v.gather(0, state) + v.gather(1, state)
    )
    v.scatter(state, h)
    v.push("h", h)
    v.loss(windrow.softmax_cross_entropy(h @ OUT, v.pull_index("label")))


@windrow.vertex_function
def doubled(v):
    v.push("y", v.pull("x", 2) * 2)


def leaves(count=6):
    return windrow.Graphs.from_lists(tree, [{"children": [[]], "word": [i], "label": [i % 5]} for i in range(count)])


def words_of(graphs):
    return [int(graph.index("word")[0]) for graph in graphs]


def refused(kind, *parts):
    """Expects an error with these texts in this order, and not nanobind's list of overloads."""
    return pytest.raises(kind, match="(?s)^(?!.*incompatible function arguments).*" + ".*".join(map(re.escape, parts)))


# Parameters


@pytest.mark.parametrize("shape", [(6, 3), (np.int64(6), np.int32(3))])
def test_shape_as_tuple(shape):
    parameters = windrow.Parameters(seed=1)
    same = windrow.Parameters(seed=1)
    assert parameters.add("w", shape).shape == (6, 3)
    assert np.array_equal(same.add("w", 6, 3).numpy(), parameters["w"].numpy())
    assert parameters.add("zeros", shape, "zeros").numpy().sum() == 0
    assert parameters.add("ones", shape, initial=1.0).numpy().sum() == 18


def test_what_is_no_shape():
    parameters = windrow.Parameters()
    with refused(windrow.MisuseError, "parameter 'w' of a shape of 3 sizes; expected (rows, width)"):
        parameters.add("w", (2, 3, 4))
    with refused(windrow.MisuseError, "of a list of two integers; expected a tuple for a shape"):
        parameters.add("w", [64, 5])
    with refused(windrow.MisuseError, "parameter 'w' of one integer; expected rows and width, (1, width)"):
        parameters.add("w", 64)
    assert parameters.add("row", [[64, 5]]).numpy().tolist() == [[64, 5]]
    assert parameters.add("floats", [1.5, 2.5]).numpy().tolist() == [[1.5, 2.5]]


def test_names_are_escaped():
    parameters = windrow.Parameters()
    parameters.add("a<b", 2, 2)
    assert "<td>a&lt;b</td>" in parameters._repr_html_()


# Minibatches and graphs


@pytest.mark.parametrize("seed", [True, False])
def test_shuffle_takes_seeds_only(seed):
    with refused(TypeError, f"shuffle = {seed}; expected None for the order of the graphs, or a seed"):
        leaves().minibatches(2, shuffle=seed)


def test_masks():
    graphs = leaves()
    mask = [True, False, False, True, False, False]
    for given in (mask, tuple(mask), np.array(mask), list(np.array(mask))):
        assert words_of(graphs[given]) == [0, 3]
    assert words_of(graphs[np.array([5, -6])]) == [5, 0]
    assert words_of(graphs[np.int64(2) : np.int64(4)]) == [2, 3]
    assert len(graphs[np.array([], dtype=np.int64)]) == 0
    with refused(IndexError, "3 bools; expected numbers, or 6 bools"):
        graphs[[True, False, True]]
    with refused(IndexError, "1 bool and 1 number; expected numbers, or 6 bools"):
        graphs[[True, 0]]
    for wrong in ("a", 1.5, True, np.array([1.5])):
        with refused(TypeError, "graphs[...] of", "expected"):
            graphs[wrong]


def test_names_in_from_lists():
    with refused(windrow.MisuseError, "sample 1: gives 'lable', which tree does not pull; expected 'word', 'label'"):
        windrow.Graphs.from_lists(
            tree,
            [
                {"children": [[]], "word": [1], "label": [1]},
                {"children": [[]], "word": [1], "label": [1], "lable": [1]},
            ],
        )
    with refused(windrow.MisuseError, "sample 0: has no 'children'; expected a list for each vertex"):
        windrow.Graphs.from_lists(tree, [{"word": [1], "label": [1]}])
    with refused(TypeError, "samples is a dict; expected a list of mappings"):
        windrow.Graphs.from_lists(tree, {"children": [[]], "word": [1], "label": [1]})
    with refused(TypeError, "sample 0 is an int; expected a mapping"):
        windrow.Graphs.from_lists(tree, [1])


def test_names_in_from_objects():
    def graphs(inputs):
        return windrow.Graphs.from_objects(tree, [1, 2], lambda _: (), inputs)

    with refused(windrow.MisuseError, "sample 0: gives 'lable', which tree does not pull"):
        graphs(lambda _: {"word": 1, "lable": 1})
    with refused(windrow.MisuseError, "no object has 'label', which tree pulls for vertices; expected it once"):
        graphs(lambda _: {"word": 1})
    # An optional name may be missing, and others for a part of the objects.
    assert len(graphs(lambda n: {"label": 1} if n == 1 else {})) == 2
    assert len(windrow.Graphs.from_objects(tree, [], lambda _: (), lambda _: {})) == 0


def test_names_in_from_networkx():
    networkx = pytest.importorskip("networkx")

    def graph(**attributes):
        made = networkx.DiGraph()
        made.add_node(0, **attributes)
        return made

    with refused(windrow.MisuseError, "no node or edge has 'label'", "not only 'lable'"):
        windrow.Graphs.from_networkx(tree, [graph(word=1, lable=1)])
    with refused(windrow.MisuseError, "no node or edge has 'word'", "not only 'wrod'"):
        windrow.Graphs.from_networkx(tree, [graph(wrod=1, label=1)])
    assert len(windrow.Graphs.from_networkx(tree, [graph(label=1)])) == 1
    assert len(windrow.Graphs.from_networkx(tree, [graph(word=2, label=1, colour="red")])) == 1
    with refused(windrow.MisuseError, "graphs is one graph; expected a list: [graph]"):
        windrow.Graphs.from_networkx(tree, graph(label=1))
    with refused(TypeError, "sample 0 is an int; expected a DiGraph"):
        windrow.Graphs.from_networkx(tree, [1])


def test_one_tree_in_place_of_a_list():
    with refused(windrow.MisuseError, "trees is a tuple, which is one tree; expected a list: [tree]"):
        windrow.Graphs.from_nested(tree, ((0, 1), 2))
    with refused(TypeError, "trees is a str; expected a list of trees: windrow.parse_brackets()"):
        windrow.Graphs.from_nested(tree, "(3 (2 It) (4 works))")
    with refused(windrow.MisuseError, "'a' is text; expected numbers, or `words`"):
        windrow.Graphs.from_nested(tree, [("a", "b")])
    # Without labels, for predictions.
    (graph,) = windrow.Graphs.from_nested(tree, [((0, 1), 2)])
    assert graph.index("label").tolist() == [-1] * 5


# Runners


def test_given_names():
    runner = windrow.Runner(tree, PARAMETERS)
    with refused(windrow.MisuseError, "tree: is given 'foo', which it does not pull; expected none"):
        runner.run(leaves(), {"foo": np.ones((6, 2))})

    @windrow.vertex_function(name="reads")
    def reads(v):
        v.push("y", v.pull_row("x", 2) * 2)

    graphs = windrow.Graphs.from_lists(reads, [{"children": [[]]}])
    runner = windrow.Runner(reads, PARAMETERS)
    with refused(windrow.MisuseError, "is given 'y', which it does not pull; expected 'x'"):
        runner.record(graphs, ["y"], {"x": np.ones((1, 2)), "y": np.ones((1, 2))})
    with refused(TypeError, "'x' is a tuple of 3; expected a tensor"):
        runner.run(graphs, {"x": (np.ones((1, 2)), [0], 1)})
    with refused(TypeError, "tensors are given by an int; expected names"):
        runner.run(graphs, {1: np.ones((1, 2))})


def test_arguments_of_runners():
    with refused(TypeError, "Runner: function is a Parameters; expected a VertexFunction, and then its parameters"):
        windrow.Runner(PARAMETERS, tree)
    with refused(TypeError, "Runner: parameters is None; expected Parameters"):
        windrow.Runner(tree, None)
    runner = windrow.Runner(tree, PARAMETERS)
    with refused(TypeError, "given is a list; expected a mapping"):
        runner.run(leaves(), [1])
    with refused(TypeError, "minibatch is a Graphs; expected a Minibatch"):
        runner.backward(leaves(), {})


def test_function_without_brackets():
    assert doubled.name == "doubled"
    graphs = windrow.Graphs.from_lists(doubled, [{"children": [[]], "x": [[1, 2]]}])
    assert windrow.Runner(doubled, PARAMETERS).run(graphs)["y"].tolist() == [[2, 4]]
    for wrong in (True, -1, "some", 1.0):
        with refused(TypeError, "expected a number of children, or 'any'"):
            windrow.vertex_function(wrong)


# Optimisers


def test_step_before_gradients():
    parameters = windrow.Parameters(seed=1)
    w = parameters.add("w", 2, 2)
    optimiser = windrow.Adam(parameters, 0.1)
    with refused(windrow.MisuseError, "step: a step before any gradients; expected Runner.differentiate()"):
        optimiser.step(1)
    with refused(windrow.MisuseError, "sgd: a step before any gradients"):
        parameters.sgd(0.1)
    parameters.set_gradient(w, windrow.full(2, 2, 1.0))
    optimiser.step(1)
    assert optimiser.steps == 1


def values_after(optimiser_of):
    parameters = windrow.Parameters(seed=1)
    w = parameters.add("w", 2, 2)
    optimiser = optimiser_of(parameters)
    for _ in range(3):
        parameters.begin_minibatch()
        parameters.add_gradient(w, windrow.tensor([[1.0, -2.0], [0.5, 0.0]]))
        optimiser.step(1)
    return w.numpy().tolist()


@pytest.mark.parametrize(
    ("kind", "torch_names", "own_names"),
    [
        ("Sgd", {"lr": 0.2, "weight_decay": 0.1}, {"rate": 0.2, "penalty": 0.1}),
        ("Momentum", {"lr": 0.2, "weight_decay": 0.1, "momentum": 0.5}, {"rate": 0.2, "penalty": 0.1, "momentum": 0.5}),
        ("Adagrad", {"eps": 1e-3, "initial_accumulator_value": 0.5}, {"epsilon": 1e-3, "initial": 0.5}),
        ("RmsProp", {"alpha": 0.5, "eps": 1e-3}, {"smoothing": 0.5, "epsilon": 1e-3}),
        (
            "Adam",
            {"lr": 0.2, "betas": (0.5, 0.6), "eps": 1e-3, "weight_decay": 0.1},
            {"rate": 0.2, "first": 0.5, "second": 0.6, "epsilon": 1e-3, "penalty": 0.1},
        ),
        ("AdamW", {"lr": 0.2, "weight_decay": 0.5}, {"rate": 0.2, "decay": 0.5}),
    ],
)
def test_names_of_torch(kind, torch_names, own_names):
    make = getattr(windrow, kind)
    assert values_after(lambda of: make(of, **torch_names)) == values_after(lambda of: make(of, **own_names))
    assert values_after(lambda of: make(of, **torch_names)) != values_after(lambda of: make(of))


def test_options_of_optimisers():
    parameters = windrow.Parameters()
    with refused(TypeError, "Sgd() got an option 'momentum' (windrow.Momentum has it); expected one of: rate, penalty"):
        windrow.Sgd(parameters, 0.1, momentum=0.9)
    with refused(TypeError, "Adam() got an option 'amsgrad'; expected one of: rate, first, second, epsilon, penalty"):
        windrow.Adam(parameters, amsgrad=True)
    with refused(TypeError, "Adam() got 'lr' and 'rate', which mean the same"):
        windrow.Adam(parameters, 0.1, lr=0.1)
    with refused(TypeError, "AdamW() got 'weight_decay' and 'decay', which mean the same"):
        windrow.AdamW(parameters, weight_decay=0.1, decay=0.2)
    with refused(TypeError, "betas = (0.9,); expected 2 numbers"):
        windrow.Adam(parameters, betas=(0.9,))
    with refused(TypeError, "Adam: parameters is a list; expected windrow.Parameters"):
        windrow.Adam([OUT])
    with refused(TypeError, "Adam: rate is a str; expected a number or a windrow.LearningRate"):
        windrow.Adam(parameters, "fast")
    with refused(TypeError, "Adam: clip_norm is a str; expected a number or None"):
        windrow.Adam(parameters, clip_norm="5")
    with refused(TypeError, "step: samples is a Graphs; expected the number of samples"):
        windrow.Adam(parameters).step(leaves())
    assert "rate 0.1" in repr(windrow.Adam(parameters, np.float32(0.1), clip_norm=np.float64(1)))


# Checkpoints


def test_arguments_of_checkpoints(tmp_path):
    writer = windrow.CheckpointWriter(tmp_path / "run")
    with refused(TypeError, "write: snapshot is a Parameters; expected a windrow.Snapshot"):
        writer.write(1, PARAMETERS)
    with refused(TypeError, "write: record is a list; expected a mapping"):
        writer.write(1, windrow.Snapshot(PARAMETERS), [1])
    with refused(TypeError, "a record has a bool; expected str, int, float, list or dict, such as 0 and 1"):
        writer.write(1, windrow.Snapshot(PARAMETERS), {"x": True})
    record = {"n": None, "f": np.float32(0.5), "i": np.int64(3), "a": np.arange(3), "d": {"n": None, "k": 1}}
    writer.write(1, windrow.Snapshot(PARAMETERS), record)
    read = windrow.CheckpointFolder(tmp_path / "run").load(1).record
    assert {name: read.get(name) for name in record} == {"n": None, "f": 0.5, "i": 3, "a": [0, 1, 2], "d": {"k": 1}}


def test_missing_folders(tmp_path):
    folder = windrow.CheckpointFolder(tmp_path / "none")
    for call in (folder.steps, folder.newest, lambda: folder.load(1)):
        with refused(windrow.FileError, "none: no such folder; expected one that a CheckpointWriter has made"):
            call()
    PARAMETERS.save(tmp_path / "own")
    with refused(windrow.FileError, "own: has a checkpoint of parameters, and not of a model"):
        windrow.load_model(tmp_path / "own")


# Lazy expressions


def test_arguments_of_lazy_graphs():
    graph = windrow.LazyGraph(PARAMETERS)
    with refused(TypeError, "input: values are a float; expected a list of numbers"):
        graph.input(1.0)
    with refused(TypeError, "index: value is a str; expected an integer of 32 bits, or a list of them"):
        graph.index("a")
    with refused(TypeError, "backward: losses are an int; expected a LazyExpr"):
        graph.backward(1)
    with refused(TypeError, "backward: a loss is an int; expected a LazyExpr"):
        graph.backward([1])
    with refused(TypeError, "run: sample 0 is a function; expected a coroutine: call it"):
        graph.run([lambda: None])
    with refused(TypeError, "value: expression is an int; expected a LazyExpr"):
        windrow.value(1)
    assert graph.input(np.ones(3, dtype=np.float32)).value() == [1, 1, 1]
    with refused(TypeError, "columns of an expression by an object of type int; expected a slice"):
        graph.zeros(3)[0]
    with refused(TypeError, "columns of an expression by an object of type int"):
        windrow.vertex_function(lambda v: v.pull("x", 2)[0])


def test_values_in_asyncio():
    graph = windrow.LazyGraph(PARAMETERS)

    async def sample():
        return await windrow.value(graph.input([1.0]) * 2)

    with pytest.raises(RuntimeError, match="expected in a sample that LazyGraph.run"):
        asyncio.run(sample())
    assert graph.run([sample()]) == [[2.0]]


# Functions that do not run


async def runs_later():
    raise AssertionError


def yields():
    yield 1


@pytest.mark.parametrize("function", [runs_later, yields, lambda: runs_later()])
def test_ops_that_do_not_run(engine, function):
    x = engine.var("x")
    engine.push(function, overwrite=x, name="later")
    with pytest.raises(windrow.OpError, match="op 'later'.*async or has a yield.*nothing of it has run") as raised:
        engine.wait(x)
    assert isinstance(raised.value.__cause__, TypeError)
    engine.heal(raised.value)
    with refused(TypeError, "the function of a capture is async"):
        engine.capture(runs_later)


def test_bodies_that_do_not_run():
    async def body(v):
        v.push("y", v.pull("x"))

    with pytest.raises(TypeError, match="the function of a body is async"):
        windrow.vertex_function(arity=1)(body)


def test_names_of_ops(engine):
    def fails():
        raise ValueError("bad")

    x = engine.var("x")
    for function, name in ((fails, "fails"), (lambda: fails(), "op")):
        engine.push(function, overwrite=x)
        with pytest.raises(windrow.OpError, match=f"op '{name}'") as raised:
            engine.wait(x)
        engine.heal(raised.value)
    engine.push(fails, overwrite=x, name="given")
    with pytest.raises(windrow.OpError, match="op 'given'"):
        engine.wait(x)
    engine.heal(x)


def test_a_rate_below_zero():
    parameters = windrow.Parameters()
    parameters.add("w", 1, 1)
    for rate in (-1.0, float("nan")):
        with refused(windrow.MisuseError, "expected a number, 0 or more"):
            windrow.Adam(parameters, rate)
