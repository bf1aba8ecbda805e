#!/usr/bin/env python3
"""The cost of calls from Python, in microseconds per call; also of those of DyNet if its package is installed.

    PYTHONPATH=build/release/python perf/python/calls.py [--repetitions N]

All calls are measured in turn. While ops are pushed, the engine's only worker is blocked, so figures exclude the runs
of ops, except in the row that says so. The time of a loop that does nothing is subtracted.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy

import windrow

try:
    import dynet
except ImportError:
    dynet = None

CALLS = 1000
Call = Callable[[list[Any]], None]


def nothing(results: list[Any]) -> None:
    for i in range(CALLS):
        results[i] = None


class Engine:
    """Ops, and operators of tensors."""

    def __init__(self) -> None:
        self.engine = windrow.Engine(workers=1)
        host = windrow.host(self.engine)
        self.x, self.y = windrow.full(1, 16, 1.0, host), windrow.full(1, 16, 2.0, host)

    def function(self, results: list[Any]) -> None:
        for _ in range(CALLS):
            self.engine.push(pass_by, mutate=self.x)

    def unary(self, results: list[Any]) -> None:
        for i in range(CALLS):
            results[i] = windrow.tanh(self.x)

    def binary(self, results: list[Any]) -> None:
        for i in range(CALLS):
            results[i] = self.x + self.y

    def in_place(self, results: list[Any]) -> None:
        for _ in range(CALLS):
            windrow.sgd(self.x, self.y, 0.0)

    def held(self, call: Call) -> float:
        """The seconds that the call takes while the worker is blocked."""
        results, go = [None] * CALLS, threading.Event()
        self.engine.push(go.wait, mutate=[self.x, self.y])
        seconds = timed(call, results)
        go.set()
        self.engine.wait_all()
        return seconds

    def with_runs(self) -> float:
        results: list[Any] = []
        begin = time.perf_counter()
        self.function(results)
        self.engine.wait_all()
        return time.perf_counter() - begin


def pass_by() -> None:
    pass


class Lazy:
    """Expressions of a recurrent network, operation by operation, and as a cell."""

    def __init__(self) -> None:
        self.parameters = windrow.Parameters(windrow.host(windrow.default_engine()), seed=1)
        self.input, self.state = self.parameters.add("input", 16, 16), self.parameters.add("state", 16, 16)
        self.bias = self.parameters.add("bias", 1, 16)
        self.graph = windrow.LazyGraph(self.parameters)

        @windrow.cell
        def step(cell: windrow.CellBody) -> None:
            cell.result(self.written(cell.operand(16), cell.operand(16)))

        self.step = step

    def written(self, x: Any, state: Any) -> Any:
        return windrow.tanh(x @ self.input + state @ self.state + self.bias)

    def node(self, results: list[Any]) -> None:
        state = self.graph.zeros(16)
        for _ in range(CALLS):
            state = windrow.tanh(state)

    def expression(self, results: list[Any]) -> None:
        x, state = self.graph.zeros(16), self.graph.zeros(16)
        for _ in range(CALLS):
            state = self.written(x, state)

    def cell(self, results: list[Any]) -> None:
        x, state = self.graph.zeros(16), self.graph.zeros(16)
        for _ in range(CALLS):
            state = self.step(x, state)

    def fresh(self, call: Call) -> float:
        self.graph.clear()
        return timed(call, [])


class DyNet:
    """The same expressions in DyNet."""

    def __init__(self) -> None:
        model = dynet.ParameterCollection()
        self.input, self.state = model.add_parameters((16, 16)), model.add_parameters((16, 16))
        self.bias = model.add_parameters(16)

    def node(self, results: list[Any]) -> None:
        state = dynet.zeros(16)
        for _ in range(CALLS):
            state = dynet.tanh(state)

    def expression(self, results: list[Any]) -> None:
        x, state = dynet.zeros(16), dynet.zeros(16)
        for _ in range(CALLS):
            state = dynet.tanh(self.input * x + self.state * state + self.bias)

    def fresh(self, call: Call) -> float:
        dynet.renew_cg()
        return timed(call, [])


class Exchange:
    """Arrays by DLPack."""

    def __init__(self) -> None:
        self.array = numpy.ones((4, 16), numpy.float32)
        self.tensor = windrow.tensor(self.array)
        self.tensor.numpy()

    def to_windrow(self, results: list[Any]) -> None:
        for i in range(CALLS):
            results[i] = windrow.from_dlpack(self.array)

    def to_numpy(self, results: list[Any]) -> None:
        for i in range(CALLS):
            results[i] = numpy.from_dlpack(self.tensor)

    def fresh(self, call: Call) -> float:
        return timed(call, [None] * CALLS)


def timed(call: Call, results: list[Any]) -> float:
    begin = time.perf_counter()
    call(results)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=100)
    repetitions = parser.parse_args().repetitions
    engine, lazy, exchange = Engine(), Lazy(), Exchange()
    rows: dict[str, Callable[[], float]] = {
        "nothing": lambda: timed(nothing, [None] * CALLS),
        "push of a Python function": lambda: engine.held(engine.function),
        "push of a Python function, and its run": engine.with_runs,
        "operator with a new tensor: tanh(x)": lambda: engine.held(engine.unary),
        "operator with a new tensor: x + y": lambda: engine.held(engine.binary),
        "operator in place: sgd(x, y)": lambda: engine.held(engine.in_place),
        "lazy node: tanh(s)": lambda: lazy.fresh(lazy.node),
        "lazy step: tanh(x @ w + s @ u + b)": lambda: lazy.fresh(lazy.expression),
        "lazy step as a cell": lambda: lazy.fresh(lazy.cell),
        "DLPack: NumPy to windrow": lambda: exchange.fresh(exchange.to_windrow),
        "DLPack: windrow to NumPy": lambda: exchange.fresh(exchange.to_numpy),
    }
    if dynet is not None:
        other = DyNet()
        rows["DyNet node: tanh(s)"] = lambda: other.fresh(other.node)
        rows["DyNet step: tanh(w * x + u * s + b)"] = lambda: other.fresh(other.expression)
    seconds: dict[str, list[float]] = {name: [] for name in rows}
    gc.disable()  # garbage is collected only between repetitions
    for _ in range(repetitions):
        for name, measure in rows.items():
            seconds[name].append(measure())
        gc.collect()
    idle = statistics.median(seconds.pop("nothing"))
    print(f"{'microseconds a call':42} {'median':>8} {'least':>8}")
    for name, of in seconds.items():
        median, least = ((value - idle) / CALLS * 1e6 for value in (statistics.median(of), min(of)))
        print(f"{name:42} {median:8.2f} {least:8.2f}")
    engine.engine.close()


main()
