#!/usr/bin/env python3
"""PyTorch's DistributedDataParallel over gloo, for comparison with `windrow-perf comm --role perceptron`, whose model it trains.

    perf/peers/torch_ddp.py --processes 2

Prints one JSON object with medians in ms: the time of a step, without communication (the same module without
DistributedDataParallel), and of the sums of its gradients alone, in buckets of the same size. The last and the first
loss are those of windrow-perf, up to rounding.
"""
import argparse
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed
import torch.multiprocessing

RATE = 0.01  # the learning rate, perceptron_rate in perf/comm/comm.h


def drawn(tensor, shape, limit):
    """Numbers within +-limit, those of windrow-perf: the finaliser of MurmurHash3."""
    mask = 0xffffffff
    h = (torch.arange(shape[0] * shape[1], dtype=torch.int64) + tensor * 0x9e3779b9) & mask
    h = ((h ^ (h >> 16)) * 0x85ebca6b) & mask
    h = ((h ^ (h >> 13)) * 0xc2b2ae35) & mask
    h ^= h >> 16
    return (limit * (h.double() / 2147483648.0 - 1)).float().reshape(shape)


class Perceptron(torch.nn.Module):
    def __init__(self, layers, width):
        super().__init__()
        self.weights = torch.nn.ParameterList(drawn(i, (width, width), (3.0 / width)**0.5) for i in range(layers))

    def forward(self, state):
        for weight in self.weights:
            state = torch.tanh(state @ weight)
        return state


class Member:
    def __init__(self, rank, arguments):
        self.arguments = arguments
        size = (arguments.batch, arguments.width)
        self.input, self.target = drawn(1000 + 2 * rank, size, 1), drawn(1001 + 2 * rank, size, 0.5)
        self.module = Perceptron(arguments.layers, arguments.width)
        self.parallel = torch.nn.parallel.DistributedDataParallel(self.module, bucket_cap_mb=arguments.bucket)
        self.optimiser = torch.optim.SGD(self.module.parameters(), lr=RATE)
        # Buckets as DistributedDataParallel makes them, in the reverse order of parameters; its first one is small.
        self.buckets, elements, limit = [], 0, torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
        for weight in reversed(list(self.module.parameters())):
            elements += weight.numel()
            if 4 * elements >= limit:
                self.buckets.append(torch.zeros(elements))
                elements, limit = 0, arguments.bucket * 2**20
        if elements > 0:
            self.buckets.append(torch.zeros(elements))

    def train(self, module):
        self.optimiser.zero_grad()
        loss = (module(self.input) - self.target).square().sum() / self.arguments.batch
        loss.backward()
        self.optimiser.step()
        return loss.detach()

    def step(self):
        return self.train(self.parallel)

    def compute_only(self):
        self.train(self.module)

    def communicate_only(self):
        for work in [torch.distributed.all_reduce(bucket, async_op=True) for bucket in self.buckets]:
            work.wait()

    def time(self, step):
        """Milliseconds of a step, a mean."""
        torch.distributed.barrier()
        began = time.perf_counter()
        for _ in range(self.arguments.steps):
            step()
        torch.distributed.barrier()
        return (time.perf_counter() - began) / self.arguments.steps * 1e3


def run(rank, arguments, meeting):
    torch.set_num_threads(arguments.threads)
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank,
                                         world_size=arguments.processes)
    member = Member(rank, arguments)
    losses = [float(member.step()) for _ in range(arguments.steps + 1)]
    variants = [member.step, member.compute_only, member.communicate_only]
    times = [[] for _ in variants]
    for repetition in range(arguments.repetitions + 1):  # the first one warms up
        for turn in range(len(variants)):
            variant = (turn + repetition) % len(variants)
            took = member.time(variants[variant])
            if repetition > 0:
                times[variant].append(took)
    step, computation, communication = map(statistics.median, times)
    # From the ratios within repetitions, since the machine may change its speed between them.
    of_step, of_computation = (statistics.median(t / alone for t, alone in zip(of, times[2])) for of in times[:2])
    if rank == 0:
        print(json.dumps({
            "system": "torch " + torch.__version__, "processes": arguments.processes, "layers": arguments.layers,
            "width": arguments.width, "batch": arguments.batch, "bucket_mb": arguments.bucket, "step_ms": step,
            "computation_ms": computation, "communication_ms": communication,
            "hidden": 1 - (of_step - of_computation), "loss_first": losses[0], "loss_last": losses[-1]}),
            flush=True)
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=512, help="inputs and outputs of a layer")
    parser.add_argument("--batch", type=int, default=64, help="samples per minibatch of a process")
    parser.add_argument("--bucket", type=int, default=25, help="MiB of a bucket; 25 is PyTorch's default")
    parser.add_argument("--steps", type=int, default=10, help="steps of a repetition")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="threads of a process that compute")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all processes run on this machine
        torch.multiprocessing.spawn(run, (arguments, f"{folder}/meeting"), nprocs=arguments.processes)


if __name__ == "__main__":
    main()
