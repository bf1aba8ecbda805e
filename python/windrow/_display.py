"""Graphs and batches as DOT and SVG, for notebooks. Draws by itself, without Graphviz."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ._checks import counted

if TYPE_CHECKING:
    from ._graphs import Graphs
    from ._runner import Batches
    from ._windrow import InputGraph

_most_vertices = 400  # larger graphs are not drawn
_step, _row, _radius = 34, 44, 12  # in pixels: distance of vertices, distance of levels, radius
_colours = ("#9ecae1", "#fdd0a2", "#c7e9c0", "#dadaeb", "#fcbba1", "#d9d9d9", "#fee391", "#c6dbef")


def _children(graph: InputGraph) -> tuple[list[list[int]], list[int]]:
    """The children of each vertex, without missing ones, and its kind."""
    offsets, children, kinds = graph.structure()
    listed = [
        [int(child) for child in children[offsets[v] : offsets[v + 1]] if child >= 0] for v in range(graph.vertices)
    ]
    return listed, [int(kind) for kind in kinds]


def graph_dot(graph: InputGraph) -> str:
    """The graph in the language of Graphviz: edges lead from children to their consumers."""
    children, kinds = _children(graph)
    lines = ["digraph {", "  rankdir=BT;", "  node [shape=circle, style=filled];"]
    lines += [f'  {v} [fillcolor="{_colours[kind % len(_colours)]}"];' for v, kind in enumerate(kinds)]
    lines += [f"  {child} -> {v};" for v, of in enumerate(children) for child in of]
    return "\n".join([*lines, "}"])


def _places(children: list[list[int]]) -> tuple[list[float], list[int]]:
    """The column and level of each vertex: leaves side by side in depth-first order, consumers above the mean of
    their children's columns."""
    count = len(children)
    consumed = {child for of in children for child in of}
    column: list[float] = [0.0] * count
    level = [0] * count
    state = [0] * count  # 0: unseen, 1: open, 2: done
    leaves = 0
    for root in [v for v in range(count) if v not in consumed]:
        stack = [root]
        while stack:
            v = stack[-1]
            if state[v] == 0:
                state[v] = 1
                stack.extend(child for child in reversed(children[v]) if state[child] == 0)
                continue
            stack.pop()
            if state[v] == 2:
                continue
            state[v] = 2
            if children[v]:
                column[v] = sum(column[child] for child in children[v]) / len(children[v])
                level[v] = 1 + max(level[child] for child in children[v])
            else:
                column[v] = leaves
                leaves += 1
    taken: dict[int, set[float]] = {}
    for v in sorted(range(count), key=lambda v: (level[v], column[v])):  # no two vertices in one place
        used = taken.setdefault(level[v], set())
        while any(abs(column[v] - other) < 0.7 for other in used):
            column[v] += 0.7
        used.add(column[v])
    return column, level


def _svg(width: float, height: float, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'font-family="sans-serif" font-size="10" text-anchor="middle">{"".join(parts)}</svg>'
    )


def graph_svg(graph: InputGraph) -> str:
    """A drawing: leaves below, consumers above their children, colours for kinds."""
    if graph.vertices > _most_vertices or graph.vertices == 0:
        text = f"{counted(graph.vertices, 'vertex', 'vertices')}, {counted(graph.levels, 'level')}"
        return _svg(300, 20, [f'<text x="150" y="14">{text}</text>'])
    children, kinds = _children(graph)
    column, level = _places(children)
    top = max(level)

    def place(v: int) -> tuple[float, float]:
        return 20 + _step * column[v], 20 + _row * (top - level[v])

    parts = []
    for v, of in enumerate(children):
        x, y = place(v)
        for child in of:
            to_x, to_y = place(child)
            parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="#888"/>')
    for v, kind in enumerate(kinds):
        x, y = place(v)
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_radius}" fill="{_colours[kind % len(_colours)]}" stroke="#555"/>'
            f'<text x="{x:.1f}" y="{y + 3.5:.1f}">{v}</text>'
        )
    return _svg(40 + _step * max(column), 40 + _row * top, parts)


def graphs_html(graphs: Graphs) -> str:
    """A summary, and a drawing of the first graph."""
    summary = f"<p>{counted(len(graphs), 'graph')}, {counted(graphs.vertices, 'vertex', 'vertices')}</p>"
    return summary + (graph_svg(graphs[0]) if len(graphs) > 0 else "")


def _edges(batches: Batches) -> dict[tuple[int, int], int]:
    """For each pair (a, b) of batches, how many children the vertices of b have in a."""
    batch_of: dict[tuple[int, int], int] = {}
    for number, batch in enumerate(batches):
        for vertex in batch.vertices:
            batch_of[batch.group, vertex] = number
    edges: dict[tuple[int, int], int] = {}
    for g, group in enumerate(batches.grouped.groups):
        offsets, children = group.child_offsets, group.children
        for v in range(group.vertices):
            for child in children[offsets[v] : offsets[v + 1]]:
                if child >= 0:
                    edge = batch_of[g, child], batch_of[g, v]
                    edges[edge] = edges.get(edge, 0) + 1
    return edges


def batches_dot(batches: Batches) -> str:
    """The batches in the language of Graphviz. Edges show how many children a batch has in another one."""
    lines = ["digraph {", "  rankdir=BT;", "  node [shape=box];"]
    for number, batch in enumerate(batches):
        title = batch.type.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'  {number} [label="{title}\\n{counted(batch.width, "vertex", "vertices")}"];')
    lines += [f'  {a} -> {b} [label="{count}"];' for (a, b), count in sorted(_edges(batches).items())]
    return "\n".join([*lines, "}"])


def batches_svg(batches: Batches) -> str:
    """A bar for each batch, in the order of computation: as wide as it has vertices, coloured by type."""
    widest = max((batch.width for batch in batches), default=1)
    types = list(dict.fromkeys(batch.type for batch in batches))
    parts = [f'<text x="4" y="14" text-anchor="start">{escape(repr(batches))}</text>']
    y = 24
    for kind, title in enumerate(types):
        parts.append(
            f'<rect x="4" y="{y}" width="10" height="10" fill="{_colours[kind % len(_colours)]}"/>'
            f'<text x="20" y="{y + 9}" text-anchor="start">{escape(title)}</text>'
        )
        y += 14
    for batch in batches:
        width = max(1.0, 480 * batch.width / widest)
        colour = _colours[types.index(batch.type) % len(_colours)]
        parts.append(
            f'<rect x="4" y="{y}" width="{width:.1f}" height="9" fill="{colour}"/>'
            f'<text x="{8 + width:.1f}" y="{y + 8}" text-anchor="start">{batch.width}</text>'
        )
        y += 11
    return _svg(540, y + 6, parts)
