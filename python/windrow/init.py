"""Initial values of parameters, for Parameters.add(name, rows, width, initial).

A name stands for an initialiser with default arguments ("glorot", "he_normal", "he_uniform", "orthogonal", "identity",
"zeros"), and a number for constant(number).
"""

from __future__ import annotations

from . import _windrow
from ._windrow import Initialiser

__all__ = [
    "Initialiser",
    "constant",
    "glorot",
    "he_normal",
    "he_uniform",
    "identity",
    "normal",
    "orthogonal",
    "uniform",
    "zeros",
]


def zeros() -> Initialiser:
    """Zeros."""
    return _windrow._zeros()


def constant(value: float) -> Initialiser:
    """The same number everywhere."""
    return _windrow._constant(value)


def uniform(low: float, high: float) -> Initialiser:
    """Uniform between low and high."""
    return _windrow._uniform(low, high)


def normal(mean: float = 0.0, deviation: float = 1.0) -> Initialiser:
    """Normal with this mean and standard deviation."""
    return _windrow._normal(mean, deviation)


def glorot() -> Initialiser:
    """Uniform within +-sqrt(6 / (rows + width)) (Glorot and Bengio 2010). The default."""
    return _windrow._glorot()


def he_normal() -> Initialiser:
    """Normal with standard deviation sqrt(2 / rows), for weights before relu (He et al. 2015)."""
    return _windrow._he_normal()


def he_uniform() -> Initialiser:
    """Uniform within +-sqrt(6 / rows), for weights before relu (He et al. 2015)."""
    return _windrow._he_uniform()


def orthogonal(gain: float = 1.0) -> Initialiser:
    """A random matrix with orthonormal columns, or rows if it is wider than high, times gain (Saxe et al. 2014)."""
    return _windrow._orthogonal(gain)


def identity(factor: float = 1.0) -> Initialiser:
    """`factor` on the diagonal, zeros elsewhere."""
    return _windrow._identity(factor)
