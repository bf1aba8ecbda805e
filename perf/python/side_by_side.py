"""Runs variants in turn in one process, since a machine's speed changes by more than the variants differ."""

from __future__ import annotations

import gc
import pathlib
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch


class Figures:
    """For each run of each variant, the milliseconds elapsed, and the processor time of all threads."""

    def __init__(self, variants: dict[str, Callable[[], None]], repetitions: int) -> None:
        self.elapsed: dict[str, list[float]] = {name: [] for name in variants}
        self.processor: dict[str, list[float]] = {name: [] for name in variants}
        for run in variants.values():  # warms up memory, plans and caches
            run()
        gc.collect()
        gc.freeze()  # so that no variant pays for collecting older objects
        names = list(variants)
        for repetition in range(repetitions):
            first = repetition % len(names)
            for name in names[first:] + names[:first]:
                elapsed, processor = time.perf_counter(), time.process_time()
                variants[name]()
                self.elapsed[name].append(1e3 * (time.perf_counter() - elapsed))
                self.processor[name].append(1e3 * (time.process_time() - processor))
        gc.unfreeze()

    def print(self, title: str, base: str, per_run: int) -> None:
        """Writes a row for each variant; ratios are medians of the ratios within repetitions."""
        print(f"{title}: ms a step, {len(self.elapsed[base])} repetitions of {per_run} steps, {machine()}")
        for name in self.elapsed:
            row = f"  {name:32}"
            for what, runs in ("elapsed", self.elapsed), ("processor", self.processor):
                middle, least = statistics.median(runs[name]) / per_run, min(runs[name]) / per_run
                ratio = statistics.median(other / own for other, own in zip(runs[name], runs[base]))
                row += f" {what} {middle:8.2f} (least {least:8.2f}) = {ratio:5.2f} x;"
            print(row[:-1], flush=True)


def steps(model: torch.nn.Module, batches: list[Any]) -> Callable[[], None]:
    """A function that takes a step of gradient descent for each batch. The model computes the loss of a batch."""
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-5)

    def run() -> None:
        for batch in batches:
            optimiser.zero_grad()
            model(batch).backward()
            optimiser.step()

    return run


def machine() -> str:
    path = pathlib.Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
