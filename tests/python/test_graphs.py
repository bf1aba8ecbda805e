"""Graphs from arrays and from objects of Python."""

import numpy as np
import pytest

import windrow


def word_function(arity=2):
    """Pulls an optional word, a label, and values of width 2."""

    @windrow.vertex_function(arity=arity)
    def function(v):
        state = v.state("s", 2)
        below = v.gather(0, state) + v.gather(1, state) if arity == 2 else windrow.sum_children(v.each(state))
        v.scatter(state, below + v.pull("x", 2))
        v.pull_index("word", optional=True)
        v.pull_index("label")

    return function


FUNCTION = word_function()
# (It works) and (Fine): three vertices and one.
DATA = {
    "offsets": [0, 3, 4],
    "child_offsets": [0, 0, 0, 2, 2],
    "children": [0, 1],
    "word": [5, 8, -1, 2],
    "label": [1, 2, 3, 4],
    "x": [[1, 2], [3, 4], [5, 6], [7, 8]],
}


def graphs_of(function=FUNCTION, **changes):
    return windrow.Graphs.from_arrays(function, **{**DATA, **changes})


def children_of(graph):
    offsets, children, _ = graph.structure()
    return [children[offsets[v] : offsets[v + 1]].tolist() for v in range(graph.vertices)]


def test_arrays_of_any_type_and_stride_give_the_same_graphs():
    plain = graphs_of()
    assert [g.index("word").tolist() for g in plain] == [[5, 8, -1], [2]]
    assert [children_of(g) for g in plain] == [[[], [], [0, 1]], [[]]]
    for kind in (np.int8, np.int16, np.int32, np.int64):
        spread = {}
        for name in ("offsets", "child_offsets", "children", "word", "label"):
            wide = np.zeros((len(DATA[name]), 3), kind)
            wide[:, 1] = DATA[name]
            spread[name] = wide[:, 1]
        x = np.asfortranarray(np.array(DATA["x"], np.float64))
        x.flags.writeable = False
        same = graphs_of(**spread, x=x)
        assert [g.index("word").tolist() for g in same] == [[5, 8, -1], [2]]
        assert [children_of(g) for g in same] == [children_of(g) for g in plain]


def test_children_may_be_a_matrix_and_be_numbered_through_the_corpus():
    matrix = [[-1, -1], [-1, -1], [0, 1], [-1, -1]]
    assert [children_of(g) for g in graphs_of(child_offsets=None, children=matrix)] == [[[], [], [0, 1]], [[]]]
    reordered = {"offsets": [0, 1, 4], "child_offsets": [0, 0, 0, 0, 2], "children": [1, 2]}
    assert [children_of(g) for g in graphs_of(**reordered, numbering="corpus")] == [[[]], [[], [], [0, 1]]]
    with pytest.raises(windrow.MisuseError, match="sample 1: child 0 is in another sample; expected 1 to 3"):
        graphs_of(**{**reordered, "children": [0, 2]}, numbering="corpus")


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"offsets": [0, 3]}, "'offsets' ends with 3; expected 4, the number of vertices"),
        ({"offsets": [1, 3, 4]}, "'offsets' begins with 1; expected 0"),
        ({"offsets": []}, "'offsets' is empty"),
        ({"child_offsets": [0, 2, 1, 2, 2]}, "'child_offsets' falls from 2 to 1 at element 2"),
        ({"children": [0, 7]}, "sample 0: vertex 2, child 1: there is no vertex 7; expected 0 to 2"),
        ({"children": [0, 2]}, "sample 0: vertex 2 is its own descendant"),
        ({"word": [1.5] * 4}, "'word' has floats; expected integers, since function pulls it as an index"),
        ({"word": [1, 2]}, "'word' has 2 rows of width 1; expected 4 of width 1"),
        ({"word": [5, 8, -1, 2**40]}, "sample 1: 'word' has a number beyond 32 bits in row 0"),
        ({"x": [1, 2, 3, 4]}, "'x' has 4 rows of width 1; expected 4 of width 2"),
        ({"wrod": [1, 2, 3, 4]}, "function pulls no input 'wrod'; expected 'x', 'word', 'label'"),
        ({"kinds": [0, 0, 0, 1]}, "sample 1: vertex 0 is of kind 1"),
        ({"numbering": "x"}, "numbering = 'x'; expected 'sample' or 'corpus'"),
        ({"child_offsets": None}, "expected \\(vertices, arity\\) without child_offsets"),
    ],
)
def test_errors_name_what_does_not_fit(changes, text):
    with pytest.raises(windrow.MisuseError, match=text):
        graphs_of(**changes)


