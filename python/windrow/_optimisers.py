"""Optimisers, with PyTorch's formulas and defaults."""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING, Any, Literal, Mapping, SupportsFloat, SupportsIndex, TypedDict

from . import _windrow
from ._checks import counted, require
from ._errors import MisuseError
from ._windrow import LearningRate

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._parameters import Parameters


atexit.register(_windrow._end_rate_functions)  # runs after the engines have ended


class OptimiserOptions(TypedDict, total=False):
    """Options that all optimisers have; see Optimiser. `lr` and `weight_decay` are PyTorch's names."""

    penalty: float
    clip_norm: float | None
    clip_value: float | None
    accumulate: int
    tables: Literal["lazy", "dense"]
    lr: float | LearningRate
    weight_decay: float


class AdagradOptions(OptimiserOptions, total=False):
    """OptimiserOptions, and PyTorch's names of epsilon and initial."""

    eps: float
    initial_accumulator_value: float


class RmsPropOptions(OptimiserOptions, total=False):
    """OptimiserOptions, and PyTorch's names of epsilon and smoothing."""

    eps: float
    alpha: float


class AdamOptions(OptimiserOptions, total=False):
    """OptimiserOptions, and PyTorch's names of epsilon and of (first, second)."""

    eps: float
    betas: tuple[float, float]


_ALIASES: dict[str, tuple[str, ...]] = {
    "lr": ("rate",),
    "weight_decay": ("penalty",),
    "eps": ("epsilon",),
    "betas": ("first", "second"),
    "alpha": ("smoothing",),
    "initial_accumulator_value": ("initial",),
}
"""PyTorch's names of options, and the names here. For AdamW, weight_decay means decay: see Optimiser.__init__()."""

_ELSEWHERE = {
    "momentum": "windrow.Momentum has it",
    "nesterov": "windrow.Momentum has it",
    "max_norm": "it is `clip_norm`",
    "lr_decay": "the rate can be a windrow.LearningRate",
    "decay": "windrow.AdamW has it",
}
"""Hints for errors: where to find options that an optimiser lacks."""


class Optimiser(_windrow.Optimiser):
    """Changes parameters along their gradients: the base of Sgd, Momentum, Adagrad, RmsProp, Adam and AdamW.

    >>> rate = windrow.LearningRate.warm_up(100, windrow.LearningRate.cosine(1e-3, 20_000))
    >>> optimiser = windrow.Adam(parameters, rate, clip_norm=5)
    >>> for graphs in all_graphs.minibatches(64, shuffle=epoch):
    ...     runner.differentiate(graphs)
    ...     optimiser.step(len(graphs))

    Options of all:
        rate: the learning rate: a number, or a LearningRate.
        penalty: adds penalty * value to the gradient (PyTorch's weight_decay, except that of AdamW).
        clip_norm: the largest norm of all gradients together; larger ones are scaled down.
        clip_value: the largest magnitude of an element of a gradient.
        accumulate: the number of calls of step() for each step that is taken; other calls only keep the gradients.
        tables: 'lazy': rows of a table that no lookup used do not change. 'dense': such rows take a step with a
            gradient of zero.

    Frozen parameters, and those that the loss does not depend on, are left alone. Raises MisuseError for options out
    of range.

    PyTorch's names work, too, where they mean the same: lr (rate), weight_decay (penalty; of AdamW, decay), eps
    (epsilon), betas (first and second), alpha (smoothing) and initial_accumulator_value (initial).
    """

    __slots__ = ("_about",)

    def __init__(
        self,
        parameters: Parameters,
        method: str,
        own: dict[str, Any],
        options: Mapping[str, Any],
        *,
        numbers: tuple[str, ...] = (),
    ) -> None:
        # `own` has the arguments of a subclass that are not common options; `numbers` names those of the method.
        title = type(self).__name__
        require(parameters, _windrow.Parameters, f"{title}: parameters", "windrow.Parameters, all of them")
        known: dict[str, Any] = {
            **own,
            "penalty": 0.0,
            "clip_norm": None,
            "clip_value": None,
            "accumulate": 1,
            "tables": "lazy",
        }
        given = dict(options)
        for name, names in _ALIASES.items():
            names = ("decay",) if name == "weight_decay" and "decay" in own else names
            if name not in options or names[0] not in known:
                continue
            value = given.pop(name)
            values = tuple(value) if len(names) > 1 else (value,)
            if len(values) != len(names):
                raise TypeError(f"{title}: {name} = {value!r}; expected {len(names)} numbers")
            for one, number in zip(names, values):
                if one in options or (one in own and own[one] != self._default(one)):
                    raise TypeError(f"{title}() got '{name}' and '{one}', which mean the same; expected one of them")
                given[one] = number
        for name, value in given.items():
            if name not in known:
                hint = f" ({_ELSEWHERE[name]})" if name in _ELSEWHERE else ""
                raise TypeError(f"{title}() got an option '{name}'{hint}; expected one of: {', '.join(known)}")
            known[name] = value
        for name, value in known.items():
            if name == "rate":
                require(value, (SupportsFloat, LearningRate), f"{title}: rate", "a number or a windrow.LearningRate")
            elif name in ("clip_norm", "clip_value"):
                require(value, (SupportsFloat, type(None)), f"{title}: {name}", "a number or None")
            elif name == "tables":
                require(value, str, f"{title}: tables", "'lazy' or 'dense'")
            elif name == "accumulate":
                require(value, SupportsIndex, f"{title}: accumulate", "a number of calls of step()")
            else:
                require(value, SupportsFloat, f"{title}: {name}", "a number")
        rate = known["rate"]
        first, second = (*(float(known[name]) for name in numbers), 0.0, 0.0)[:2]
        super().__init__(
            parameters,
            method,
            first,
            second,
            float(known.get("epsilon", 0.0)),
            nesterov=bool(known.get("nesterov", False)),
            rate=rate if isinstance(rate, LearningRate) else LearningRate(float(rate)),
            penalty=float(known["penalty"]),
            decay=float(known.get("decay", 0.0)),
            clip_norm=None if known["clip_norm"] is None else float(known["clip_norm"]),
            clip_value=None if known["clip_value"] is None else float(known["clip_value"]),
            accumulate=known["accumulate"],
            tables=known["tables"],
        )
        told = "a LearningRate" if isinstance(rate, LearningRate) else f"{float(rate):g}"
        self._about = f"<windrow.{title} of {counted(len(parameters), 'parameter')}, rate {told}>"

    @classmethod
    def _default(cls, argument: str) -> Any:
        """The default of an argument of this class's constructor."""
        if argument == "rate":
            return (cls.__init__.__defaults__ or (None,))[0]
        return (cls.__init__.__kwdefaults__ or {}).get(argument)

    def step(self, samples: int) -> None:
        """Pushes a step along the gradients of the last minibatch, whose loss is a sum over `samples` samples.

        Divides the gradients by `samples`, such as ``len(graphs)``. Does not wait. Raises MisuseError if no gradients
        were ever computed.
        """
        require(samples, SupportsIndex, "step: samples", "the number of samples of the minibatch, such as len(graphs)")
        if samples < 0:
            raise MisuseError(f"step: samples = {samples}; expected at least 1")
        super().step(samples)

    def __repr__(self) -> str:
        return self._about


