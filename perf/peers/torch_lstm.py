#!/usr/bin/env python3
"""PyTorch's nn.LSTM (cuDNN on a GPU), for comparison with fixed-length LSTMs: 64 steps, hidden size 512, batch size 64.

    perf/peers/torch_lstm.py --device cuda

Prints one JSON object per line, with the best and the median sequences/s of the passes, for the forward pass and for
the forward and backward pass; on a GPU with TF32 on and off.
"""
import argparse
import json
import statistics
import time

import torch


def measure(work, passes, repeats, device):
    """Seconds of one piece of work, in each pass."""
    seconds = []
    for number in range(passes + 1):  # the first warms up
        began = time.perf_counter()
        for _ in range(repeats):
            work()
        if device == "cuda":
            torch.cuda.synchronize()
        if number > 0:
            seconds.append((time.perf_counter() - began) / repeats)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=10, help="repetitions per pass")
    parser.add_argument("--threads", type=int, default=1, help="threads on the CPU")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    lstm = torch.nn.LSTM(arguments.hidden, arguments.hidden).to(arguments.device)
    x = torch.randn(arguments.steps, arguments.batch, arguments.hidden, device=arguments.device, requires_grad=True)

    def inference():
        with torch.no_grad():
            lstm(x)

    def training():
        lstm.zero_grad(set_to_none=True)
        lstm(x)[0].sum().backward()

    for tf32 in (False, True) if arguments.device == "cuda" else (False,):
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        for work in (training, inference):
            rates = [arguments.batch / s
                     for s in measure(work, arguments.passes, arguments.repeats, arguments.device)]
            print(json.dumps({
                "system": "torch " + torch.__version__, "model": "fixed-lstm",
                "device": torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu",
                "workers": arguments.threads, "tf32": tf32, "steps": arguments.steps, "hidden": arguments.hidden,
                "batch": arguments.batch, "mode": work.__name__, "unit": "sequences",
                "units_per_s": max(rates), "units_per_s_median": statistics.median(rates)}), flush=True)


if __name__ == "__main__":
    main()