def test_a_missing_input_and_a_label_out_of_range_are_named():
    without = {name: data for name, data in DATA.items() if name != "label"}
    with pytest.raises(windrow.MisuseError, match="sample 0: has no input 'label', which function pulls"):
        windrow.Graphs.from_arrays(FUNCTION, **without)
    parameters = windrow.Parameters()
    table = parameters.add("table", 3, 1)

    @windrow.vertex_function()
    def look_up(v):
        v.push("row", windrow.embedding(table, v.pull_index("word")))

    with pytest.raises(windrow.MisuseError, match="sample 2: vertex 0: 'word' is 3; expected 0 to 2"):
        windrow.Graphs.from_arrays(look_up, [0, 1, 2, 3], [0, 0, 0, 0], [], word=[0, 2, 3])


@pytest.mark.parametrize("wrong", ["abc", object(), None, 3, float("nan"), [[0]], [0j], ["a"], np.array(1)])
@pytest.mark.parametrize("name", ["offsets", "child_offsets", "children", "word", "x"])
def test_wrong_types_raise_an_error(name, wrong):
    if name == "child_offsets" and wrong is None:
        return
    with pytest.raises((TypeError, windrow.MisuseError)):
        graphs_of(**{name: wrong})


def test_graphs_are_a_sequence():
    graphs = graphs_of() + graphs_of()
    assert len(graphs) == 4 and graphs.vertices == 8
    assert [g.vertices for g in graphs] == [3, 1, 3, 1]
    assert graphs[-1].vertices == 1 and [g.vertices for g in graphs[::2]] == [3, 3]
    assert [g.vertices for g in graphs[[1, 0, 1]]] == [1, 3, 1]
    assert isinstance(graphs[1:], windrow.Graphs) and len(windrow.Graphs(list(graphs))) == 4
    assert (graphs[0].levels, graphs[0].level(2), graphs[0].edges) == (2, 1, 2)
    for wrong in (4, -5):
        with pytest.raises(IndexError):
            graphs[wrong]
    with pytest.raises(TypeError, match="expected Graphs, or a list of InputGraph"):
        windrow.Graphs([1])


def test_shuffled_minibatches_have_each_graph_once_and_the_same_order_for_a_seed():
    graphs = windrow.Graphs.from_arrays(
        FUNCTION,
        np.arange(51),
        np.zeros(51, int),
        np.zeros(0, int),
        word=np.arange(50),
        label=np.zeros(50, int),
        x=np.zeros((50, 2)),
    )

    def words(seed):
        return [[int(g.index("word")[0]) for g in batch] for batch in graphs.minibatches(8, shuffle=seed)]

    assert words(3) == words(3) != words(4)
    assert sorted(sum(words(3), [])) == list(range(50)) and [len(b) for b in words(3)] == [8] * 6 + [2]
    assert [[int(g.index("word")[0]) for g in b] for b in graphs.minibatches(32)] == [
        list(range(32)),
        list(range(32, 50)),
    ]
    with pytest.raises(windrow.MisuseError, match="minibatches of 0 graphs"):
        graphs.minibatches(0)


@windrow.vertex_function(arity="any")
def TREE(v):
    state = v.state("s", 1)
    v.scatter(state, windrow.sum_children(v.each(state)) + v.constant(1, 1))
    v.pull_index("word", optional=True)
    v.pull_index("label", optional=True)


def numbers(graph):
    return graph.index("word").tolist(), graph.index("label").tolist(), children_of(graph)


def test_nested_tuples_have_words_labels_and_children():
    (graph,) = windrow.Graphs.from_nested(TREE, [(3, (2, "It"), (4, "works"))], {"It": 1, "works": 2}, labels=int)
    assert numbers(graph) == ([1, 2, -1], [2, 4, 3], [[], [], [0, 1]])
    (graph,) = windrow.Graphs.from_nested(TREE, [(("the", "cat"), "the")], {"the": 1, "cat": 2}.get)
    assert numbers(graph) == ([1, 2, -1, 1, -1], [-1] * 5, [[], [], [0, 1], [], [2, 3]])
    with pytest.raises(windrow.MisuseError, match="'dog' is not in `words`"):
        windrow.Graphs.from_nested(TREE, ["dog"], {"cat": 1})


