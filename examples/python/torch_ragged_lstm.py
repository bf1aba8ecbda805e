"""Replaces a padded nn.LSTM over sequences of different lengths: chains need no padding, packing or masks."""

import torch

import windrow
import windrow.torch


H = 16
lstm = torch.nn.LSTM(H, H, batch_first=True)  # the module to replace

parameters = windrow.Parameters(seed=1)
w_in, w, bias = (parameters.add(name, rows, 4 * H) for name, rows in (("w_in", H), ("w", H), ("bias", 1)))


@windrow.vertex_function(arity=1)
def cell(v: windrow.Vertex) -> None:
    h, c = v.state("h", H), v.state("c", H)
    gates = v.pull_row("words", H) @ w_in + v.gather(0, h) @ w + bias  # zeros before the first word
    i, f, g, o = (gates[k * H : (k + 1) * H] for k in range(4))
    memory = windrow.sigmoid(f) * v.gather(0, c) + windrow.sigmoid(i) * windrow.tanh(g)
    own = windrow.sigmoid(o) * windrow.tanh(memory)
    v.scatter(h, own)
    v.scatter(c, memory)
    v.push("h", own)


ragged = windrow.torch.Module(cell, parameters, "h")
with torch.no_grad():  # copies the weights of nn.LSTM
    ragged.w_in.copy_(lstm.weight_ih_l0.t())
    ragged.w.copy_(lstm.weight_hh_l0.t())
    ragged.bias.copy_((lstm.bias_ih_l0 + lstm.bias_hh_l0)[None])

torch.manual_seed(1)
lengths = [7, 2, 5]
sequences = [torch.randn(length, H) for length in lengths]

padded, _ = lstm(torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True))
expected = torch.cat([states[:length] for states, length in zip(padded, lengths)])

chains = [{"children": [list[int]()] + [[word] for word in range(length - 1)]} for length in lengths]
states = ragged(windrow.Graphs.from_lists(cell, chains), words=torch.cat(sequences))  # (14, H): a row for each word
print(f"{len(states)} words instead of {padded.shape[0] * padded.shape[1]}")
print("equal" if torch.allclose(states, expected, atol=1e-5) else "different")
