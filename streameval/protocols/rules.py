"""Rules: what a protocol says of a (query, gallery) pair, as an expression over label columns.

    same(id, cam)                         both sides have the same labels in all of these columns
    query.cam in [3, 6]                   a label of the query; gallery.cam, one of the item
    pair.good, pair.overlap >= 0.3        the pair is in a list of pairs, and its value there
    same(cam) and not same(clothes)       with and, or, not and brackets

A missing label equals nothing: of a pair with one, ``same`` and comparisons are false, and what
``not``, ``!=`` and ``not in`` make of them true. So it is with values of pairs that aren't listed.

A rule is parsed as Python parses expressions, and nothing of it is run. It becomes *terms*, of
which any must hold; in a term, everything must.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import prod
from sys import float_info
from typing import Any, Literal, NoReturn

from streameval.errors import OptionError

Side = Literal["query", "gallery"]
SIDES: tuple[Side, Side] = ("query", "gallery")
LISTED = "listed"  # the operator of ``pair.NAME`` alone
MOST_TERMS = 64  # of a rule, once it is multiplied out

_OPERATORS: dict[type[ast.cmpop], tuple[str, bool]] = {
    ast.Eq: ("==", False),
    ast.NotEq: ("==", True),
    ast.Lt: ("<", False),
    ast.LtE: ("<=", False),
    ast.Gt: (">", False),
    ast.GtE: (">=", False),
    ast.In: ("in", False),
    ast.NotIn: ("in", True),
}
"""What a comparison compares by, and whether it is the opposite that must hold."""


@dataclass(frozen=True)
class Test:
    """A comparison of one side's labels, or of the values of a list of pairs, with literals.

    Attributes
    ----------
    side : {"query", "gallery", "pair"}
    column : str
        Or the name of the list.
    operator : {"==", "<", "<=", ">", ">=", "in", "listed"}
    value : number, str, or tuple of numbers or of str
        A tuple of ``in``; None of ``listed``.
    negated : bool
        Whether it holds where the comparison does not: of a missing label, too.
    """

    side: Side | Literal["pair"]
    column: str
    operator: str
    value: Any
    negated: bool = False

    def opposite(self) -> Test:
        """Return the test that holds where this one does not."""
        return replace(self, negated=not self.negated)


@dataclass(frozen=True)
class Term:
    """What must hold at once.

    Attributes
    ----------
    same : frozenset of str
        Columns in which both sides have the same labels.
    different : frozenset of frozenset of str
        Of each set, both sides have different labels in at least one column.
    tests : frozenset of Test
    """

    same: frozenset[str] = frozenset()
    different: frozenset[frozenset[str]] = frozenset()
    tests: frozenset[Test] = frozenset()

    @property
    def columns(self) -> frozenset[str]:
        """Columns in which it compares both sides."""
        return self.same.union(*self.different)

    @property
    def lists(self) -> frozenset[str]:
        """Lists of pairs, all of which its pairs are in."""
        tests = (test for test in self.tests if test.side == "pair" and not test.negated)
        return frozenset(test.column for test in tests)

    def is_listed(self, anchors: Collection[frozenset[str]]) -> bool:
        """Return whether its pairs are looked at one by one: they are in lists, or agree in some.

        All others are rules over many items.
        """
        return bool(self.lists) or any(columns <= self.same for columns in anchors)

    @property
    def of_items(self) -> bool:
        """Whether it is of the gallery's labels alone."""
        tests = {test.side for test in self.tests}
        return not self.same and not self.different and tests == {"gallery"}

    def joined(self, other: Term) -> Term:
        """Return the term that holds where both do."""
        return Term(
            self.same | other.same, self.different | other.different, self.tests | other.tests
        )

    @property
    def impossible(self) -> bool:
        """Whether it asks for columns that agree and don't."""
        return any(columns <= self.same for columns in self.different)


