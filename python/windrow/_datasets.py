"""Treebanks: files of trees and of dependencies, and the graphs that they become."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterator, overload

from . import _windrow
from ._checks import counted
from ._graphs import Graphs

if TYPE_CHECKING:
    from ._windrow import VertexFunction, Vocabulary


def _path(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)


class Treebank(_windrow.Treebank):
    """Sentences as binary trees with a label from 0 to 4 at every vertex, as the Stanford Sentiment Treebank has them.

    >>> trees = windrow.Treebank("sst/train.txt")  # or text="(3 (2 It) (4 works))"
    >>> words = trees.vocabulary(at_least=2)
    >>> graphs = trees.graphs(cell, words)
    >>> trees[0]
    (3, (2, 'It'), (4, 'works'))

    Raises DataError, naming the line and column, for malformed text. For other brackets see parse_brackets().
    """

    __slots__ = ()

    def __init__(self, path: str | os.PathLike[str] | None = None, *, text: str | None = None) -> None:
        super().__init__(_path(path), text=text)

    @classmethod
    def generate(cls, trees: int, seed: int = 1) -> Treebank:
        """Generates trees that resemble those of the Stanford Sentiment Treebank, and can be learned."""
        return cls(text=_windrow._generate_treebank(trees, seed))

    def graphs(self, function: VertexFunction, words: Vocabulary) -> Graphs:
        """Makes a graph of each tree, for a function that pulls the indices "label" and "word" (-1 for inner vertices).

        Children precede their parents, so the root is the last vertex.
        """
        return Graphs(self._graphs(function, words))

    @overload
    def __getitem__(self, which: int) -> tuple[Any, ...]: ...
    @overload
    def __getitem__(self, which: slice) -> list[tuple[Any, ...]]: ...
    def __getitem__(self, which: int | slice) -> Any:
        """A tree as nested tuples, (label, left, right) or (label, word), which Graphs.from_nested() accepts with
        `labels`. For a slice, a list of trees."""
        if isinstance(which, slice):
            return [self._nested(i) for i in range(*which.indices(len(self)))]
        return self._nested(which)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return (self._nested(i) for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<windrow.Treebank, {counted(len(self), 'tree')}>"


class DependencyTreebank(_windrow.DependencyTreebank):
    """The sentences of a file or text in CoNLL-U; ``treebank[i]`` is a DependencySentence.

    >>> treebank = windrow.DependencyTreebank("en_ewt-ud-train.conllu")
    >>> graphs = treebank.graphs(cell, words=treebank.vocabulary("words", at_least=2))

    Raises DataError, naming the line, for malformed text, and for dependencies that do not form a tree.
    """

    __slots__ = ()

    def __init__(self, path: str | os.PathLike[str] | None = None, *, text: str | None = None) -> None:
        super().__init__(_path(path), text=text)

    @classmethod
    def generate(cls, sentences: int, seed: int = 1) -> DependencyTreebank:
        """Generates sentences from a small grammar, 12 words on average, which can be learned."""
        return cls(text=_windrow._generate_conllu(sentences, seed))

    def graphs(
        self,
        function: VertexFunction,
        *,
        words: Vocabulary | None = None,
        tags: Vocabulary | None = None,
        relations: Vocabulary | None = None,
        enhanced: bool = False,
    ) -> Graphs:
        """Makes a graph of each sentence: a vertex for each word, whose children are its dependents from left to right.

        For each vocabulary that is given, the graphs have an index: "word", "tag" or "relation" (of a word to its
        head). With `enhanced` dependencies, a word may have several heads, and "relation" is an index of edges.
        """
        return Graphs(self._graphs(function, words, tags, relations, enhanced))

    def __repr__(self) -> str:
        return f"<windrow.DependencyTreebank, {counted(len(self), 'sentence')}>"


def parse_brackets(text: str) -> list[Any]:
    """The trees of a text in the Penn Treebank's brackets, as nested tuples for Graphs.from_nested().

    >>> windrow.parse_brackets("(S (NP (DT the) (NN cat)) (VP sat))")
    [('S', ('NP', ('DT', 'the'), ('NN', 'cat')), ('VP', 'sat'))]

    Labels and words are text. A bracket without a label has ''. Raises DataError, naming the line, for brackets that do
    not match.
    """
    import re

    from ._errors import DataError

    trees: list[Any] = []
    open_: list[tuple[int, list[Any]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        for token in re.findall(r"[()]|[^\s()]+", line):
            if token == "(":
                open_.append((number, []))
            elif token != ")":
                if not open_:
                    raise DataError(f"line {number}: '{token}' outside of brackets; expected '('")
                open_[-1][1].append(token)
            elif not open_:
                raise DataError(f"line {number}: ')' without '('; expected brackets that match")
            else:
                parts = open_.pop()[1]
                if not parts or not isinstance(parts[0], str):
                    parts.insert(0, "")
                if len(parts) < 2:
                    raise DataError(f"line {number}: '({parts[0]})' is empty; expected a label and words or brackets")
                (open_[-1][1] if open_ else trees).append(tuple(parts))
    if open_:
        raise DataError(f"line {open_[0][0]}: '(' without ')'; expected brackets that match")
    return trees