def test_trees_deeper_than_the_stack_of_python_are_read():
    tree = "x"
    for _ in range(20_000):
        tree = (tree,)
    (graph,) = windrow.Graphs.from_nested(TREE, [tree], {"x": 1})
    assert graph.levels == 20_001


def test_nltk_trees_need_no_import_of_nltk():
    class Tree(list):  # as nltk.Tree
        def __init__(self, label, children):
            super().__init__(children)
            self._label = label

        def label(self):
            return self._label

    tree = Tree("S", [Tree("NP", [Tree("DT", ["the"]), Tree("NN", ["cat"])]), Tree("VP", ["sat"])])
    words = windrow.Vocabulary(["the", "cat", "sat"])
    labels = windrow.Vocabulary(["S", "NP", "DT", "NN", "VP"])
    (graph,) = windrow.Graphs.from_nested(TREE, [tree], words, labels)
    (same,) = windrow.Graphs.from_nested(
        TREE, windrow.parse_brackets("(S (NP (DT the) (NN cat))\n (VP sat))"), words, labels
    )
    assert numbers(graph) == numbers(same) == ([1, 2, -1, 3, -1], [3, 4, 2, 5, 1], [[], [], [0, 1], [], [2, 3]])


def test_objects_may_be_shared():
    import ast

    root = ast.parse("f(x) + f(x)", mode="eval").body
    kinds = {"BinOp": 1, "Call": 2, "Name": 3, "Add": 4, "Load": 5}

    def inputs(node):
        return {"word": kinds[type(node).__name__]}

    (tree,) = windrow.Graphs.from_objects(TREE, [root], ast.iter_child_nodes, inputs)
    (shared,) = windrow.Graphs.from_objects(TREE, [root], ast.iter_child_nodes, inputs, shared=True)
    assert tree.index("word").tolist().count(5) == 4 and shared.index("word").tolist().count(5) == 1
    ring = [1]
    ring.append(ring)
    with pytest.raises(windrow.MisuseError, match="sample 0: .* is below itself; expected no cycle"):
        windrow.Graphs.from_objects(TREE, [ring], lambda node: node if isinstance(node, list) else (), lambda node: {})


def test_an_exception_of_a_callback_is_raised_as_it_is():
    with pytest.raises(KeyError, match="missing"):
        windrow.Graphs.from_objects(TREE, [1], lambda node: (), lambda node: {}["missing"])


def test_networkx_graphs():
    networkx = pytest.importorskip("networkx")

    @windrow.vertex_function(arity="any")
    def function(v):
        state = v.state("s", 1)
        v.scatter(state, windrow.sum_children(v.each(state) * v.pull_edge("weight")) + v.pull("x"))
        v.push("s", windrow.sum_children(v.each(state) * 1))
        v.pull_index("word", optional=True)

    graph = networkx.DiGraph()
    graph.add_node("root", x=1.0, word=7)
    graph.add_nodes_from(["a", "b"])
    graph.nodes["a"]["x"], graph.nodes["b"]["x"] = 2.0, 3.0
    graph.add_edge("root", "b", weight=0.5)
    graph.add_edge("root", "a", weight=2.0)
    (down,) = windrow.Graphs.from_networkx(function, [graph])
    (up,) = windrow.Graphs.from_networkx(function, [graph], children="predecessors")
    assert children_of(down) == [[2, 1], [], []] and children_of(up) == [[], [0], [0]]
    assert down.index("word").tolist() == [7, -1, -1]
    output = windrow.Runner(function, windrow.Parameters()).run([down, up]).output("s")
    assert output.tolist() == [[5.0], [0.0], [0.0], [0.0], [1.0], [1.0]]

    several = networkx.MultiDiGraph()
    several.add_node("root", x=0.0)
    several.add_node("a", x=1.0)
    for weight in (10.0, 5.0):
        several.add_edge("root", "a", weight=weight)
    for how in ("successors", "predecessors"):
        (made,) = windrow.Graphs.from_networkx(
            function, [several if how == "successors" else several.reverse()], children=how
        )
        assert children_of(made) == [[1, 1], []]
        assert windrow.Runner(function, windrow.Parameters()).run([made]).output("s").tolist() == [[2.0], [0.0]]

    with pytest.raises(windrow.MisuseError, match="objects have no inputs of edges, such as 'weight', which function"):
        windrow.Graphs.from_objects(function, [1], lambda node: (), lambda node: {"x": 1.0, "weight": 2.0})


