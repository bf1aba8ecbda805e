#!/usr/bin/env python3
"""Prints the steps of PyTorch's optimisers, as stored in tests/training/torch_optimisers.txt.

    perf/peers/torch_optimisers.py > tests/training/torch_optimisers.txt

The parameters are a 3 x 4 matrix and a 6 x 2 table. The loss is a sum over three samples of the squared distance
between the matrix and a target, and between some rows of the table and other targets; so a row that is used twice has
two terms. All numbers are made by a small generator that the test repeats. Each case is a line of its name and
settings, followed by a line for the values of both parameters after each of six steps.
"""

import torch

STEPS, SAMPLES = 6, 3


class Numbers:
    """Values within [-1, 1), exact as floats: a linear congruential generator."""

    def __init__(self):
        self.state = 12345

    def next(self):
        self.state = (self.state * 1103515245 + 12345) % 2**31
        return (self.state >> 8) / 2**22 - 1

    def tensor(self, rows, width):
        return torch.tensor([[self.next() for _ in range(width)] for _ in range(rows)], dtype=torch.float32)

    def rows(self, count, below):
        return [int((self.next() + 1) / 2 * below) for _ in range(count)]


CASES = {
    "sgd": dict(),
    "sgd penalty": dict(penalty=0.1),
    "momentum": dict(momentum=0.9),
    "momentum nesterov penalty": dict(momentum=0.9, nesterov=True, penalty=0.1),
    "adagrad": dict(),
    "adagrad initial penalty": dict(initial=0.5, penalty=0.1),
    "rmsprop": dict(),
    "rmsprop penalty": dict(penalty=0.1),
    "adam": dict(),
    "adam penalty": dict(penalty=0.1),
    "adam decay": dict(decay=0.1),
    "adam clip_norm": dict(clip_norm=0.5),
    "sgd clip_value": dict(clip_value=0.25),
    "sgd clip_norm": dict(clip_norm=0.5),
    "adam accumulate": dict(accumulate=2),
    "momentum steps": dict(momentum=0.9, schedule="steps"),
    "adam cosine": dict(schedule="cosine"),
}


def optimiser(method, settings, parameters):
    penalty = settings.get("penalty", 0)
    if method == "adam" and "decay" in settings:
        return torch.optim.AdamW(parameters, lr=0.1, weight_decay=settings["decay"])
    if method == "adam":
        return torch.optim.Adam(parameters, lr=0.1, weight_decay=penalty)
    if method == "adagrad":
        return torch.optim.Adagrad(
            parameters, lr=0.1, weight_decay=penalty, initial_accumulator_value=settings.get("initial", 0))
    if method == "rmsprop":
        return torch.optim.RMSprop(parameters, lr=0.1, weight_decay=penalty)
    return torch.optim.SGD(parameters, lr=0.1, weight_decay=penalty, momentum=settings.get("momentum", 0),
                           nesterov=settings.get("nesterov", False))


def run(name, settings):
    numbers = Numbers()
    matrix = numbers.tensor(3, 4).requires_grad_()
    table = numbers.tensor(6, 2).requires_grad_()
    stepper = optimiser(name.split()[0], settings, [matrix, table])
    schedule = {
        "steps": lambda: torch.optim.lr_scheduler.StepLR(stepper, 2, 0.5),
        "cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(stepper, 4, 0.01),
    }.get(settings.get("schedule"), lambda: None)()
    print(name)
    accumulate = settings.get("accumulate", 1)
    for _ in range(STEPS):
        stepper.zero_grad()
        for _ in range(accumulate):
            loss = 0
            for _ in range(SAMPLES):
                row, target = numbers.rows(1, 6)[0], numbers.tensor(1, 2)
                loss = loss + ((table[row] - target) ** 2).sum() + ((matrix[row % 3] - numbers.tensor(1, 4)) ** 2).sum()
            (loss / (SAMPLES * accumulate)).backward()
        if "clip_value" in settings:
            torch.nn.utils.clip_grad_value_([matrix, table], settings["clip_value"])
        if "clip_norm" in settings:
            torch.nn.utils.clip_grad_norm_([matrix, table], settings["clip_norm"])
        stepper.step()
        # Beyond its end, PyTorch's cosine rises again.
        if schedule and not (settings["schedule"] == "cosine" and schedule.last_epoch >= 4):
            schedule.step()
        print(*(f"{value:.9g}" for value in [*matrix.flatten().tolist(), *table.flatten().tolist()]))


if __name__ == "__main__":
    print("# PyTorch", torch.__version__.split("+")[0], "by perf/peers/torch_optimisers.py")
    for case, case_settings in CASES.items():
        run(case, case_settings)
