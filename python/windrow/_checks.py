"""Checks of argument types, whose errors use Python's terms."""

from __future__ import annotations


def type_name(value: object) -> str:
    """The type of a value in words, for errors: 'a list', 'an int', 'None'."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def require(value: object, kind: type | tuple[type, ...], what: str, expected: str) -> None:
    """Raises TypeError unless the value is of this kind. `what` is the call and the argument: 'Runner: function'."""
    if not isinstance(value, kind):
        raise TypeError(f"{what} is {type_name(value)}; expected {expected}")


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """'1 graph', '1,000 graphs'."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
