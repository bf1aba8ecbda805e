#!/usr/bin/env python3
"""Reading a treebank and making its graphs in Python compared with the reader of windrow-perf, in milliseconds.

    PYTHONPATH=build/release/python perf/python/treebank.py --data DIR --program build/release/bin/windrow-perf

DIR/train.txt is the treebank. Each repetition takes every measurement in turn.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import numpy

import windrow


@windrow.vertex_function(arity=2)
def labelled(v: windrow.Vertex) -> None:
    state = v.state("state", 1)
    v.scatter(state, v.gather(0, state))
    v.pull_index("word", optional=True)
    v.pull_index("label")


def arrays_of(graphs: windrow.Graphs) -> dict[str, Any]:
    """The arguments of Graphs.from_arrays for the same graphs."""
    structures = [graph.structure() for graph in graphs]
    counts = numpy.concatenate([numpy.diff(starts) for starts, _, _ in structures])
    return {
        "offsets": numpy.cumsum([0, *(graph.vertices for graph in graphs)]),
        "child_offsets": numpy.cumsum([0, *counts]),
        "children": numpy.concatenate([children for _, children, _ in structures]),
        "word": numpy.concatenate([graph.index("word") for graph in graphs]),
        "label": numpy.concatenate([graph.index("label") for graph in graphs]),
    }


def reader_ms(program: pathlib.Path, data: pathlib.Path) -> float:
    command = [program, "train", "--model", "tree-lstm", "--data", data, "--hidden", "1", "--embedding", "1", "--passes",
               "1", "--inference", "--json"]  # fmt: skip
    record = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return float(record["reading_ms"])


def timed(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - begin
    del result
    return 1e3 * seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--repetitions", type=int, default=10)
    options = parser.parse_args()
    file = options.data / "train.txt"
    text, trees = file.read_text(), windrow.Treebank(file)
    vocabulary = trees.vocabulary()
    arrays = arrays_of(trees.graphs(labelled, vocabulary))
    rows: dict[str, Callable[[], float]] = {
        "read_treebank() in windrow-perf": lambda: reader_ms(options.program, options.data),
        "Treebank(file)": lambda: timed(lambda: windrow.Treebank(file)),
        "Treebank(text=...)": lambda: timed(lambda: windrow.Treebank(text=text)),
        "Treebank.graphs()": lambda: timed(lambda: trees.graphs(labelled, vocabulary)),
        "Graphs.from_arrays()": lambda: timed(lambda: windrow.Graphs.from_arrays(labelled, **arrays)),
    }
    milliseconds: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(options.repetitions):
        for name, measure in rows.items():
            milliseconds[name].append(measure())
    base = milliseconds["read_treebank() in windrow-perf"]
    print(f"{len(trees)} trees, {len(arrays['word'])} vertices; milliseconds")
    print(f"{'':34} {'median':>8} {'least':>8}   of the reader's, least by least")
    for name, of in milliseconds.items():
        print(f"{name:34} {statistics.median(of):8.1f} {min(of):8.1f} {min(of) / min(base):8.2f}")


main()
