"""Checkpoints: folders of the same files that C++ programs write."""

from __future__ import annotations

import os
from typing import Any, Mapping

from . import _windrow
from ._checks import require
from ._windrow import Snapshot


class CheckpointWriter(_windrow.CheckpointWriter):
    """The only writer of a folder of checkpoints. Makes and locks the folder.

    >>> writer = windrow.CheckpointWriter("run", keep=3)
    >>> writer.write(step, windrow.Snapshot(parameters, optimiser), {"epoch": 3})
    >>>
    >>> checkpoint, skipped = windrow.CheckpointFolder("run").newest()
    >>> if checkpoint is not None:
    ...     checkpoint.restore(parameters, optimiser)
    ...     epoch = checkpoint.record["epoch"]

    Args:
        path: the folder.
        keep: the number of checkpoints that are kept, at least 1; older ones are deleted.
        resume: allows a folder that has checkpoints.

    Raises FileError if files cannot be made in the folder, if another writer has locked it, and if it has checkpoints,
    unless `resume`.
    """

    __slots__ = ()

    def __init__(self, path: str | os.PathLike[str], *, keep: int = 3, resume: bool = False) -> None:
        super().__init__(os.fspath(path), keep=keep, resume=resume)

    def write(self, step: int, snapshot: Snapshot, record: Mapping[str, Any] | None = None) -> None:
        """Writes a checkpoint, or replaces that of the same step. When this returns, it survives a loss of power.

        `record` has more values by name: str, int, float, and lists and dicts of them. Numbers of NumPy become those of
        Python, and tuples become lists. Values that are None are left out, so ask for them by record.get(name).
        """
        require(snapshot, Snapshot, "write: snapshot", "a windrow.Snapshot(parameters, optimiser)")
        require(record, (Mapping, type(None)), "write: record", "a mapping: values by name")
        self._write(step, snapshot, dict(record or {}))


class CheckpointFolder(_windrow.CheckpointFolder):
    """The checkpoints in a folder, for reading; beside a writer, too."""

    __slots__ = ("_path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(os.fspath(path))
        self._path = os.fspath(path)

    def __repr__(self) -> str:
        return f"<windrow.CheckpointFolder '{self._path}'>"
