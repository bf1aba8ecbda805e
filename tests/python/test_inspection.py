"""Containers behave like those of Python, and objects have an informative repr."""

import pickle

import pytest

import windrow
import windrow._windrow

np = pytest.importorskip("numpy")

SENTIMENT = "(3 (2 It) (4 works))\n(1 (2 no) (2 good))\n(2 (2 a) (3 (2 b) (2 c)))\n"
CONLLU = """1\tIt\tit\tPRON\t_\t_\t2\tnsubj\t_\t_
2\tworks\twork\tVERB\t_\t_\t0\troot\t_\t_

1\tGo\tgo\tVERB\t_\t_\t0\troot\t_\t_

1\tStop\tstop\tVERB\t_\t_\t0\troot\t_\t_

"""


def parameters_of_two():
    parameters = windrow.Parameters(seed=1, name="two")
    parameters.add("w", (3, 2))
    parameters.add("bias", 1, 2, "zeros")
    return parameters


def minibatch_of(parameters, vertices=2):
    @windrow.vertex_function
    def doubled(v):
        x = v.pull("x", 2)
        v.push("twice", x * 2)
        v.push("sum", windrow.row_sum(x + parameters["bias"]))

    graphs = windrow.Graphs.from_lists(doubled, [{"children": [[]], "x": [[i, 1]]} for i in range(vertices)])
    return windrow.Runner(doubled, parameters), graphs


def test_parameters_as_mapping():
    parameters = parameters_of_two()
    assert parameters.keys() == parameters.names() == ["w", "bias"]
    assert [parameter.name for parameter in parameters.values()] == ["w", "bias"]
    assert [name for name, _ in parameters.items()] == ["w", "bias"]
    assert {name: parameter.shape for name, parameter in dict(parameters).items()} == {"w": (3, 2), "bias": (1, 2)}
    assert "w" in parameters and "v" not in parameters
    assert np.array_equal(parameters["w"].numpy(), parameters["w"].value.numpy())


def test_parameters_with_tensors():
    w = windrow.Parameters().add("w", [[1.0, 2.0], [3.0, 4.0]])
    x = windrow.tensor([[1.0, 1.0]])
    assert (x @ w).tolist() == [[4, 6]] and (w @ windrow.transpose(x)).tolist() == [[3], [7]]
    assert (x - w).tolist() == [[0, -1], [-2, -3]] and (w - x).tolist() == [[0, 1], [2, 3]]
    with windrow.Tape() as tape:
        tape.watch(w.value)
        y = x @ w
    tape.backward(y)
    assert tape.gradient(w.value).tolist() == [[1, 1], [1, 1]]


def test_parameters_are_saved_and_loaded(tmp_path):
    parameters, other = parameters_of_two(), windrow.Parameters(seed=2, name="two")
    other.add("w", 3, 2)
    other.add("bias", 1, 2, 1.0)
    for factor in (1, 2):
        parameters["w"].value = np.full((3, 2), factor)
        parameters.save(tmp_path / "weights")
        other.load(tmp_path / "weights")
        assert other["w"].numpy().tolist() == [[factor] * 2] * 3
        assert other["bias"].numpy().tolist() == [[0, 0]]
    with pytest.raises(windrow.FileError, match="'more'"):
        other.add("more", 1, 1)
        other.load(tmp_path / "weights")

    writer = windrow.CheckpointWriter(tmp_path / "run")
    writer.write(3, windrow.Snapshot(parameters, windrow.Adam(parameters)))
    del writer
    parameters["w"].value = np.zeros((3, 2))
    with pytest.raises(
        windrow.FileError, match="has checkpoints of a training; expected a folder for parameters alone"
    ):
        parameters.save(tmp_path / "run")
    parameters.load(tmp_path / "run")
    assert parameters["w"].numpy().tolist() == [[2, 2]] * 3
    (tmp_path / "empty").mkdir()
    with pytest.raises(windrow.FileError, match="empty: has no checkpoint; expected one of save"):
        parameters.load(tmp_path / "empty")


def test_outputs_by_name():
    runner, graphs = minibatch_of(parameters_of_two())
    minibatch = runner.run(graphs)
    assert minibatch.names == list(minibatch) == ["twice", "sum"]
    assert minibatch["twice"].tolist() == [[0, 2], [2, 2]]
    assert "sum" in minibatch and "loss" not in minibatch
    with pytest.raises(windrow.MisuseError, match="loss"):
        minibatch["loss"]


def test_batches_of_a_function_without_loss():
    runner, graphs = minibatch_of(parameters_of_two())
    try:
        batches = runner.batches(graphs)
    except windrow.MisuseError:
        pytest.skip("a build with an older library")
    assert [batch.width for batch in batches] == [2]


def test_treebanks():
    trees = windrow.Treebank(text=SENTIMENT)
    assert trees[0] == (3, (2, "It"), (4, "works"))
    assert trees[-1] == (2, (2, "a"), (3, (2, "b"), (2, "c")))
    assert list(trees) == [trees[0], trees[1], trees[2]] == trees[:]
    assert trees[::-2] == [trees[2], trees[0]]
    assert trees.words(-1)[0] == "a"
    with pytest.raises(IndexError, match="tree 3; expected -3 to 2"):
        trees[3]

    @windrow.vertex_function(arity=2)
    def cell(v):
        v.push("y", windrow.row_sum(v.constant(1, 0.0) + v.zeros(1)))
        v.pull_index("word", optional=True), v.pull_index("label")

    words = trees.vocabulary()
    for graph, same in zip(trees.graphs(cell, words), windrow.Graphs.from_nested(cell, list(trees), words, labels=int)):
        assert graph.index("word").tolist() == same.index("word").tolist()
        assert graph.index("label").tolist() == same.index("label").tolist()


