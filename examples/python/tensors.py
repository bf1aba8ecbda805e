"""Fits a line by gradient descent: tensors, operators, a tape, a static function, and NumPy on both sides."""

import numpy as np

import windrow

inputs = np.linspace(-1, 1, 64, dtype=np.float32).reshape(64, 1)
x = windrow.from_dlpack(inputs)  # shares the array's memory
y = windrow.tensor(3 * inputs + 0.5)  # copies
weight, bias = windrow.full(1, 1, 0.0), windrow.full(1, 1, 0.0)


@windrow.static  # the function runs once; later calls replay its ops
def step(x: windrow.Tensor, y: windrow.Tensor) -> windrow.Tensor:
    with windrow.Tape() as tape:
        tape.watch(weight, bias)
        loss = windrow.column_sum(windrow.square(x @ weight + bias - y)) / len(inputs)
    tape.backward(loss)
    for parameter in (weight, bias):
        gradient = tape.gradient(parameter)
        assert gradient is not None  # since the loss depends on it
        windrow.sgd(parameter, gradient, 0.2)
    return loss


for number in range(1, 101):
    loss = step(x, y)  # pushes ops and returns; item() waits for them
    if number % 25 == 0:
        print(f"step {number}: loss {loss.item():.6f}")
print(f"y = {weight.item():.3f} * x + {bias.item():.3f}")
print("largest error:", np.abs(np.from_dlpack(x @ weight + bias) - y.numpy()).max().round(3))