class Sgd(Optimiser):
    """Gradient descent; see Optimiser for `options`."""

    __slots__ = ()

    def __init__(
        self,
        parameters: Parameters,
        rate: float | LearningRate = 1e-3,
        **options: Unpack[OptimiserOptions],
    ) -> None:
        own = {"rate": rate}
        super().__init__(parameters, "sgd", own, options)


class Momentum(Optimiser):
    """Gradient descent with momentum, in PyTorch's form (Sutskever et al. 2013); see Optimiser for `options`."""

    __slots__ = ()

    def __init__(
        self,
        parameters: Parameters,
        rate: float | LearningRate = 1e-3,
        *,
        momentum: float = 0.9,
        nesterov: bool = False,
        **options: Unpack[OptimiserOptions],
    ) -> None:
        own = {"rate": rate, "momentum": momentum, "nesterov": nesterov}
        super().__init__(parameters, "momentum", own, options, numbers=("momentum",))


class Adagrad(Optimiser):
    """Duchi et al. 2011; see Optimiser for `options`."""

    __slots__ = ()

    def __init__(
        self,
        parameters: Parameters,
        rate: float | LearningRate = 1e-2,
        *,
        initial: float = 0.0,
        epsilon: float = 1e-10,
        **options: Unpack[AdagradOptions],
    ) -> None:
        own = {"rate": rate, "initial": initial, "epsilon": epsilon}
        super().__init__(parameters, "adagrad", own, options, numbers=("initial",))


class RmsProp(Optimiser):
    """Tieleman and Hinton 2012, without momentum; see Optimiser for `options`."""

    __slots__ = ()

    def __init__(
        self,
        parameters: Parameters,
        rate: float | LearningRate = 1e-2,
        *,
        smoothing: float = 0.99,
        epsilon: float = 1e-8,
        **options: Unpack[RmsPropOptions],
    ) -> None:
        own = {"rate": rate, "smoothing": smoothing, "epsilon": epsilon}
        super().__init__(parameters, "rmsprop", own, options, numbers=("smoothing",))


class Adam(Optimiser):
    """Kingma and Ba 2015; see Optimiser for `options`."""

    __slots__ = ()

    def __init__(
        self,
        parameters: Parameters,
        rate: float | LearningRate = 1e-3,
        *,
        first: float = 0.9,
        second: float = 0.999,
        epsilon: float = 1e-8,
        **options: Unpack[AdamOptions],
    ) -> None:
        own = {"rate": rate, "first": first, "second": second, "epsilon": epsilon}
        super().__init__(parameters, "adam", own, options, numbers=("first", "second"))


class AdamW(Optimiser):
    """Adam that multiplies values by 1 - rate * decay before each step (Loshchilov and Hutter 2019); see Optimiser for
    `options`."""

    __slots__ = ()

    def __init__(
        self,
        parameters: Parameters,
        rate: float | LearningRate = 1e-3,
        *,
        first: float = 0.9,
        second: float = 0.999,
        epsilon: float = 1e-8,
        decay: float = 0.01,
        **options: Unpack[AdamOptions],
    ) -> None:
        own = {"rate": rate, "first": first, "second": second, "epsilon": epsilon, "decay": decay}
        super().__init__(parameters, "adam", own, options, numbers=("first", "second"))