def test_dependency_treebanks():
    treebank = windrow.DependencyTreebank(text=CONLLU)
    assert [sentence.forms for sentence in treebank[:2]] == [["It", "works"], ["Go"]]
    assert treebank[-1].forms == ["Stop"]
    assert len(list(treebank)) == 3
    with pytest.raises(IndexError, match="sentence -4; expected -3 to 2"):
        treebank[-4]
    assert repr(treebank[0]) == "<windrow.DependencySentence of 2 words: It works>"
    assert repr(treebank) == "<windrow.DependencyTreebank, 3 sentences>"


def test_vocabularies():
    words = windrow.Vocabulary("the cat sat on the mat".split())
    assert list(words) == words.words == ["the", "cat", "sat", "on", "mat"]
    assert [words.word(number) for number in range(len(words))] == ["", *words]
    for number in (-1, 6):
        with pytest.raises(IndexError, match=f"word {number}; expected 0 to 5"):
            words.word(number)
    same = pickle.loads(pickle.dumps(words))
    assert same.words == words.words and same["sat"] == words["sat"]
    assert repr(windrow.Vocabulary(["a"])) == "<windrow.Vocabulary of 1 word>"


def test_counts():
    runner, graphs = minibatch_of(parameters_of_two(), 1)
    assert repr(graphs) == "<windrow.Graphs, 1 graph, 1 vertex>"
    assert repr(graphs[0]) == "<windrow.InputGraph, 1 vertex, 1 level>"
    assert "<p>1 graph, 1 vertex</p>" in graphs._repr_html_()
    runner.run(graphs)
    assert repr(runner.stats()).startswith("<windrow.RunnerStats: 1 minibatch, 1 vertex, ")


def test_reprs(tmp_path, engine):
    parameters = parameters_of_two()
    runner, graphs = minibatch_of(parameters)
    graph = windrow.LazyGraph(parameters)
    writer = windrow.CheckpointWriter(tmp_path / "run")
    writer.write(3, windrow.Snapshot(parameters))
    folder = windrow.CheckpointFolder(tmp_path / "run")
    stop = windrow.Stop()

    @windrow.static
    def program(x):
        return x * 2

    grid = windrow.TypedGraph([0, 0], [0, 0, 1], [0])
    texts = {
        "<windrow.Parameters, 'two', 2 parameters, 8 elements>": parameters,
        "<windrow.Runner of 'doubled', schedule 'level'>": runner,
        "<windrow.Minibatch, 2 vertices, outputs 'twice', 'sum'>": runner.run(graphs),
        "<windrow.Adam of 2 parameters, rate 0.5>": windrow.Adam(parameters, 0.5),
        "<windrow.Averages of 2 parameters>": windrow.Averages(parameters),
        "<windrow.LearningRate, 0.5 at step 0, 0.25 at step 1000>": windrow.LearningRate.steps(0.5, 1000, 0.5),
        "<windrow.Plateau, best inf of 0 reports, factor 1 so far>": windrow.Plateau(),
        "<windrow.LazyGraph of 2 parameters>": graph,
        "<windrow.LazyExpr, width 3>": graph.zeros(3),
        "<windrow.LazyIndex>": graph.index(1),
        "<windrow.LazyStats: 0 expressions, 0 vertices, 0 flushes, 0 batches>": graph.stats(),
        f"<windrow.CheckpointWriter '{tmp_path / 'run'}'>": writer,
        f"<windrow.CheckpointFolder '{tmp_path / 'run'}'>": folder,
        "<windrow.SavedCheckpoint of step 3, 2 tensors>": folder.load(3),
        "<windrow.Snapshot, 2 tensors>": windrow.Snapshot(parameters),
        "<windrow.Treebank, 3 trees>": windrow.Treebank(text=SENTIMENT),
        "<windrow.Stop, not requested>": stop,
        "<windrow.EngineStats: 0 pushed, 0 pending, 0 failed, 0 skipped, 0 cancelled, 0 waits>": engine.stats(),
        "<windrow.Graph, 0 ops>": engine.capture(lambda: None),
        "<windrow.Static 'program'>": program,
        "<windrow.TypedGraph, 2 vertices, 1 type>": grid,
        "<windrow.Schedule, 2 vertices in 2 batches>": windrow.make_schedule(grid),
    }
    for text, what in texts.items():
        assert repr(what) == text
    assert repr(engine.var("x")).startswith("<windrow.Var ")


def test_all_public_classes_have_reprs():
    classes = [value for name, value in vars(windrow).items() if isinstance(value, type) and name in windrow.__all__]
    without = {
        kind.__name__ for kind in classes if kind.__repr__ is object.__repr__ and not issubclass(kind, Exception)
    }
    assert without <= {"Draw", "Generator", "StaticStats", "Tape", "Window2d"}
