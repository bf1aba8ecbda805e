"""Sets of parameters."""

from __future__ import annotations

import os
from html import escape
from typing import Iterator

from . import _windrow
from ._checks import counted
from ._errors import FileError
from ._windrow import Parameter


class Parameters(_windrow.Parameters):
    """A set of parameters with their gradients.

    >>> parameters = windrow.Parameters(seed=1)
    >>> w = parameters.add("w", 64, 5)  # rows, width; Glorot initialisation
    >>> bias = parameters.add("bias", 1, 5, "zeros")
    >>> table = parameters.add("words", 10_000, 64, windrow.init.uniform(-0.1, 0.1))
    >>> pretrained = parameters.add("pretrained", array)  # or a Tensor, which is shared and not copied
    >>> parameters["w"].value, parameters["w"].gradient
    >>> values = {name: parameter.numpy() for name, parameter in parameters.items()}
    >>> parameters.save("weights")  # and parameters.load("weights")

    It has the methods of a mapping from names to parameters; but iteration yields parameters, not names.

    Args:
        device: where the values are stored and ops run; the host of the default engine if None.
        seed: of dropout, and of initial values, which are drawn in the order in which parameters are added.
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

    def keys(self) -> list[str]:
        """The names, as names()."""
        return self.names()

    def values(self) -> list[Parameter]:
        """The parameters, in the order in which they were added."""
        return self._all()

    def items(self) -> list[tuple[str, Parameter]]:
        """Names and parameters."""
        return [(parameter.name, parameter) for parameter in self._all()]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the values into a folder of their own, as a checkpoint of step 0; replaces an earlier save(). Waits.

        To continue training later, save parameters and optimiser by a CheckpointWriter instead. Raises FileError if the
        folder has checkpoints of other steps or cannot be written.
        """
        from ._checkpoints import CheckpointWriter

        folder = os.fspath(path)
        if os.path.isdir(folder) and any(_windrow.CheckpointFolder(folder).steps()):
            raise FileError(f"{folder}: has checkpoints of a training; expected a folder for parameters alone")
        CheckpointWriter(folder, keep=1, resume=True).write(0, _windrow.Snapshot(self))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Loads the values from the newest checkpoint in a folder of save() or a CheckpointWriter. Waits.

        If the checkpoint has averages, loads these. Raises FileError if there is no checkpoint, and if a parameter is
        missing in it or has another shape.
        """
        from ._checkpoints import CheckpointFolder

        checkpoint, skipped = CheckpointFolder(path).newest()
        if checkpoint is None:
            told = "".join(f"; {line}" for line in skipped)
            raise FileError(f"{os.fspath(path)}: has no checkpoint; expected one of save() or a CheckpointWriter{told}")
        checkpoint.restore_for_use(self)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._all())

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def __repr__(self) -> str:
        elements = sum(rows * width for rows, width in (parameter.shape for parameter in self))
        title = f"'{self.name}', " if self.name else ""
        return f"<windrow.Parameters, {title}{counted(len(self), 'parameter')}, {counted(elements, 'element')}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(parameter.name)}</td><td>{parameter.shape[0]} × {parameter.shape[1]}</td>"
            f"<td>{'frozen' if parameter.frozen else ''}</td></tr>"
            for parameter in self
        )
        return f"<table><tr><th>parameter</th><th>shape</th><th></th></tr>{rows}</table>"