def test_lists_name_the_sample():
    sample = {"children": [[], [0]], "word": [1, None], "label": [0, 0]}
    assert numbers(windrow.Graphs.from_lists(TREE, [sample])[0]) == ([1, -1], [0, 0], [[], [0]])
    with pytest.raises(windrow.MisuseError, match="sample 1: 'word' has 1 rows; expected 2"):
        windrow.Graphs.from_lists(TREE, [sample, {**sample, "word": [1]}])


def test_treebanks_are_read_as_in_cpp():
    trees = windrow.Treebank(text="(3 (2 It) (4 works))\n(1 (0 Not) (2 (2 at) (2 all)))\n")
    words = trees.vocabulary()
    graphs = trees.graphs(TREE, words)
    assert (len(trees), words.words) == (2, ["It", "works", "Not", "at", "all"])
    assert numbers(graphs[0]) == ([1, 2, -1], [2, 4, 3], [[], [], [0, 1]])
    assert len(trees.with_two_labels()) == 2
    with pytest.raises(windrow.DataError, match="text:1:20: the line ends inside a tree"):
        windrow.Treebank(text="(3 (2 It) (4 works)")
    with pytest.raises(windrow.DataError, match="no such file"):
        windrow.Treebank("does/not/exist")
    with pytest.raises(windrow.DataError, match="line 2: '\\)' without '\\('"):
        windrow.parse_brackets("(A b)\n)")


def test_dependencies_become_graphs():
    rows = ["1\tthey\t_\tPRON\t_\t_\t2\tnsubj\t_\t_", "2\tsat\t_\tVERB\t_\t_\t0\troot\t_\t_"]
    treebank = windrow.DependencyTreebank(text="\n".join(rows) + "\n\n")
    (graph,) = treebank.graphs(TREE_OF_WORDS, words=treebank.vocabulary(), relations=treebank.vocabulary("relations"))
    assert graph.index("word").tolist() == [1, 2] and graph.index("relation").tolist() == [1, 2]
    assert children_of(graph) == [[], [0]] and treebank[0].heads == [2, 0]


@windrow.vertex_function(arity="any")
def TREE_OF_WORDS(v):
    state = v.state("s", 1)
    v.scatter(state, windrow.sum_children(v.each(state)) + v.constant(1, 1))
    v.pull_index("word")
    v.pull_index("relation")


def test_graphs_show_in_notebooks():
    graphs = graphs_of()
    svg = graphs[0]._repr_svg_()
    assert svg.startswith("<svg") and svg.count("<circle") == 3 and svg.count("<line") == 2
    assert "0 -> 2;" in graphs[0].dot() and "2 graphs" in graphs._repr_html_()
    assert repr(graphs) == "<windrow.Graphs, 2 graphs, 4 vertices>"


@pytest.mark.filterwarnings("ignore:nanobind")
def test_objects_that_were_never_made_are_refused():
    class Mine(windrow.Graphs):
        def __init__(self):
            pass

    graphs = Mine()
    for call in (
        lambda: graphs[0],
        lambda: len(graphs),
        lambda: graphs.minibatches(1),
        lambda: graphs + graphs,
        lambda: windrow.Graphs(graphs),
        lambda: windrow.Graphs([windrow.InputGraph.__new__(windrow.InputGraph)]),
        lambda: Runner_of_nothing().run(graphs_of()),
        lambda: windrow.Graphs._from_arrays(int, FUNCTION, [0], [0], [], None, {}, False),
        lambda: windrow.VertexFunction._trace(int, "f", 0, 0, 1, lambda v: None),
    ):
        with pytest.raises((TypeError, RuntimeError)):
            call()


class Runner_of_nothing(windrow.Runner):
    def __init__(self):
        pass
