"""Sets of parameters."""

from __future__ import annotations

from typing import Iterator

from . import _windrow
from ._windrow import Parameter


class Parameters(_windrow.Parameters):
    """A set of parameters with their gradients.

    >>> parameters = windrow.Parameters(seed=1)
    >>> w = parameters.add("w", 64, 5)  # rows, width; drawn as by Glorot and Bengio
    >>> bias = parameters.add("bias", 1, 5, "zeros")
    >>> table = parameters.add("words", 10_000, 64, windrow.init.uniform(-0.1, 0.1))
    >>> pretrained = parameters.add("pretrained", array)  # or a Tensor, which is shared and not copied
    >>> parameters["w"].value, parameters["w"].gradient

    Args:
        device: where the values lie, and ops run; the host of the default engine if None.
        seed: draws initial values, in the order in which parameters are added, and dropout.
        name: names the set in errors. Sets that one function uses must have different names.
        non_finite: 'fail': a loss that is infinite or NaN fails its minibatch and the step, which poisons the
            parameters. 'skip': a step whose losses or gradients are not finite is skipped as a whole; see
            skipped_steps().

    Gradients come from Runner.differentiate(), Runner.backward(), or from begin_minibatch() and add_gradient(). Steps
    are those of sgd() or of an optimiser. One thread at a time uses a set, with its runners and optimisers: a call
    waits for those of other threads.
    """

    __slots__ = ()

    def names(self) -> list[str]:
        """The names, in the order in which parameters were added."""
        return [parameter.name for parameter in self._all()]

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._all())

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def __repr__(self) -> str:
        elements = sum(rows * width for rows, width in (parameter.shape for parameter in self))
        title = f"'{self.name}', " if self.name else ""
        return f"<windrow.Parameters, {title}{len(self)} parameters, {elements:,} elements>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{parameter.name}</td><td>{parameter.shape[0]} × {parameter.shape[1]}</td>"
            f"<td>{'frozen' if parameter.frozen else ''}</td></tr>"
            for parameter in self
        )
        return f"<table><tr><th>parameter</th><th>shape</th><th></th></tr>{rows}</table>"
