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
from ._graphs import Graphs
from ._vertex_function import VertexFunction, vertex_function
from ._windrow import EngineStats, Graph, InputGraph, Stop, Var, Vertex, default_engine

__all__ = [
    "Cancelled",
    "DeadlineError",
    "Engine",
    "EngineStats",
    "Error",
    "Failure",
    "FileError",
    "Graph",
    "Graphs",
    "InputGraph",
    "MisuseError",
    "NotFiniteError",
    "OpError",
    "OutOfMemory",
    "Stop",
    "Var",
    "Vertex",
    "VertexFunction",
    "WaitCycleError",
    "default_engine",
    "vertex_function",
]


def _at_exit() -> None:
    # Before Python ends, since ops may need it.
    if not _windrow._close_all():
        sys.stderr.write("windrow: ops did not end within 10 s after the program; the process ends without them\n")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


atexit.register(_at_exit)
os.register_at_fork(before=_windrow._before_fork)