@dataclass(frozen=True)
class Rule:
    """An expression over label columns.

    Attributes
    ----------
    text : str
        In one spelling.
    terms : tuple of Term
        Any of them must hold.
    """

    text: str
    terms: tuple[Term, ...]

    @classmethod
    def of(cls, text: str) -> Rule:
        """Return the rule of a text.

        Raises
        ------
        OptionError
            If it is no rule; the message shows the word that is wrong.
        """
        return _parsed(text)

    @classmethod
    def of_side(cls, text: str, side: Side) -> Rule:
        """Return the rule of a text about one side, whose columns it names without the side.

        Raises
        ------
        OptionError
            If it is no such rule; the message shows the word that is wrong.
        """
        return _parsed(text, side)

    def columns(self, side: Side) -> frozenset[str]:
        """Return the columns that one side needs."""
        both = [term.columns for term in self.terms]
        own = (test.column for term in self.terms for test in term.tests if test.side == side)
        return frozenset().union(*both, own)

    @property
    def anchors(self) -> list[frozenset[str]]:
        """Sets of columns, none in another: its pairs agree in one, or are in a list."""
        sets = dict.fromkeys(term.same for term in self.terms if not term.lists)
        return [columns for columns in sets if not any(other < columns for other in sets)]

    @property
    def lists(self) -> dict[str, bool]:
        """Lists of pairs that it names, and whether it compares their values."""
        tests = [test for term in self.terms for test in term.tests if test.side == "pair"]
        compared = {test.column for test in tests if test.operator != LISTED}
        return {name: name in compared for name in sorted(test.column for test in tests)}


def check_few(positive: Rule, ignored: Iterable[Rule]) -> None:
    """Check that the pairs are few of which positives say something, and exceptions of lists.

    Raises
    ------
    OptionError
    """
    if not positive.terms or not all(term.same or term.lists for term in positive.terms):
        raise OptionError(
            f"positive {positive.text!r} may hold of too many pairs: each of its alternatives "
            "needs same(...) of some label column, or pair.NAME"
        )
    anchors = positive.anchors
    for text, term in [(rule.text, term) for rule in ignored for term in rule.terms]:
        exempt = [test.column for test in term.tests if test.side == "pair" and test.negated]
        if exempt and not term.is_listed(anchors):
            needed = ", ".join([f"pair.{exempt[0]}", *map(same, map(sorted, anchors))])
            raise OptionError(
                f"rule {text!r} exempts listed pairs of too many: each of its alternatives needs "
                f"one of {needed}, too"
            )


def same(columns: Iterable[str]) -> str:
    """Return the text of the rule that both sides have the same labels in some columns."""
    names = (name if name.isidentifier() else repr(name) for name in columns)
    return f"same({', '.join(names)})"


@cache
def _parsed(text: str, side: Side | None = None) -> Rule:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError) as error:
        at = getattr(error, "offset", None) or 1
        raise OptionError(
            f"rule {text!r} can't be read at column {at}: an expression such as same(id, cam), "
            "query.cam in [3, 6], or several with and, or, not, is needed"
        ) from None
    terms = _Reader(text.strip(), side).terms(tree, negated=False)
    possible = tuple(dict.fromkeys(term for term in terms if not term.impossible))
    return Rule(ast.unparse(tree), possible)


