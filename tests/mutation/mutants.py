"""The mutants of a module: its source with one small change each, as a slip of the pen makes it.

Texts are not changed (what a message says is no logic), nor annotations, decorators and docstrings.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_LEFT_ALONE = {"annotation", "returns", "decorator_list", "type_comment", "type_params"}
_PLAIN = (ast.Name, ast.Attribute, ast.Call, ast.NamedExpr, ast.Subscript)
"""Conditions that only a negation changes; of others a part is changed."""


@dataclass(frozen=True)
class Mutant:
    """A module with one change, in a function ("" outside of all); `source` is all of it."""

    file: str
    function: str
    line: int
    before: str
    after: str
    source: str

    @property
    def name(self) -> str:
        """What tells it from others, also when lines have moved."""
        return f"{self.file} {self.function or 'module'}: {self.before} -> {self.after}"


def mutants(file: str, text: str) -> list[Mutant]:
    """Return every mutant of a module's source."""
    tree = ast.parse(text)
    return list(_below(tree, tree, "", file))


def _below(tree: ast.Module, node: ast.AST, function: str, file: str) -> Iterator[Mutant]:
    for name, value in ast.iter_fields(node):
        if name in _LEFT_ALONE:
            continue
        children = value if isinstance(value, list) else [value]
        for place, child in enumerate(children):
            if not isinstance(child, ast.AST) or _is_docstring(child) or _is_for_types(child):
                continue
            for changed in _changes(child, node):
                _put(node, name, value, place, changed)
                source = ast.unparse(ast.fix_missing_locations(tree))
                yield Mutant(file, function, getattr(child, "lineno", 0), _short(child), _short(changed), source)
                _put(node, name, value, place, child)
            yield from _below(tree, child, _function(child, function), file)


def _put(node: ast.AST, name: str, value: object, place: int, child: ast.AST) -> None:
    if isinstance(value, list):
        value[place] = child
    else:
        setattr(node, name, child)


def _function(node: ast.AST, above: str) -> str:
    named = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    return f"{above}.{node.name}".lstrip(".") if named else above  # type: ignore[attr-defined]


def _changes(node: ast.AST, parent: ast.AST) -> Iterator[ast.AST]:
    """Yield what may stand in place of a node."""
    if isinstance(node, ast.expr):
        yield from _of_expression(node)
        if isinstance(parent, (ast.If, ast.While, ast.IfExp)) and parent.test is node and isinstance(node, _PLAIN):
            yield ast.UnaryOp(ast.Not(), node)
    elif isinstance(node, ast.stmt):
        yield from _of_statement(node)


def _of_expression(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        for place, each in enumerate(node.ops):
            changed = [*node.ops[:place], _COMPARISONS[type(each)](), *node.ops[place + 1 :]]
            yield ast.Compare(node.left, changed, node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        yield ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub, ast.Invert)):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield ast.Constant(node.value + 1)


def _of_statement(node: ast.stmt) -> Iterator[ast.stmt]:
    if isinstance(node, ast.Expr) and not isinstance(node.value, (ast.Yield, ast.YieldFrom, ast.Constant)):
        yield ast.Pass()
    elif isinstance(node, ast.AugAssign):
        yield ast.Pass()
        if type(node.op) in _OPERATORS:
            yield ast.AugAssign(node.target, _OPERATORS[type(node.op)](), node.value)
    elif isinstance(node, (ast.Raise, ast.Delete)):
        yield ast.Pass()
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Break):
        yield ast.Continue()
    elif isinstance(node, ast.Continue):
        yield ast.Break()


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _short(node: ast.AST, longest: int = 100) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= longest else text[: longest - 1] + "…"
