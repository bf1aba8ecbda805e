"""Turns samples that are given as lists or objects into arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, Sequence, TypeVar

from ._errors import MisuseError

if TYPE_CHECKING:
    from ._graphs import Graphs
    from ._windrow import VertexFunction

G = TypeVar("G", bound="Graphs")


class Corpus:
    """Collects samples as lists that from_arrays() takes."""

    def __init__(self, function: VertexFunction) -> None:
        self._function = function
        self._offsets = [0]
        self._child_offsets = [0]
        self._children: list[int] = []
        self._kinds: list[int] | None = [] if function.kinds > 1 else None
        self._inputs = function.inputs
        self._columns: dict[str, Any] = {name: [] for name in self._inputs}  # lists
        self._given: set[str] = set()  # names of inputs that at least one vertex or edge has
        # For each input, the value of a vertex that lacks it.
        self._missing = {
            name: (0.0 if what == "values" else -1) if width == 1 else [0.0 if what == "values" else -1] * width
            for name, (what, _, width) in self._inputs.items()
        }

    def add_columns(
        self,
        number: int,
        children: Sequence[Sequence[int]],
        kinds: Sequence[int] | None,
        columns: Mapping[str, Sequence[Any]],
    ) -> None:
        """Adds a sample whose inputs are lists with an element for each vertex, or for each child."""
        for of in children:
            self._children.extend(of)
            self._child_offsets.append(len(self._children))
        first_edge = self._child_offsets[self._offsets[-1]]
        self._offsets.append(len(self._child_offsets) - 1)
        vertices, edges = len(children), len(self._children) - first_edge
        if self._kinds is not None:
            if kinds is None or len(kinds) != vertices:
                raise MisuseError(
                    f"sample {number}: kinds of {0 if kinds is None else len(kinds)} vertices; expected {vertices}"
                )
            self._kinds.extend(kinds)
        for name, (_, rows, _) in self._inputs.items():
            count = edges if rows == "edges" else vertices
            column = columns.get(name)
            if column is None:
                raise MisuseError(f"sample {number}: has no input '{name}', which {self._function.name} pulls")
            if len(column) != count:
                raise MisuseError(f"sample {number}: '{name}' has {len(column)} rows; expected {count}")
            missing = self._missing[name]
            if name not in self._given and any(row is not None for row in column):
                self._given.add(name)
            self._columns[name].extend(missing if row is None else row for row in column)

    def require_pulled(self, number: int, names: Iterable[str]) -> None:
        """Raises MisuseError for a name that is no input."""
        for name in names:
            if name not in self._inputs:
                listed = ", ".join(f"'{known}'" for known in self._inputs) or "none"
                raise MisuseError(
                    f"sample {number}: gives '{name}', which {self._function.name} does not pull; expected {listed}"
                )

    def require_given(self, what: str, others: Iterable[str] = ()) -> None:
        """Raises MisuseError for an input that is missing everywhere, if it is not optional, or if `others` has names
        that may be misspellings of it."""
        others = sorted(others)
        for name, (kind, rows, _) in self._inputs.items():
            if name in self._given or not self._columns[name] or (kind == "optional index" and not others):
                continue
            hint = f", not only {', '.join(repr(other) for other in others)}" if others else ""
            raise MisuseError(
                f"no {what} has '{name}', which {self._function.name} pulls for {rows}; expected it once at least{hint}"
                + (" (-1 where there is none)" if kind != "values" else "")
            )

    def add_object(
        self,
        number: int,
        root: Any,
        children_of: Callable[[Any], Iterable[Any]],
        inputs_of: Callable[[Any], Mapping[str, Any]],
        kind_of: Callable[[Any], int] | None,
        shared: bool,
    ) -> None:
        children: list[list[int]] = []
        kinds: list[int] = []
        columns: dict[str, list[Any]] = {}
        for name, (_, rows, _) in self._inputs.items():
            if rows == "edges":
                raise MisuseError(
                    f"objects have no inputs of edges, such as '{name}', which {self._function.name} pulls; expected "
                    "Graphs.from_lists(), from_arrays() or from_networkx()"
                )
            columns[name] = []
        vertex_of: dict[int, int] = {}  # by id
        kept: list[Any] = []  # so that the objects live, and no two have the same id
        path: set[int] = set()
        # Each element: an object, an iterator over its unvisited children, and the vertices of the visited ones.
        open_: list[tuple[Any, Iterator[Any], list[int]]] = []

        def enter(node: Any) -> None:
            if id(node) in path:
                raise MisuseError(f"sample {number}: {_shown(node)} is below itself; expected no cycle")
            of = iter(children_of(node))
            path.add(id(node))
            open_.append((node, of, []))

        enter(root)
        while open_:
            node, left, done = open_[-1]
            for child in left:
                known = vertex_of.get(id(child)) if shared else None
                if child is None:
                    done.append(-1)
                elif known is not None:
                    done.append(known)
                else:
                    enter(child)
                    break
            else:
                open_.pop()
                path.discard(id(node))
                vertex = len(children)
                children.append(done)
                if shared:
                    vertex_of[id(node)] = vertex
                    kept.append(node)
                if kind_of is not None:
                    kinds.append(kind_of(node))
                inputs = inputs_of(node)
                if not inputs.keys() <= columns.keys():
                    self.require_pulled(number, inputs)
                for name, column in columns.items():
                    column.append(inputs.get(name))
                if open_:
                    open_[-1][2].append(vertex)
        self.add_columns(number, children, kinds if kind_of is not None else None, columns)

    def graphs(self, cls: type[G]) -> G:
        return cls.from_arrays(
            self._function, self._offsets, self._child_offsets, self._children, kinds=self._kinds, **self._columns
        )


def _shown(node: Any) -> str:
    text = repr(node)
    return text if len(text) < 60 else text[:57] + "..."
