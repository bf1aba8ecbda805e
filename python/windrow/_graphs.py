"""Graphs from arrays, and from the trees and graphs of Python programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Literal, Mapping, Sequence

from . import _windrow
from ._checks import counted, type_name
from ._corpus import Corpus
from ._errors import MisuseError

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._typing import ArrayLike, Numbers
    from ._windrow import InputGraph, VertexFunction


class Graphs(_windrow.Graphs):
    """Input graphs of one vertex function, in order: a sequence of InputGraph.

    >>> graphs = windrow.Graphs.from_arrays(cell, offsets, child_offsets, children, word=words, label=labels)
    >>> for minibatch in graphs.minibatches(64, shuffle=epoch):
    ...     runner.differentiate(minibatch)

    ``graphs[3]`` is an InputGraph; ``graphs[10:20]`` and ``graphs[[3, 1, 4]]`` are Graphs, which share the graphs.
    Graphs are checked once, when they are made: if data do not fit, MisuseError names the sample and the vertex. Graphs
    are immutable, and any thread may use them. ``Graphs([...])`` takes a list of InputGraph.

    From:
        arrays              from_arrays: the fastest, for thousands of samples in one call
        lists               from_lists: for small data
        nested tuples, NLTK from_nested
        other objects       from_objects: a function gives the children of an object
        NetworkX            from_networkx
        files               Treebank, DependencyTreebank
    """

    __slots__ = ()

    def minibatches(self, size: int, shuffle: int | None = None) -> list[Self]:
        """The graphs in minibatches of `size` graphs, the last of which may be smaller.

        If `shuffle` is a seed, the graphs are in random order: pass another seed for each epoch. Equal seeds give equal
        minibatches on all platforms. Raises TypeError for True and False, which are not seeds.
        """
        if isinstance(shuffle, bool):
            raise TypeError(
                f"minibatches: shuffle = {shuffle}; expected None for the order of the graphs, or a seed for a random "
                "one, such as the number of the epoch"
            )
        return super().minibatches(size, shuffle)

    @classmethod
    def from_arrays(
        cls,
        function: VertexFunction,
        offsets: ArrayLike,
        child_offsets: ArrayLike | None,
        children: ArrayLike,
        *,
        kinds: ArrayLike | None = None,
        numbering: Literal["sample", "corpus"] = "sample",
        **inputs: ArrayLike,
    ) -> Self:
        """Makes the graphs of all samples in one call, without a Python loop.

        >>> # (It works), then (Fine): vertices 0, 1 and 2 of the first sample, vertex 0 of the second
        >>> windrow.Graphs.from_arrays(
        ...     cell, offsets=[0, 3, 4], child_offsets=[0, 0, 0, 2, 2], children=[0, 1], word=[5, 8, -1, 2]
        ... )

        Args:
            function: the vertex function that computes these graphs.
            offsets: (samples + 1,) sample s has the vertices offsets[s] to offsets[s + 1] - 1.
            child_offsets: (vertices + 1,) vertex v has the children children[child_offsets[v]] to
                children[child_offsets[v + 1] - 1]. If None, `children` is (vertices, arity), with -1 for missing ones.
            children: (edges,) the vertex number of each child, or -1 for a missing child.
            kinds: (vertices,) the number of the kind that computes each vertex, for a function of several kinds.
            numbering: whether children are numbered from 0 within each sample, or through all samples ('corpus').
            inputs: for each name that the function pulls, an array (vertices,) or (vertices, width): integers for an
                index, with -1 for a missing one, and any numbers for values. Inputs of edges have a row for each child.

        Arrays are NumPy arrays or others that exchange memory by DLPack, of any numeric type; lists work, too. The
        graphs hold copies.

        Raises MisuseError, naming sample and vertex, for data that do not fit together or that the function refuses.
        """
        known = function.inputs
        for name in inputs:
            if name not in known:
                listed = ", ".join(f"'{other}'" for other in known) or "none"
                raise MisuseError(f"from_arrays: {function.name} pulls no input '{name}'; expected {listed}")
        if numbering not in ("sample", "corpus"):
            raise MisuseError(f"from_arrays: numbering = {numbering!r}; expected 'sample' or 'corpus'")
        if child_offsets is None:
            import numpy

            table = numpy.asarray(children)
            if len(table.shape) != 2:
                raise MisuseError(
                    f"from_arrays: children have shape {tuple(table.shape)}; expected (vertices, arity) without "
                    "child_offsets"
                )
            vertices, arity = table.shape
            child_offsets = numpy.arange(vertices + 1, dtype=numpy.int64) * arity
            children = table.reshape(-1)
        return cls._from_arrays(cls, function, offsets, child_offsets, children, kinds, inputs, numbering == "corpus")

    @classmethod
    def from_lists(cls, function: VertexFunction, samples: Iterable[Mapping[str, Any]]) -> Self:
        """Makes a graph of each sample, a mapping of lists.

        >>> windrow.Graphs.from_lists(cell, [{"children": [[], [], [0, 1]], "word": [5, 8, -1], "label": [2, 4, 3]}])

        ``children`` has a list for each vertex; ``kinds`` and the inputs are as for from_arrays(). Raises MisuseError,
        naming the sample, for names that are missing, or that the function does not pull.
        """
        corpus = Corpus(function)
        if isinstance(samples, Mapping):
            raise TypeError(
                f"from_lists: samples is {type_name(samples)}; expected a list of mappings, one for each sample"
            )
        for number, sample in enumerate(samples):
            if not isinstance(sample, Mapping):
                raise TypeError(f"from_lists: sample {number} is {type_name(sample)}; expected a mapping of lists")
            if "children" not in sample:
                raise MisuseError(
                    f"sample {number}: has no 'children'; expected a list for each vertex, [] for one without children"
                )
            columns = {name: column for name, column in sample.items() if name not in ("children", "kinds")}
            corpus.require_pulled(number, columns)
            corpus.add_columns(number, sample["children"], sample.get("kinds"), columns)
        return corpus.graphs(cls)

    @classmethod
    def from_objects(
        cls,
        function: VertexFunction,
        roots: Iterable[Any],
        children: Callable[[Any], Iterable[Any]],
        inputs: Callable[[Any], Mapping[str, Any]],
        *,
        kind: Callable[[Any], int] | None = None,
        shared: bool = False,
    ) -> Self:
        """Makes a graph of each root and the objects below it, such as the nodes of a syntax tree.

        >>> import ast
        >>> windrow.Graphs.from_objects(
        ...     cell, programs, ast.iter_child_nodes, lambda node: {"type": types[type(node).__name__]}
        ... )

        Args:
            children: returns the children of an object, from the first to the last; None for a missing one.
            inputs: returns the inputs of an object: a number, or a row, for each name. A missing index becomes -1, and
                missing values become 0. At least one object must have each input that is not optional.
            kind: returns the kind of an object, for a function of several kinds.
            shared: whether an object that is reached several times is one vertex, for graphs in which vertices have
                several consumers; otherwise it becomes a new vertex each time.

        An object's vertex follows those of its children, so the root is the last vertex. Raises MisuseError for a name
        that the function does not pull, or that is missing for all objects.
        """
        corpus = Corpus(function)
        for number, root in enumerate(roots):
            corpus.add_object(number, root, children, inputs, kind, shared)
        corpus.require_given("object")
        return corpus.graphs(cls)

    @classmethod
    def from_nested(
        cls,
        function: VertexFunction,
        trees: Iterable[Any],
        words: Numbers | None = None,
        labels: Numbers | None = None,
        *,
        word: str = "word",
        label: str = "label",
    ) -> Self:
        """Makes a graph of each tree. A tree is a nested tuple or list, or a tree of NLTK.

        >>> windrow.Graphs.from_nested(cell, [(("the", "cat"), "sat")], words)
        >>> windrow.Graphs.from_nested(cell, [(3, (2, "It"), (4, "works"))], words, labels=int)
        >>> windrow.Graphs.from_nested(cell, nltk.corpus.treebank.parsed_sents(), words, labels=categories)

        Args:
            words: maps a word to its number: a dict, a Vocabulary or a function. If None, the words must be numbers.
            labels: maps a label to its number. If given, the first element of each tuple is its label; if None, tuples
                have no labels, and the labels of NLTK trees are ignored.
            word, label: the names by which the function pulls them.

        A tuple with a label whose only child is a word is one vertex, with the word. Other words are vertices without
        a label (-1). Names that the function does not pull are left out. Raises MisuseError for a single tree in place
        of a list of trees.
        """
        if isinstance(trees, (str, bytes)):
            raise TypeError(
                f"from_nested: trees is {type_name(trees)}; expected a list of trees: windrow.parse_brackets() makes one "
                "of text in brackets"
            )
        if isinstance(trees, tuple) or callable(getattr(trees, "label", None)):
            raise MisuseError(f"from_nested: trees is {type_name(trees)}, which is one tree; expected a list: [tree]")
        pulled = set(function.inputs)
        number_of_word = _numbering(words, "words")
        number_of_label = None if labels is None else _numbering(labels, "labels")

        def parts(tree: Any) -> tuple[Any, Sequence[Any]]:
            if isinstance(tree, (str, bytes)) or not isinstance(tree, (tuple, list)):
                return None, ()
            label_of = getattr(tree, "label", None)
            if callable(label_of):  # a tree of NLTK, which is a list
                return label_of(), tree
            if number_of_label is None:
                return None, tree
            if len(tree) < 2:
                raise MisuseError(f"from_nested: {tree!r} has no child; expected a label and children, or a word")
            return tree[0], tree[1:]

        def is_word(tree: Any) -> bool:
            return not isinstance(tree, (tuple, list))

        def with_word(tree: Any) -> bool:
            children = parts(tree)[1]
            return len(children) == 1 and is_word(children[0]) and number_of_label is not None

        def inputs(tree: Any) -> dict[str, int]:
            numbers = {label: -1}  # also where no tree has a label, as for predictions
            if is_word(tree):
                numbers[word] = number_of_word(tree)
            else:
                name, children = parts(tree)
                if with_word(tree):
                    numbers[word] = number_of_word(children[0])
                if number_of_label is not None and name is not None:
                    numbers[label] = number_of_label(name)
            return {name: number for name, number in numbers.items() if name in pulled}

        return cls.from_objects(function, trees, lambda tree: () if with_word(tree) else parts(tree)[1], inputs)

    @classmethod
    def from_networkx(
        cls,
        function: VertexFunction,
        graphs: Iterable[Any],
        *,
        children: Literal["successors", "predecessors"] = "successors",
        kind: str = "kind",
    ) -> Self:
        """Makes a graph of each directed graph of NetworkX.

        An edge leads from a vertex to its child, or with ``children="predecessors"`` from a child to its consumer.
        Children are in the order in which their edges were added; parallel edges of a MultiDiGraph give a child several
        times. Vertices are numbered in the order of the nodes. The attributes of nodes and edges are the inputs of the
        same names. A missing index becomes -1, and missing values become 0. Attributes of other names are ignored.

        Raises MisuseError if an input is missing everywhere. An optional input may be missing everywhere, unless there
        are attributes of other names, since one of these may be its misspelling.
        """
        if hasattr(graphs, "is_directed"):
            raise MisuseError("from_networkx: graphs is one graph; expected a list: [graph]")
        if children not in ("successors", "predecessors"):
            raise MisuseError(f"from_networkx: children = {children!r}; expected 'successors' or 'predecessors'")
        corpus = Corpus(function)
        of_edges = {name for name, (_, rows, _) in function.inputs.items() if rows == "edges"}
        others: set[Any] = set()  # names of attributes
        for number, graph in enumerate(graphs):
            if not hasattr(graph, "is_directed"):
                raise TypeError(f"from_networkx: sample {number} is {type_name(graph)}; expected a DiGraph of NetworkX")
            if not graph.is_directed():
                raise MisuseError(f"from_networkx: sample {number} is undirected; expected a DiGraph")
            place = {node: i for i, node in enumerate(graph)}
            nodes = [graph.nodes[node] for node in graph]
            # These list each of the parallel edges of a MultiDiGraph.
            of_node = graph.out_edges if children == "successors" else graph.in_edges
            at = 1 if children == "successors" else 0  # where an edge names the child
            below = [[edge[at] for edge in of_node(node)] for node in graph]
            edges = [attributes for node in graph for _, _, attributes in of_node(node, data=True)]
            columns = {
                name: [attributes.get(name) for attributes in (edges if name in of_edges else nodes)]
                for name in function.inputs
            }
            for attributes in (*nodes, *edges):
                others.update(attributes)
            kinds = [attributes.get(kind, 0) for attributes in nodes] if function.kinds > 1 else None
            corpus.add_columns(number, [[place[child] for child in of] for of in below], kinds, columns)
        corpus.require_given("node or edge", {str(name) for name in others} - {*function.inputs, kind})
        return corpus.graphs(cls)

    def __iter__(self) -> Iterator[InputGraph]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<windrow.Graphs, {counted(len(self), 'graph')}, {counted(self.vertices, 'vertex', 'vertices')}>"

    def _repr_html_(self) -> str:
        from ._display import graphs_html

        return graphs_html(self)


def _numbering(numbers: Numbers | None, what: str) -> Callable[[Any], int]:
    """The function that maps a word or a label to its number."""
    if numbers is None:

        def given(number: Any) -> int:
            if isinstance(number, (str, bytes)):
                raise MisuseError(
                    f"from_nested: {number!r} is text; expected numbers, or `{what}`: a dict, a Vocabulary or a function "
                    "that gives the number of each"
                )
            return int(number)

        return given
    if callable(numbers):
        return numbers

    def number_of(name: Any) -> int:
        try:
            return numbers[name]
        except KeyError:
            raise MisuseError(f"from_nested: {name!r} is not in `{what}`; expected a number for it") from None

    return number_of
