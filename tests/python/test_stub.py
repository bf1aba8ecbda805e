"""The stub of the extension module says what its functions take and return."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import windrow

# The functions whose annotations are wider than what they take or return, and why.
VAGUE = {
    "Var.__eq__": "compares with any object",
    "Device.__eq__": "compares with any object",
    **{
        f"{name}.__eq__": "raises for any object"
        for name in ("Tensor", "IntTensor", "Expr", "IndexExpr", "LazyExpr", "LazyWeight", "Parameter")
    },
    **{
        f"{name}.__deepcopy__": "takes what copy.deepcopy() remembers"
        for name in ("Tensor", "IntTensor", "Graphs", "InputGraph", "LearningRate", "VertexFunction")
    },
    "LazyCell.__call__": "returns one expression or several, and the program knows which",
    "SavedCheckpoint.record": "has what the program put into it",
}


def _functions(body: list[ast.stmt], of: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """The public functions of a stub, by name."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _functions(node.body, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name.endswith("__")):
            yield of + node.name, node


def _is_vague(annotation: ast.AST | None) -> bool:
    """Whether an annotation is missing or contains object or Any, apart from Callable[..., object] and NDArray[Any]."""
    if annotation is None or (isinstance(annotation, ast.Name) and annotation.id in ("object", "Any")):
        return True
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name):
        if annotation.value.id == "NDArray":
            return False
        if annotation.value.id == "Callable" and isinstance(annotation.slice, ast.Tuple):
            takes, returns = annotation.slice.elts
            return _is_vague(takes) or (ast.unparse(returns) != "object" and _is_vague(returns))
    return any(_is_vague(part) for part in ast.iter_child_nodes(annotation))


def _annotations(function: ast.FunctionDef, method: bool) -> Iterator[ast.AST | None]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    static = any(ast.unparse(decorator) == "staticmethod" for decorator in function.decorator_list)
    for argument in positional[1 if method and not static else 0 :] + arguments.kwonlyargs:
        yield argument.annotation
    for more in (arguments.vararg, arguments.kwarg):
        if more is not None:
            yield more.annotation
    yield function.returns


def test_stub_is_exact() -> None:
    stub = Path(windrow.__file__).with_name("_windrow.pyi")
    if not stub.exists():
        pytest.skip("a build without the target windrow_stub")
    functions = list(_functions(ast.parse(stub.read_text()).body))
    assert len(functions) > 300
    vague = {name for name, function in functions if any(map(_is_vague, _annotations(function, "." in name)))}
    assert vague == set(VAGUE)


def test_is_vague_finds_what_says_nothing() -> None:
    def annotation(text: str) -> ast.AST:
        return ast.parse(text, mode="eval").body

    for text in (
        "object",
        "Any",
        "dict[str, Any]",
        "list[object] | None",
        "Callable[[object], int]",
        "Callable[[], Any]",
    ):
        assert _is_vague(annotation(text)), text
    for text in ("int", "Callable[[], object]", "NDArray[Any]", "tuple[int, ...]", "Literal['a']"):
        assert not _is_vague(annotation(text)), text
    assert _is_vague(None)
