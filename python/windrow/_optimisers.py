"""Optimisers, with PyTorch's formulas and defaults."""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from . import _windrow
from ._windrow import LearningRate

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._parameters import Parameters


atexit.register(_windrow._end_rate_functions)  # runs after the engines have ended


class OptimiserOptions(TypedDict, total=False):
    """Options that all optimisers have; see Optimiser."""

    penalty: float
    clip_norm: float | None
    clip_value: float | None
    accumulate: int
    tables: Literal["lazy", "dense"]


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
        accumulate: a step is taken at every so many calls of step(); the others keep the gradients.
        tables: 'lazy': rows of a table that no lookup used do not change. 'dense': they take a step with a gradient of
            zero.

    Frozen parameters, and those that the loss does not depend on, are left alone. Raises MisuseError for options out
    of range.
    """

    __slots__ = ()

    def __init__(
        self,
        parameters: Parameters,
        rate: float | LearningRate | None,
        method: tuple[str, float, float, float],
        options: OptimiserOptions,
        *,
        nesterov: bool = False,
        decay: float = 0.0,
    ) -> None:
        all_options: dict[str, Any] = {
            "penalty": 0.0,
            "clip_norm": None,
            "clip_value": None,
            "accumulate": 1,
            "tables": "lazy",
        }
        for name, value in options.items():
            if name not in all_options:
                expected = ", ".join(all_options)
                raise TypeError(f"{type(self).__name__}() got an option '{name}'; expected one of: {expected}")
            all_options[name] = value
        super().__init__(parameters, *method, nesterov=nesterov, rate=rate, decay=decay, **all_options)


class Sgd(Optimiser):
    """Gradient descent; see Optimiser for `options`."""

    __slots__ = ()

    def __init__(
        self, parameters: Parameters, rate: float | LearningRate = 1e-3, **options: Unpack[OptimiserOptions]
    ) -> None:
        super().__init__(parameters, rate, ("sgd", 0, 0, 0), options)


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
        super().__init__(parameters, rate, ("momentum", momentum, 0, 0), options, nesterov=nesterov)


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
        **options: Unpack[OptimiserOptions],
    ) -> None:
        super().__init__(parameters, rate, ("adagrad", initial, 0, epsilon), options)


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
        **options: Unpack[OptimiserOptions],
    ) -> None:
        super().__init__(parameters, rate, ("rmsprop", smoothing, 0, epsilon), options)


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
        **options: Unpack[OptimiserOptions],
    ) -> None:
        super().__init__(parameters, rate, ("adam", first, second, epsilon), options)


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
        **options: Unpack[OptimiserOptions],
    ) -> None:
        super().__init__(parameters, rate, ("adam", first, second, epsilon), options, decay=decay)
