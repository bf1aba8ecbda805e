"""Lazy expressions: networks that a program builds sample by sample, computed in batches across samples.

>>> graph = windrow.LazyGraph(parameters)
>>> losses = []
>>> for sentence in minibatch:
...     state = graph.zeros(32)
...     for word in sentence:
...         state = windrow.tanh(windrow.embedding(words, graph.index(word)) + state @ recurrent)
...     losses.append(windrow.softmax_cross_entropy(state @ out, graph.index(label)))
>>> graph.backward(losses)
>>> parameters.sgd(0.1)

A *cell* is a computation that a program repeats. It is written once; each call records one operation in the graph of
its operands:

>>> @windrow.cell
... def step(cell):
...     x, state = cell.operand(8), cell.operand(32)
...     cell.result(windrow.tanh(x @ win + state @ recurrent))
>>> state = step(x, state)

A *sample* is a coroutine that reads its own values. When all samples wait, everything that they have recorded is
computed in batches:

>>> async def parse(sentence):
...     while not done:
...         scores = await windrow.value(model(state))
...         state = advance(state, max(range(len(scores)), key=scores.__getitem__))
...     return state
>>> results = graph.run(parse(sentence) for sentence in minibatch)
"""

from __future__ import annotations

from typing import Any, Awaitable, Callable, Coroutine, Generator, Iterable, TypeVar

from . import _windrow
from ._checks import require, type_name
from ._errors import MisuseError

T = TypeVar("T")


class _Value:
    """What a sample yields to run(): the expression whose value it waits for."""

    def __init__(self, expression: _windrow.LazyExpr) -> None:
        self.expression = expression

    def __await__(self) -> Generator[_Value, list[float], list[float]]:
        return self.expression.value() if self.expression._ready() else (yield self)

    def __repr__(self) -> str:  # asyncio shows it in its error
        return "<windrow.value(x): expected in a sample that LazyGraph.run() runs, and not in a task of asyncio>"


def value(expression: _windrow.LazyExpr) -> Awaitable[list[float]]:
    """The value of a lazy expression, in a sample of LazyGraph.run(): ``scores = await windrow.value(x)``.

    Raises OpError if it depends on an operator that failed. Only LazyGraph.run() can wait for it; asyncio cannot.
    """
    require(expression, _windrow.LazyExpr, "value: expression", "a LazyExpr")
    return _Value(expression)


class LazyCell(_windrow.LazyCell):
    """A computation that a program repeats, outside of any graph. Made by ``@windrow.cell``.

    A call takes operands and indices in the order in which the body asks for them, and records one operation in their
    graph. The graph may be for training or for inference; it must have the parameters that the body uses. An operand
    of None is zero. ``list`` has the elements of the list that ``cell.each()`` reads. A call returns one expression, or
    a tuple if the body has several results.

    Raises MisuseError for operands that do not fit, for operands of two graphs, and if no operand, index or element
    determines the graph.
    """

    def __init__(self, name: str, body: Callable[[_windrow.CellBody], object]) -> None:
        super().__init__(name, body)
        self.__doc__ = body.__doc__

    def __repr__(self) -> str:
        return f"<windrow.LazyCell '{self.name}'>"


def cell(body: Callable[[_windrow.CellBody], object]) -> LazyCell:
    """Makes a cell of a function that takes a CellBody. Use it as a decorator.

    >>> @windrow.cell
    ... def step(cell):
    ...     x, state = cell.operand(8), cell.operand(32)
    ...     cell.result(windrow.tanh(x @ win + state @ recurrent))
    >>> state = step(x, state)

    The function asks the CellBody for operands and indices in the order in which calls pass them, computes as in a
    vertex function, and hands over its results. It runs at the first call in each graph, and again when a graph plans
    its computations, so it must do the same each time. The call raises the function's exceptions. A graph keeps all
    cells that were called in it: make a cell once, not in a loop.
    """
    return LazyCell(getattr(body, "__name__", "cell"), body)


class LazyGraph(_windrow.LazyGraph):
    __doc__ = _windrow.LazyGraph.__doc__

    def run(self, samples: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Runs coroutines, one for each sample, until all have ended. Returns their results, in their order.

        Each sample runs until it awaits a value. When all samples wait, everything that they have recorded is computed,
        and all continue. An exception ends only its own sample; when all samples have ended, the exception of the first
        sample that failed, in their order, is raised.
        """
        coroutines = list(samples)
        for i, sample in enumerate(coroutines):
            if not hasattr(sample, "send"):
                hint = ": call it with what it is a sample of" if callable(sample) else ""
                raise TypeError(f"run: sample {i} is {type_name(sample)}; expected a coroutine{hint}")
        results: list[Any] = [None] * len(coroutines)
        errors: dict[int, BaseException] = {}
        waiting: dict[int, _Value] = {}

        def resume(i: int, how: Callable[[Any], Any], what: Any) -> None:
            try:
                waits_for = how(what)
                if not isinstance(waits_for, _Value):
                    coroutines[i].close()
                    raise MisuseError(
                        f"sample {i} awaits {type(waits_for).__name__}; expected windrow.value(x), or another coroutine"
                    )
                waiting[i] = waits_for
            except StopIteration as ended:
                results[i] = ended.value
            except BaseException as error:  # of this sample alone
                errors[i] = error
                if not isinstance(error, Exception):
                    raise

        try:
            for i, coroutine in enumerate(coroutines):
                resume(i, coroutine.send, None)
            while waiting:
                self.flush()
                ready, waiting = waiting, {}
                for i, waits_for in ready.items():
                    try:
                        got = waits_for.expression.value()
                    except Exception as error:
                        resume(i, coroutines[i].throw, error)
                    else:
                        resume(i, coroutines[i].send, got)
        finally:
            for coroutine in coroutines:
                coroutine.close()
        if errors:
            raise errors[min(errors)]
        return results
