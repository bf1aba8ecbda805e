#!/usr/bin/env python3
"""The models of `windrow-perf train --model mlp,cnn` in PyTorch, on the CPU.

    perf/peers/torch_images.py --model cnn --batch 64 --threads 1

Same layers, sizes and plain gradient descent; images are random bytes, which are converted to floats minibatch by
minibatch, in a random order, as Windrow does. Prints a JSON object with the best and the median images/s of the passes.
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F


class Mlp(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(28 * 28, hidden), torch.nn.ReLU(),
                                          torch.nn.Linear(hidden, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))

    def forward(self, images):
        return self.layers(images)


class Cnn(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Conv2d(1, 20, 5), torch.nn.MaxPool2d(2), torch.nn.ReLU(),
                                            torch.nn.Conv2d(20, 50, 5), torch.nn.MaxPool2d(2), torch.nn.ReLU())
        self.layers = torch.nn.Sequential(torch.nn.Linear(50 * 4 * 4, hidden), torch.nn.ReLU(),
                                          torch.nn.Linear(hidden, 10))

    def forward(self, images):
        return self.layers(self.features(images.view(-1, 1, 28, 28)).flatten(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", choices=["mlp", "cnn"], required=True)
    for flag, usual in (("--hidden", 0), ("--batch", 64), ("--samples", 8192), ("--passes", 5), ("--threads", 1)):
        parser.add_argument(flag, type=int, default=usual)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = Mlp(options.hidden or 256) if options.model == "mlp" else Cnn(options.hidden or 500)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randint(0, 256, (options.samples, 28 * 28), dtype=torch.uint8)
    labels = torch.randint(0, 10, (options.samples,))

    def run(numbers):
        for chosen in numbers.split(options.batch):
            optimiser.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(images[chosen].float() / 255), labels[chosen])
            loss.backward()
            optimiser.step()
            loss.item()

    run(torch.arange(min(options.samples, 512)))  # warms up
    rates = []
    for _ in range(options.passes):
        order = torch.randperm(options.samples)
        began = time.perf_counter()
        run(order)
        rates.append(options.samples / (time.perf_counter() - began))
    print(json.dumps({"model": options.model, "threads": options.threads, "batch": options.batch,
                      "units_per_s": max(rates), "units_per_s_median": statistics.median(rates),
                      "torch": torch.__version__}))


if __name__ == "__main__":
    main()
