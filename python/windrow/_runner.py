"""Runners, and the batches into which they divide minibatches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, Iterator, Mapping, NamedTuple, Sequence, TypeVar

from . import _windrow
from ._checks import counted, require, type_name

if TYPE_CHECKING:
    from ._typing import ArrayLike, Given, Policy
    from ._windrow import (
        Device,
        Graphs,
        GroupedMinibatch,
        InputGraph,
        Minibatch,
        Parameters,
        RunnerStats,
        VertexFunction,
    )

V = TypeVar("V")


def _dict(values: Mapping[str, V] | None) -> dict[str, V] | None:
    """Converts a mapping to a dict, the only mapping that the extension module takes."""
    if values is None or isinstance(values, dict):
        return values
    require(values, Mapping, "given", "a mapping: tensors by name")
    return dict(values)


class Runner(_windrow.Runner):
    """Computes a vertex function over minibatches of graphs, in batches, on the engine.

    >>> runner = windrow.Runner(cell, parameters)
    >>> for graphs in all_graphs.minibatches(64, shuffle=epoch):
    ...     minibatch = runner.differentiate(graphs)
    ...     parameters.sgd(0.05 / len(graphs))
    >>> minibatch.loss()  # waits
    >>> minibatch.at_roots("logits")  # a Tensor with a row for each graph

    Calls push ops and return; `ahead` limits how far they run ahead of the engine. A minibatch reads parameters, and
    writes gradients, in the order of the calls.

    Args:
        function: the vertex function.
        parameters: the set that it uses, or a list of several sets.
        device: where it computes; that of the parameters if None.
        ahead: the most unfinished minibatches when a call returns, including its own. Each holds its memory.
        groups: the most groups of samples that run concurrently.
        group_flops: the least work of a group, in floating point operations.
        op_flops: the target work of an op, in floating point operations.
        split_rows: the least rows of each op if a batch is cut for several workers.
        schedule: 'level', 'depth', 'agenda', 'complete' or 'serial'; see make_schedule().
        own_types: the most vertex types per kind whose computation leaves out missing children and indices.
        batch_rows: the most vertices of one batch.
        time_steps: whether to measure RunnerStats.times.
        without: names of optimisations to switch off, in order to measure their effect: 'specialisation',
            'eager', 'lazy', 'slots', 'in_place', 'sharing', 'fusion', 'streaming', 'splitting'. Results are equal up to
            rounding.

    Raises MisuseError for a function that uses parameters of other sets, or has a state that is never scattered.
    """

    __slots__ = ("_about", "_schedule")

    def __init__(
        self,
        function: VertexFunction,
        parameters: Parameters | Iterable[Parameters],
        device: Device | None = None,
        *,
        ahead: int = 2,
        groups: int = 8,
        group_flops: int = 80_000_000,
        op_flops: int = 20_000_000,
        split_rows: int = 32,
        schedule: Policy = "level",
        own_types: int = 32,
        batch_rows: int | None = None,
        time_steps: bool = False,
        without: Sequence[str] = (),
    ) -> None:
        require(function, _windrow.VertexFunction, "Runner: function", "a VertexFunction, and then its parameters")
        if not isinstance(parameters, (_windrow.Parameters, Iterable)):
            raise TypeError(f"Runner: parameters is {type_name(parameters)}; expected Parameters, or a list of them")
        self._schedule = schedule
        self._about = f"<windrow.Runner of '{function.name}', schedule '{schedule}'>"
        super().__init__(
            function,
            parameters,
            device,
            ahead=ahead,
            groups=groups,
            group_flops=group_flops,
            op_flops=op_flops,
            split_rows=split_rows,
            schedule=schedule,
            own_types=own_types,
            batch_rows=batch_rows,
            time_steps=time_steps,
            without=list(without),
        )

    def run(
        self, graphs: Graphs | InputGraph | Iterable[InputGraph], given: Mapping[str, Given] | None = None
    ) -> Minibatch:
        """Computes losses and outputs, without gradients.

        `given` has the tensors that the function pulls by Vertex.pull_row(). It maps each name to a Tensor, or to a
        tuple of a Tensor and an integer array (vertices,) with the row that each vertex pulls. Without rows, vertex i
        pulls row i. Arrays are copied to tensors.

        Raises MisuseError, naming sample and vertex, for tensors that do not fit, and for graphs of another function.
        """
        return super().run(graphs, _dict(given))

    def differentiate(
        self, graphs: Graphs | InputGraph | Iterable[InputGraph], given: Mapping[str, Given] | None = None
    ) -> Minibatch:
        """As run(), and computes the gradients of the loss with respect to all parameters.

        Raises MisuseError if the function has no loss, or uses an operator without a gradient.
        """
        return super().differentiate(graphs, _dict(given))

    def record(
        self,
        graphs: Graphs | InputGraph | Iterable[InputGraph],
        outputs: Sequence[str] | Mapping[str, ArrayLike | None],
        given: Mapping[str, Given] | None = None,
    ) -> Minibatch:
        """The first half of differentiate(), for outputs whose gradients come from elsewhere.

        >>> minibatch = runner.record(graphs, ["score"], {"features": features})
        >>> gradient = ...  # of a loss that is computed from minibatch.output("score")
        >>> runner.backward(minibatch, {"score": gradient})
        >>> minibatch.gradient("features")

        If `outputs` is a mapping, it gives, for each output, the row of each vertex in the gradient. None: vertex i has
        row i. The minibatch keeps its memory until its last handle ends.
        """
        return super().record(graphs, dict(outputs) if isinstance(outputs, Mapping) else outputs, _dict(given))

    def backward(self, minibatch: Minibatch, gradients: Mapping[str, ArrayLike], *, add: bool = False) -> None:
        """The second half: computes gradients from those of the outputs that record() named, and of the loss, if any.

        Replaces the gradients of all parameters, or with `add`, adds to them. Raises MisuseError if `gradients` names
        other outputs or has another shape, and for a minibatch that was already differentiated.
        """
        require(minibatch, _windrow.Minibatch, "backward: minibatch", "a Minibatch of record()")
        require(gradients, Mapping, "backward: gradients", "a mapping: the gradients of outputs by name")
        super().backward(minibatch, dict(gradients), add=add)

    def batches(self, graphs: Graphs | InputGraph | Iterable[InputGraph]) -> Batches:
        """The batches in which this runner would compute a minibatch; computes nothing. A notebook draws the result.

        >>> print(runner.batches(graphs))
        2,381 vertices in 52 batches (45.8 vertices each), at least 48
        """
        return Batches(self._grouped(graphs), self._schedule)

    def stats(self) -> RunnerStats:
        """Counters since the runner was made: minibatches, vertices, batches, kernels, ops, memory."""
        return super().stats()

    def describe(self) -> str:
        """The current plans as text: the steps of each vertex type seen so far."""
        return super().describe()

    def forget(self) -> None:
        """Forgets the vertex types that this runner has seen, on which rounding depends.

        Call it when you save a checkpoint: then the runner continues with the same bits as a new one.
        """
        super().forget()

    def __repr__(self) -> str:
        return self._about


class Batch(NamedTuple):
    """Vertices that are computed together."""

    group: int
    type: str
    """The vertex type: 'cell, 2 children'."""
    vertices: list[int]
    """Numbered within the group, in the order of samples and their types."""

    @property
    def width(self) -> int:
        """The number of vertices."""
        return len(self.vertices)


class Batches:
    """The batches of a minibatch, in the order of computation: a sequence of Batch. Made by Runner.batches()."""

    def __init__(self, grouped: GroupedMinibatch, schedule: Policy) -> None:
        self.grouped = grouped
        """Types and groups, as a GroupedMinibatch."""
        self._all: list[Batch] = []
        groups, types = grouped.groups, grouped.types  # each access copies
        for number, group in enumerate(groups):
            made = _windrow.make_schedule(group, schedule)
            order = made.order  # a copy
            for kind, begin, end in made.batches:
                self._all.append(Batch(number, types[kind], order[begin:end]))
        self.vertices = sum(group.vertices for group in groups)
        """The number of vertices."""
        self.fewest = sum(_windrow.fewest_batches(group) for group in groups)
        """A lower bound on the number of batches of any schedule."""

    @property
    def mean_width(self) -> float:
        """Vertices per batch."""
        return self.vertices / len(self._all) if self._all else 0.0

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, number: int) -> Batch:
        return self._all[number]

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._all)

    def __repr__(self) -> str:
        return (
            f"{counted(self.vertices, 'vertex', 'vertices')} in {counted(len(self), 'batch', 'batches')} "
            f"({self.mean_width:.1f} vertices each), at least {self.fewest:,}"
        )

    def dot(self) -> str:
        """The batches and what they depend on, in the language of Graphviz."""
        from ._display import batches_dot

        return batches_dot(self)

    def _repr_svg_(self) -> str:
        from ._display import batches_svg

        return batches_svg(self)
