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

import copy
import weakref
from typing import Any, Iterable, NamedTuple, Sequence

import torch

from . import _windrow
from ._checks import require
from ._errors import MisuseError
from ._graphs import Graphs
from ._parameters import Parameters
from ._runner import Runner


def _about(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of ({', '.join(type(one).__name__ for one in value)})"
    return type(value).__name__


def _windrow_tensor(name: str, given: torch.Tensor) -> _windrow.Tensor:
    """The tensor as one of windrow. Shares its memory if type and layout allow, and otherwise copies."""
    if given.dim() != 2:
        raise MisuseError(f"'{name}' has shape {tuple(given.shape)}; expected (rows, width)")
    if given.device.type != "cpu":
        raise MisuseError(f"'{name}' is on {given.device}; expected cpu, on which a windrow.torch.Module computes")
    given = given.detach()
    if given.dtype != torch.float32:
        given = given.to(torch.float32)  # autocast and double precision: windrow computes in float32
    tensor = _windrow.from_dlpack(given.contiguous())
    assert isinstance(tensor, _windrow.Tensor)  # not an IntTensor
    return tensor


_made: weakref.WeakKeyDictionary[Parameters, dict[str, torch.nn.Parameter]] = weakref.WeakKeyDictionary()
"""The torch parameters of each set of parameters. All modules of a set share them, like tied weights."""


class Module(torch.nn.Module):
    """A vertex function as a module of PyTorch.

    Args:
        function: the vertex function. It needs no loss: torch computes it from the outputs.
        parameters: its windrow.Parameters. Modules of one set share their torch parameters. A torch parameter has the
            same name, with '_' in place of dots, and another '_' at the end if the module already has that attribute.
        outputs: the name of an output that the function pushes, or several.
        options: those of windrow.Runner. If all ops run on one core, ``groups=1, op_flops=100_000_000`` are fastest.

    The module computes on the host, in float32: inputs of other types are converted, also under torch.autocast, and
    gradients are converted back. A second backward() through one call (retain_graph) computes its minibatch again. One
    thread at a time may use the module.

    half(), cuda() and other conversions of types or devices raise MisuseError, also if a model that contains the module
    is converted. Torch converts layers in order, so the layers before the module are converted by then: convert these
    layers on their own.

    Dropout of the function is active after train() if gradients are needed. After eval(), a call of a function with
    dropout has no gradients.

    Under torch.no_grad(), a call records nothing and applies no dropout. If torch.utils.checkpoint repeats a call, the
    repeated call drops other elements: do not checkpoint functions with dropout.

    ``requires_grad`` of the torch parameters says which gradients are computed; at first it is False for frozen
    parameters. A parameter that windrow freezes later must not require gradients in torch. There are first
    derivatives only: ``create_graph=True`` is an error. So is a change of a parameter, by torch or by windrow, between
    a call and its backward().

    copy.deepcopy() copies the parameters; the copy computes the same function, and so the same graphs. A module cannot
    be pickled, since its graphs belong to its vertex function: save state_dict() instead. Its parameters cannot be
    replaced, as by torch.func.functional_call or load_state_dict(assign=True).
    """

    def __init__(
        self,
        function: _windrow.VertexFunction,
        parameters: Parameters,
        outputs: str | Iterable[str],
        **options: Any,
    ) -> None:
        super().__init__()
        require(function, _windrow.VertexFunction, "windrow.torch.Module: function", "a VertexFunction")
        require(parameters, Parameters, "windrow.torch.Module: parameters", "the windrow.Parameters of the function")
        self.function = function
        self.outputs = [outputs] if isinstance(outputs, str) else list(outputs)
        known = [name for name, _ in function.outputs]
        for name in self.outputs:
            if name not in known:
                listed = ", ".join(f"'{one}'" for one in known) or "none: v.push(name, value) makes one"
                raise MisuseError(f"{function.name} has no output '{name}'; expected {listed}")
        if not self.outputs or len(set(self.outputs)) != len(self.outputs):
            raise MisuseError(f"outputs are {self.outputs}; expected the name of an output, or several different ones")
        self._single = isinstance(outputs, str)
        self._set, self._options = parameters, options
        self._runner = Runner(function, parameters, **options)
        self._shared: list[_Shared] = []
        for parameter in parameters:
            name = parameter.name.replace(".", "_")
            while hasattr(self, name):
                name += "_"
            self._shared.append(_shared(name, parameters, parameter, not parameter.frozen))
            self.register_parameter(name, self._shared[-1].torch)

    def forward(
        self,
        graphs: Graphs | _windrow.InputGraph | Iterable[_windrow.InputGraph],
        **given: torch.Tensor | tuple[torch.Tensor, Any],
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """Computes the outputs of these graphs.

        ``given`` has the tensors that vertices pull by name (Vertex.pull_row). Each is a tensor (vertices, width), with
        a row for each vertex in the order of graphs and vertices; or a tuple of a tensor and integers (vertices,), the
        row that each vertex pulls. Returns a tensor (vertices, width) for each output: a dict by name, or the tensor
        itself if the module was made with one name.
        """
        tensors: list[torch.Tensor] = []
        rows: list[Any] = []
        for name, value in given.items():
            tensor, row_of = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
            if not isinstance(tensor, torch.Tensor):
                raise TypeError(
                    f"'{name}' is given as {_about(value)}; expected a torch.Tensor, or a tuple of one and the row that "
                    "each vertex pulls"
                )
            tensors.append(tensor)
            rows.append(row_of)
        for shared in self._shared:
            if self._parameters.get(shared.name) is not shared.torch or shared.torch.data_ptr() != shared.address:
                raise MisuseError(
                    f"parameter '{shared.name}' of a windrow.torch.Module was replaced; expected the one that was made "
                    "with the module: copy_() values into it"
                )
            tensors.append(shared.torch)
        call = _Call(self, graphs, list(given), rows)
        call.differentiated = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        results = _Function.apply(call, *tensors)
        return results[0] if self._single else dict(zip(self.outputs, results))

    def _apply(self, function: Any, recurse: bool = True) -> Module:
        for shared in self._shared:
            made = function(shared.torch.data)
            if made.data_ptr() == shared.address and made.dtype == torch.float32:
                continue
            shared.torch.data = torch.from_dlpack(shared.windrow.value)  # share_memory() has moved it
            raise MisuseError(
                f"a windrow.torch.Module moved to {made.device} as {made.dtype}; expected it to stay where it is, on "
                "cpu as torch.float32. Modules before it in the same model were converted"
            )
        every = dict(self._parameters)
        for shared in self._shared:
            self._parameters.pop(shared.name, None)
        try:
            super()._apply(function, recurse)  # converts what a subclass has added
        finally:
            every.update(self._parameters)
            self._parameters.clear()
            self._parameters.update(every)
        return self

    def extra_repr(self) -> str:
        """What torch shows in brackets: the function and the outputs."""
        return f"{self.function.name}, outputs={', '.join(self.outputs)}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Module:
        parameters = memo.get(id(self._set))
        if parameters is None:  # the first module of the set
            parameters = memo[id(self._set)] = self._set.replica(self._set.device)
        made: list[_Shared] = []
        for shared in self._shared:
            parameter = parameters[shared.windrow.name]
            copied = memo.get(id(shared.torch))  # which another module has, too, that was copied before
            made.append(_shared(shared.name, parameters, parameter, shared.torch.requires_grad, copied))
            memo[id(shared.torch)] = made[-1].torch
        memo[id(self._shared)] = made
        memo[id(self._runner)] = Runner(self.function, parameters, **self._options)
        result: Module = self.__class__.__new__(self.__class__)
        memo[id(self)] = result
        result.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise MisuseError(
            "a windrow.torch.Module cannot be pickled, since its graphs belong to its vertex function; expected "
            "copy.deepcopy(), or state_dict() and load_state_dict() of another module"
        )


class _Shared(NamedTuple):
    """A parameter of a module, in windrow and in torch."""

    name: str
    windrow: _windrow.Parameter
    torch: torch.nn.Parameter
    address: int


def _shared(
    name: str,
    parameters: Parameters,
    parameter: _windrow.Parameter,
    requires_grad: bool,
    copied: torch.nn.Parameter | None = None,
) -> _Shared:
    """The torch parameter is the set's, or else `copied`, or else a new one."""
    made = _made.setdefault(parameters, {})
    if parameter.name not in made:
        value = torch.from_dlpack(parameter.value)
        if copied is None:
            copied = torch.nn.Parameter(value, requires_grad=requires_grad)
        copied.data = value
        made[parameter.name] = copied
    shared = made[parameter.name]
    return _Shared(name, parameter, shared, shared.data_ptr())


class _Call:
    """A call of a module, from forward() to the last backward()."""

    def __init__(
        self,
        module: Module,
        graphs: Graphs | _windrow.InputGraph | Iterable[_windrow.InputGraph],
        names: list[str],
        rows: list[Any],
    ) -> None:
        self.module, self.names, self.rows = module, names, rows
        # A copy of other iterables: a list may change before backward(), and an iterator can be read only once.
        self.graphs = graphs if isinstance(graphs, (_windrow.Graphs, _windrow.InputGraph)) else Graphs(graphs)
        self.minibatch: _windrow.Minibatch | None = None
        self.differentiated = False  # whether backward() may follow
        self.versions: list[int] = []  # of the parameters; a change by windrow increases them
        self.recorded = False
        self.number = 0  # of the minibatch; dropout depends on it

    def given(self, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, row_of, tensor in zip(self.names, self.rows, tensors):
            made = _windrow_tensor(name, tensor)
            result[name] = made if row_of is None else (made, row_of)
        return result

    def keep_rows(self) -> None:
        """Copies the rows, since the caller may change them. record() has already checked that they are integers."""
        device = self.module._set.device
        for i, row_of in enumerate(self.rows):
            if row_of is not None:
                copy = _windrow.tensor(row_of, device=device, dtype="int32")
                self.rows[i] = torch.from_dlpack(copy).reshape(-1)

    def record(self, tensors: Sequence[torch.Tensor]) -> _windrow.Minibatch:
        for shared in self.module._shared:
            if shared.torch.requires_grad and shared.windrow.frozen:
                raise MisuseError(
                    f"parameter '{shared.windrow.name}' is frozen in windrow but requires gradients in torch; expected "
                    "requires_grad_(False), or frozen = False"
                )
        return self.module._runner.record(self.graphs, self.module.outputs, self.given(tensors))

    def record_again(self, tensors: Sequence[torch.Tensor]) -> _windrow.Minibatch:
        parameters = self.module._set
        now, parameters.minibatches = parameters.minibatches, self.number
        try:
            return self.record(tensors)
        finally:
            parameters.minibatches = now


class _Function(torch.autograd.Function):
    """The call of a module, as an operation of autograd. Tensors: those given, then the parameters."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: torch.Tensor) -> Any:
        module = call.module
        ctx.call = call
        if call.differentiated and (module.training or not module.function.has_dropout):
            call.number = module._set.minibatches
            minibatch = call.minibatch = call.record(tensors)
            call.keep_rows()
            call.recorded = True
            ctx.save_for_backward(*tensors)
        else:
            minibatch = module._runner.run(call.graphs, call.given(tensors))
        # All ops are pushed before the first wait.
        results = [minibatch.output(name) for name in module.outputs]
        exchanged = tuple(map(torch.from_dlpack, results))
        module._set._wait()  # so that torch may write them
        call.versions = module._set._versions()
        return exchanged

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        call: _Call = ctx.call
        module = call.module
        if torch.is_grad_enabled():
            raise MisuseError(
                f"create_graph=True through {module.function.name}; expected False, since a windrow.torch.Module has "
                "first derivatives only"
            )
        if not call.recorded:
            raise MisuseError(
                f"gradients of {module.function.name} after eval(), since it has dropout; expected train()"
            )
        tensors = ctx.saved_tensors  # raises an error if torch changed one since forward()
        minibatch, call.minibatch = call.minibatch, None
        if minibatch is None:  # a second backward() through this call, with retain_graph
            minibatch = call.record_again(tensors)
        module._runner.backward(
            minibatch,
            {name: _windrow_tensor(name, gradient) for name, gradient in zip(module.outputs, gradients)},
        )
        needed = ctx.needs_input_grad[1:]
        given = len(call.names)
        # All ops are pushed before the first wait.
        made = [minibatch.gradient(name) if needs else None for name, needs in zip(call.names, needed)]
        made += [shared.windrow.gradient if needs else None for shared, needs in zip(module._shared, needed[given:])]
        result = [None if gradient is None else torch.from_dlpack(gradient) for gradient in made]
        module._set._wait()  # so that torch may write them
        for shared, before, now in zip(module._shared, call.versions, module._set._versions()):
            if before != now:
                raise MisuseError(
                    f"parameter '{shared.windrow.name}' was changed by windrow between forward() and backward(); "
                    "expected changes after backward()"
                )
        return None, *(
            x if x is None or tensor.dtype == torch.float32 else x.to(tensor.dtype)
            for x, tensor in zip(result, tensors)
        )