class _Reader:
    """Reads the terms of a rule off its tree; of a rule about one side, if that is given."""

    def __init__(self, text: str, side: Side | None) -> None:
        self._text, self._side = text, side

    def _refuse(self, node: ast.AST, expected: str) -> NoReturn:
        word = ast.get_source_segment(self._text, node) or self._text
        raise OptionError(f"rule {self._text!r} has {word!r}; expected {expected}")

    def terms(self, node: ast.expr, *, negated: bool) -> list[Term]:
        """Return the terms of an expression, or of its opposite."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.terms(node.operand, negated=not negated)
        if isinstance(node, ast.BoolOp):
            parts = [self.terms(value, negated=negated) for value in node.values]
            if isinstance(node.op, ast.Or) != negated:
                return [term for part in parts for term in part]
            count = prod(len(part) for part in parts)
            if count > MOST_TERMS:
                self._refuse(node, f"a rule of at most {MOST_TERMS} alternatives (it has {count})")
            return [_all(chosen) for chosen in product(*parts)]
        if isinstance(node, ast.Call) and self._side is None:
            columns = frozenset(self._columns(node))
            return [Term(different=frozenset({columns})) if negated else Term(same=columns)]
        if isinstance(node, ast.Compare):
            test = self._test(node)
            return [Term(tests=frozenset({test.opposite() if negated else test}))]
        if self._side is not None:
            self._refuse(node, f"a column of the {self._side} compared, such as cam in [1, 2]")
        if isinstance(node, ast.Attribute | ast.Subscript):
            side, column = self._place(node)
            if side == "pair":
                return [Term(tests=frozenset({Test(side, column, LISTED, None, negated)}))]
            self._refuse(node, f"a comparison with a value, as {side}.{column} == 3")
        self._refuse(
            node, "same(COLUMN, ...), or query.COLUMN or gallery.COLUMN compared, or pair.NAME"
        )

    def _columns(self, node: ast.Call) -> Iterator[str]:
        if not isinstance(node.func, ast.Name) or node.func.id != "same":
            self._refuse(node.func, "same(...)")
        if not node.args or node.keywords:
            self._refuse(node, "the names of label columns between the brackets: same(id, cam)")
        for argument in node.args:
            if isinstance(argument, ast.Name):
                yield argument.id
            elif isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value
            else:
                self._refuse(argument, "the name of a label column")

    def _test(self, node: ast.Compare) -> Test:
        if len(node.ops) != 1 or type(node.ops[0]) not in _OPERATORS:
            self._refuse(node, "one comparison: ==, !=, <, <=, >, >=, in or not in")
        operator, negated = _OPERATORS[type(node.ops[0])]
        value, several = self._literal(node.comparators[0]), operator == "in"
        if several != isinstance(value, tuple):
            needed = "a list of values, such as [3, 6]," if several else "one value"
            self._refuse(node.comparators[0], f"{needed} after {operator}")
        side, column = self._place(node.left)
        texts = any(isinstance(one, str) for one in (value if several else [value]))
        if texts and (side == "pair" or operator not in ("==", "in")):
            self._refuse(node.comparators[0], f"a number after {operator}")
        return Test(side, column, operator, value, negated)

    def _place(self, node: ast.expr) -> tuple[Side | Literal["pair"], str]:
        """Return side and column of ``query.cam``, ``gallery["my column"]`` or ``pair.good``."""
        base: ast.expr | None = None
        column: Any = None
        if self._side is not None:
            column = node.id if isinstance(node, ast.Name) else getattr(node, "value", None)
            if isinstance(column, str):
                return self._side, column
            self._refuse(node, "the name of a label column")
        if isinstance(node, ast.Attribute):
            base, column = node.value, node.attr
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            base, column = node.value, node.slice.value
        side: Side | Literal["pair"]
        for side in (*SIDES, "pair"):
            if isinstance(base, ast.Name) and base.id == side and isinstance(column, str):
                return side, column
        self._refuse(node, "query.COLUMN or gallery.COLUMN, or pair.NAME")

    def _literal(self, node: ast.expr) -> Any:
        """Return a number, a text, or a tuple of either."""
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError):
            self._refuse(node, "a number, a text in quotes, or a list of these")
        values = tuple(value) if isinstance(value, list | tuple | set) else (value,)
        kinds = {type(one) for one in values}
        if not (kinds <= {int, float} or kinds <= {str}) or not all(map(_is_label, values)):
            self._refuse(node, "finite numbers, or texts in quotes, all of one kind and not empty")
        return values if isinstance(value, list | tuple | set) else value


def _is_label(value: float | str) -> bool:
    """Tell whether a label can be so: an empty text and NaN stand for missing ones."""
    return value != "" if isinstance(value, str) else abs(value) <= float_info.max


def _all(terms: tuple[Term, ...]) -> Term:
    joined = Term()
    for term in terms:
        joined = joined.joined(term)
    return joined
