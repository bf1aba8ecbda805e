"""Windrow: an asynchronous dependency engine with dynamic batching. See docs/python.md."""

from __future__ import annotations

import atexit
import os
import sys

from . import _windrow
from ._engine import Engine
from ._errors import (
    Cancelled,
    DeadlineError,
    Error,
    Failure,
    FileError,
    MisuseError,
    NotFiniteError,
    OpError,
    OutOfMemory,
    WaitCycleError,
)
from ._windrow import EngineStats, Graph, Stop, Var, default_engine

__all__ = [
    "Cancelled",
    "DeadlineError",
    "Engine",
    "EngineStats",
    "Error",
    "Failure",
    "FileError",
    "Graph",
    "MisuseError",
    "NotFiniteError",
    "OpError",
    "OutOfMemory",
    "Stop",
    "Var",
    "WaitCycleError",
    "__version__",
    "default_engine",
]

__version__: str = _windrow._version

_PATIENCE_AT_EXIT, _PATIENCE_BEFORE_FORK = 10.0, 5.0
"""How many seconds pending ops have to end after the program, and before a fork."""


def _at_exit() -> None:
    # Before Python ends, since ops may need it.
    if not _windrow._close_all(_PATIENCE_AT_EXIT):
        sys.stderr.write("windrow: the process ends without ops that did not end after the program\n")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


atexit.register(_at_exit)
os.register_at_fork(
    before=lambda: _windrow._before_fork(_PATIENCE_BEFORE_FORK),
    after_in_parent=_windrow._after_fork_in_parent,
    after_in_child=_windrow._after_fork_in_child,
)
