"""Vertex functions inside PyTorch models.

>>> import torch, windrow, windrow.torch
>>> parameters = windrow.Parameters(seed=1)
>>> @windrow.vertex_function(arity=2)
... def cell(v):
...     state = v.state("state", 32)
...     word = v.pull_row("words", 16)
...     h = windrow.tanh(word @ win + v.gather(0, state) @ left + v.gather(1, state) @ right)
...     v.scatter(state, h)
...     v.push("h", h)
>>> trees = windrow.torch.Module(cell, parameters, "h")
>>> h = trees(graphs, words=embedding(tokens))  # a torch tensor: a row for each vertex
>>> loss = torch.nn.functional.cross_entropy(classifier(h), labels)
>>> loss.backward()

A Module is an ``nn.Module``. Its parameters are torch parameters that share the memory of the windrow parameters, so
torch's optimisers, ``state_dict``, ``torch.save`` and DistributedDataParallel work with them. Gradients flow to its
parameters and to the tensors that vertices pull.
"""

from __future__ import annotations

from typing import Any, Iterable

import torch

from . import _windrow
from ._errors import MisuseError
from ._graphs import Graphs
from ._parameters import Parameters
from ._runner import Runner


def _windrow_tensor(name: str, given: torch.Tensor) -> _windrow.Tensor:
    """The tensor in windrow: its memory where the layout allows, otherwise a copy."""
    if given.dtype != torch.float32:
        given = given.to(torch.float32)  # autocast and double precision: windrow computes in float32
    if given.dim() != 2:
        raise MisuseError(f"'{name}' has shape {tuple(given.shape)}; expected (rows, width)")
    tensor = _windrow.from_dlpack(given.detach().contiguous())
    assert isinstance(tensor, _windrow.Tensor)  # and no IntTensor
    return tensor


class Module(torch.nn.Module):
    """A vertex function as a module of PyTorch.

    Args:
        function: the vertex function. It needs no loss: torch computes it from the outputs.
        parameters: its windrow.Parameters.
        outputs: the name of an output that the function pushes, or several.
        options: those of windrow.Runner.

    The module computes on the host, in float32: inputs of other types are converted, also under torch.autocast, and
    gradients are converted back. A second backward() through one call (retain_graph) computes its minibatch again. One
    thread at a time.
    """

    def __init__(
        self,
        function: _windrow.VertexFunction,
        parameters: Parameters,
        outputs: str | Iterable[str],
        **options: Any,
    ) -> None:
        super().__init__()
        self.function = function
        self.outputs = [outputs] if isinstance(outputs, str) else list(outputs)
        self._single = isinstance(outputs, str)
        self._runner = Runner(function, parameters, **options)
        self._shared = []
        for parameter in parameters:
            shared = torch.nn.Parameter(torch.from_dlpack(parameter.value), requires_grad=not parameter.frozen)
            self.register_parameter(parameter.name.replace(".", "_"), shared)
            self._shared.append((parameter, shared))

    def forward(self, graphs: Graphs, **given: torch.Tensor) -> torch.Tensor | dict[str, torch.Tensor]:
        """Computes the outputs of these graphs.

        ``given`` holds the tensors that vertices pull by name (Vertex.pull_row): (vertices, width), a row for each
        vertex in the order of graphs and vertices. Returns a tensor (vertices, width) for each output: a dict by
        name, or the tensor itself if the module was made with one name.
        """
        names = list(given)
        results = _Function.apply(self, graphs, names, *given.values(), *(shared for _, shared in self._shared))
        return results[0] if self._single else dict(zip(self.outputs, results))

    def _wait_for_parameters(self) -> None:
        """Waits for all ops that use the parameters, since torch's optimisers write them."""
        for parameter, _ in self._shared:
            with parameter.value.edit():
                pass

    def _apply(self, function: Any, recurse: bool = True) -> Module:
        for _, shared in self._shared:
            made = function(shared.data)
            if made.data_ptr() != shared.data_ptr() or made.dtype != shared.dtype:
                raise MisuseError(
                    f"a windrow.torch.Module moved to {made.device} as {made.dtype}; expected it to stay "
                    f"{shared.dtype} on {shared.device}"
                )
        return self


class _Function(torch.autograd.Function):
    """The call of a module, as an operation of autograd."""

    @staticmethod
    def forward(ctx: Any, module: Module, graphs: Graphs, names: list[str], *tensors: torch.Tensor) -> Any:
        given = {name: _windrow_tensor(name, tensor) for name, tensor in zip(names, tensors)}
        runner = module._runner
        if any(ctx.needs_input_grad):
            minibatch = runner.record(graphs, module.outputs, given)
        else:
            minibatch = runner.run(graphs, given)
        ctx.module, ctx.minibatch, ctx.names = module, minibatch, names
        ctx.again = lambda: runner.record(graphs, module.outputs, given)
        ctx.types = [tensor.dtype for tensor in tensors]
        results = tuple(torch.from_dlpack(minibatch.output(name)) for name in module.outputs)
        module._wait_for_parameters()
        return results

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        module = ctx.module
        minibatch, ctx.minibatch = ctx.minibatch or ctx.again(), None  # with retain_graph, torch comes here again
        module._runner.backward(
            minibatch,
            {name: _windrow_tensor(name, gradient) for name, gradient in zip(module.outputs, gradients)},
        )
        result: list[Any] = [None, None, None]
        needed = ctx.needs_input_grad[3:]
        for name, needs, dtype in zip(ctx.names, needed, ctx.types):
            result.append(torch.from_dlpack(minibatch.gradient(name)).to(dtype) if needs else None)
        for (parameter, _), needs in zip(module._shared, needed[len(ctx.names) :]):
            result.append(torch.from_dlpack(parameter.gradient) if needs else None)
        module._wait_for_parameters()
        return tuple(result)
