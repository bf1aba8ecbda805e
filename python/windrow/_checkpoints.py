"""Folders of checkpoints, in the file format that C++ programs use, too."""

from __future__ import annotations

import os
from typing import Any, Mapping

from . import _windrow
from ._checks import require
from ._windrow import Snapshot


class CheckpointWriter(_windrow.CheckpointWriter):
    """Writes checkpoints into a folder, which it creates, and locks against other writers.

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
        resume: accepts a folder that already has checkpoints.

    Raises FileError if files cannot be made in the folder, if another writer has locked it, or if it already has
    checkpoints and `resume` is not set.
    """

    __slots__ = ()

    def __init__(self, path: str | os.PathLike[str], *, keep: int = 3, resume: bool = False) -> None:
        super().__init__(os.fspath(path), keep=keep, resume=resume)

    def write(self, step: int, snapshot: Snapshot, record: Mapping[str, Any] | None = None) -> None:
        """Writes a checkpoint, or replaces the one of the same step. When this returns, it survives a power cut.

        `record` has more values by name: str, int, float, and lists and dicts of them. NumPy numbers become Python
        numbers, and tuples become lists. Values that are None are left out, so read them by record.get(name).
        """
        require(snapshot, Snapshot, "write: snapshot", "a windrow.Snapshot(parameters, optimiser)")
        require(record, (Mapping, type(None)), "write: record", "a mapping: values by name")
        self._write(step, snapshot, dict(record or {}))


class CheckpointFolder(_windrow.CheckpointFolder):
    """Reads the checkpoints in a folder. A writer may use the folder at the same time."""

    __slots__ = ("_path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(os.fspath(path))
        self._path = os.fspath(path)

    def __repr__(self) -> str:
        return f"<windrow.CheckpointFolder '{self._path}'>"
