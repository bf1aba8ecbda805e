"""Tracing vertex functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Literal, overload

from . import _windrow

if TYPE_CHECKING:
    from ._windrow import Vertex


class VertexFunction(_windrow.VertexFunction):
    """What one vertex of an input graph computes, from its children's states and its own inputs. Traced once.

    Made by ``@windrow.vertex_function``. ``VertexFunction("tree", [leaf, inner])`` combines functions into one of
    several kinds: the `kinds` of graphs tell which one computes each vertex. States, inputs and outputs that have the
    same name in several kinds are the same thing; raises MisuseError if one name has two widths.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        def listed(what: str, names: list[str]) -> list[str]:
            return [f"{what} {', '.join(names)}"] if names else []

        parts = listed("states", [f"{name} ({width})" for name, width in self.states])
        parts += listed("inputs", [f"{name} ({what})" for name, (what, _, _) in self.inputs.items()])
        parts += listed("tensors", [f"{name} ({width})" for name, width in self.tensors])
        parts += listed("outputs", [f"{name} ({width})" for name, width in self.outputs])
        kinds = f", {self.kinds} kinds" if self.kinds > 1 else ""
        return f"<windrow.VertexFunction '{self.name}'{kinds}: {'; '.join(parts)}>"


@overload
def vertex_function(arity: Callable[[Vertex], Any]) -> VertexFunction: ...
@overload
def vertex_function(
    arity: int | Literal["any"] = 0, *, fixed: int = 0, per_edge: int = 1, name: str | None = None
) -> Callable[[Callable[[Vertex], Any]], VertexFunction]: ...
def vertex_function(
    arity: int | Literal["any"] | Callable[[Vertex], Any] = 0,
    *,
    fixed: int = 0,
    per_edge: int = 1,
    name: str | None = None,
) -> VertexFunction | Callable[[Callable[[Vertex], Any]], VertexFunction]:
    """Makes the decorated function a VertexFunction: runs it once, and records what it computes.

    >>> parameters = windrow.Parameters(seed=1)
    >>> table = parameters.add("words", 10_000, 64, windrow.init.uniform(-0.1, 0.1))
    >>> w = parameters.add("w", 64, 5)
    >>>
    >>> @windrow.vertex_function(arity=2)
    ... def cell(v):
    ...     total = v.state("total", 64)
    ...     own = windrow.embedding(table, v.pull_index("word", optional=True))
    ...     own = own + v.gather(0, total) + v.gather(1, total)
    ...     v.scatter(total, own)
    ...     v.loss(windrow.softmax_cross_entropy(own @ w, v.pull_index("label")))

    No Python code runs per vertex: a Runner computes, as one batch, all vertices of a minibatch that can be computed
    together. So the body must not branch on values. Missing children and missing optional indices give zeros.
    ``@windrow.vertex_function`` without brackets is for vertices without children.

    Args:
        arity: the most children of a vertex, or "any". With "any", Vertex.each() accesses all of them at once, and
            sum_children(), softmax_children() and others reduce values of edges to values of the vertex.
        fixed: with "any", how many children at the front are gathered by number; Vertex.each() accesses the others.
        per_edge: with "any", how many children an edge leads to.
        name: for errors; the name of the function if None.

    An exception of the body is raised as it is. Raises MisuseError, at the body's line, for shapes that do not fit, a
    gather beyond the arity, and a state that is scattered twice.
    """
    if callable(arity) and not isinstance(arity, type):
        return vertex_function(name=name)(arity)
    if arity != "any" and (isinstance(arity, bool) or not isinstance(arity, int) or arity < 0):
        raise TypeError(f"vertex_function: arity = {arity!r}; expected a number of children, or 'any'")

    def trace(body: Callable[[Vertex], Any]) -> VertexFunction:
        title = name if name is not None else getattr(body, "__name__", "vertex function")
        count = None if arity == "any" else arity
        return VertexFunction._trace(VertexFunction, title, count, fixed, per_edge, body)

    return trace
