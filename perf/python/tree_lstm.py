#!/usr/bin/env python3
"""The training of a Tree-LSTM from Python compared with `windrow-perf train`, on one core each.

    PYTHONPATH=build/release/python taskset -c 1 perf/python/tree_lstm.py --data DIR \
        --program build/release/bin/windrow-perf

Both train the same network on DIR/train.txt, in minibatches of 64, with plain gradient descent, an engine of one
worker, and graphs that were made before the measurement. They run in turn, one epoch at a time.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import time

import windrow
from windrow import concat, embedding, sigmoid, softmax_cross_entropy, tanh


def tree_lstm(parameters: windrow.Parameters, vocabulary: int, H: int) -> windrow.VertexFunction:
    words = parameters.add("words", vocabulary, H, windrow.init.uniform(-0.1, 0.1))
    leaf, inner, bias = (
        parameters.add("leaf", H, 3 * H),
        parameters.add("inner", 2 * H, 3 * H),
        parameters.add("bias", 1, 3 * H, 0.0),
    )
    forget, forget_bias = parameters.add("forget", H, H), parameters.add("forget_bias", 1, H, 1.0)
    head, head_bias = parameters.add("head", H, 5), parameters.add("head_bias", 1, 5, 0.0)

    @windrow.vertex_function(arity=2)
    def cell(v: windrow.Vertex) -> None:
        h, c = v.state("h", H), v.state("c", H)
        left, right = v.gather(0, h), v.gather(1, h)
        word = embedding(words, v.pull_index("word", optional=True))
        gates = word @ leaf + concat([left, right]) @ inner + bias
        keep_left, keep_right = (sigmoid(state @ forget + forget_bias) for state in (left, right))
        memory = sigmoid(gates[:H]) * tanh(gates[2 * H :]) + keep_left * v.gather(0, c) + keep_right * v.gather(1, c)
        own = sigmoid(gates[H : 2 * H]) * tanh(memory)
        v.scatter(h, own)
        v.scatter(c, memory)
        logits = own @ head + head_bias
        v.push("logits", logits)
        v.loss(softmax_cross_entropy(logits, v.pull_index("label")))

    return cell


class Training:
    def __init__(self, trees: windrow.Treebank, hidden: int) -> None:
        self.engine = windrow.Engine(workers=1)
        self.parameters = windrow.Parameters(windrow.host(self.engine), seed=1)
        vocabulary = trees.vocabulary()
        cell = tree_lstm(self.parameters, len(vocabulary), hidden)
        self.graphs = trees.graphs(cell, vocabulary)
        self.runner = windrow.Runner(cell, self.parameters)
        self.epochs = 0

    def epoch(self) -> float:
        """Trains an epoch, and returns trees per second."""
        self.epochs += 1
        begin = time.perf_counter()
        total, last = 0.0, None
        for minibatch in self.graphs.minibatches(64, shuffle=self.epochs):
            computed = self.runner.differentiate(minibatch)
            self.parameters.sgd(0.1 / len(minibatch))
            if last is not None:
                total += last.loss()
            last = computed
        if last is not None:
            total += last.loss()
        self.engine.wait_all()
        return len(self.graphs) / (time.perf_counter() - begin)


def windrow_perf(program: pathlib.Path, data: pathlib.Path, hidden: int) -> float:
    """Trees per second of one epoch, after a warm-up."""
    command = [program, "train", "--model", "tree-lstm", "--data", data, "--hidden", str(hidden), "--embedding",
               str(hidden), "--workers", "1", "--passes", "1", "--json"]  # fmt: skip
    record = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return float(record["units_per_s"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--hidden", type=int, nargs="+", default=[32, 64, 256])
    parser.add_argument("--repetitions", type=int, default=9)
    options = parser.parse_args()
    trees = windrow.Treebank(options.data / "train.txt")
    print(f"trees/s, {options.repetitions} epochs each")
    print(f"{'hidden':>6} {'Python':>8} {'C++':>8}   ratio of medians, of the fastest")
    for hidden in options.hidden:
        training = Training(trees, hidden)
        training.epoch()  # warms up memory, plans and caches
        python, program = [], []
        for _ in range(options.repetitions):
            python.append(training.epoch())
            program.append(windrow_perf(options.program, options.data, hidden))
        medians = statistics.median(python), statistics.median(program)
        ratios = medians[0] / medians[1], max(python) / max(program)
        print(f"{hidden:6} {medians[0]:8.0f} {medians[1]:8.0f} {ratios[0]:8.3f} {ratios[1]:8.3f}", flush=True)
        training.engine.close()


main()
