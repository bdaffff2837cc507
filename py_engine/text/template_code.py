"""Translate a template's syntax tree to Python code that accounts for what it does, and check the depth of both.

Python's compiler recurses in C, and a browser's worker has a stack of 500 KB.
"""

from __future__ import annotations

import gc
import re
from array import array
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any

from jinja2 import Environment, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.visitor import NodeVisitor

from py_engine.text.template_limits import LimitExceeded

MAX_SOURCE = 100_000  # characters of a template
MAX_NODES = 20_000  # of its syntax tree
MAX_DEPTH = 40  # of that tree
MAX_BRANCHES = 100  # {% elif %} of one {% if %}
MAX_CODE_DEPTH = 30  # brackets and indents within each other in the Python code
MAX_MACROS = 200  # and {% call %} blocks: each may hold the one before

_STRING = re.compile(r"'(?:[^'\\]++|\\.)*+'|\"(?:[^\"\\]++|\\.)*+\"")
_OPENING, _CLOSING = b"([{", b")]}"
_STEPS = bytes(1 if c in _OPENING else 255 if c in _CLOSING else 0 for c in range(256))  # 255: -1 as a signed byte
_OTHERS = bytes(c for c in range(256) if c not in _OPENING + _CLOSING)
_INDENT = re.compile(r"^ +", re.MULTILINE)


def _visit(visitor: Any, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
    kind = type(visitor)
    return getattr(kind, f"visit_{type(node).__name__}", kind.generic_visit)(visitor, node, *args, **kwargs)


def _visit_children(visitor: Any, node: nodes.Node, *args: Any, **kwargs: Any) -> None:
    visit = type(visitor).visit
    for child in node.iter_child_nodes():
        visit(visitor, child, *args, **kwargs)


# Jinja's own call bound methods with *args, which recurses in C; calls of functions do not.
_visitors: Any = NodeVisitor
_visitors.visit, _visitors.generic_visit = _visit, _visit_children


class Code(CodeGenerator):
    """Jinja's compiler, with an account of blocks, loops, literals and concatenations in the code it writes."""

    def blockvisit(self, body: Iterable[nodes.Node], frame: Frame) -> None:
        self.writeline("environment.limits.spend()")
        super().blockvisit(body, frame)

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        node.iter = self._accounted("limits.counted", node.iter)
        super().visit_For(node, frame)

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:
        if isinstance(node.node, nodes.EnvironmentAttribute):  # made by _accounted
            self._wrapped(node.node.name, self.visit, node.args[0], frame)
        else:
            super().visit_Call(node, frame, forward_caller=forward_caller)

    def signature(self, node: Any, frame: Frame, extra_kwargs: Any = None) -> None:
        if node.dyn_args is not None and not (
            isinstance(node.dyn_args, nodes.Call) and isinstance(node.dyn_args.node, nodes.EnvironmentAttribute)
        ):
            node.dyn_args = self._accounted("limits.spread", node.dyn_args)
        super().signature(node, frame, extra_kwargs)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if isinstance(node.arg, nodes.Slice):
            self._wrapped("limits.made", super().visit_Getitem, node, frame)
        else:
            super().visit_Getitem(node, frame)

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        node.expr = self._compared(node.expr)
        for operand in node.ops:
            operand.expr = self._compared(operand.expr)
        super().visit_Compare(node, frame)

    def _compared(self, node: nodes.Expr) -> nodes.Expr:
        return node if isinstance(node, nodes.Const) else self._accounted("limits.compared", node)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self._wrapped("concatenated", super().visit_Tuple, nodes.Tuple(node.nodes, "load"), frame)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self._wrapped("limits.made", super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self._wrapped("limits.made", super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        if node.ctx == "load":
            self._wrapped("limits.made", super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:
        terms = _terms(node)
        if len(terms) == 2:
            super().visit_Add(node, frame)
        else:
            self.write("environment.added(context, ")
            super().visit_Tuple(nodes.Tuple(terms, "load"), frame)
            self.write(")")

    def visit_And(self, node: nodes.BinExpr, frame: Frame) -> None:
        self._joined(" and ", node, frame)

    def visit_Or(self, node: nodes.BinExpr, frame: Frame) -> None:
        self._joined(" or ", node, frame)

    def _joined(self, operator: str, node: nodes.BinExpr, frame: Frame) -> None:
        for i, term in enumerate(_terms(node)):
            self.write(operator if i else "(")
            self.visit(term, frame)
        self.write(")")

    def _accounted(self, name: str, node: Any) -> nodes.Call:
        """An expression whose value is accounted for by a method of the environment."""
        return nodes.Call(nodes.EnvironmentAttribute(name), [node], [], None, None, lineno=node.lineno)

    def _wrapped(self, name: str, visit: Callable[[Any, Frame], None], node: nodes.Expr, frame: Frame) -> None:
        self.write(f"environment.{name}(")
        visit(node, frame)
        self.write(")")


def check_tree(tree: nodes.Node) -> None:
    """Refuse a syntax tree that is too deep or too large to compile."""
    level: list[nodes.Node] = [tree]
    depth = count = macros = 0
    while level:
        depth, count = depth + 1, count + len(level)
        if depth > MAX_DEPTH:
            raise LimitExceeded(f"it is nested more than {MAX_DEPTH} levels deep")
        if count > MAX_NODES:
            raise LimitExceeded(f"it has more than {MAX_NODES} expressions and blocks")
        if any(isinstance(node, nodes.If) and len(node.elif_) > MAX_BRANCHES for node in level):
            raise LimitExceeded(f"an if has more than {MAX_BRANCHES} branches")
        macros += sum(isinstance(node, nodes.Macro | nodes.CallBlock) for node in level)
        if macros > MAX_MACROS:
            raise LimitExceeded(f"it has more than {MAX_MACROS} macros")
        level = [child for node in level for child in node.iter_child_nodes()]


def take_trees_apart(environment: Environment) -> None:
    """Clear all syntax trees of an environment, and those under construction, node by node.

    Python frees a tree by recursion, however deep it is.
    """
    for found in gc.get_objects():
        if issubclass(type(found), nodes.Node) and vars(found).get("environment") in (None, environment):
            vars(found).clear()


def check_code(code: str) -> None:
    """Refuse Python code that is nested too deep to compile: by brackets and by indents, of 4 blanks each."""
    brackets = _STRING.sub("", code).encode("utf-8", "replace").translate(_STEPS, _OTHERS)
    indents = max(map(len, _INDENT.findall(code)), default=0) // 4
    if max(accumulate(array("b", brackets)), default=0) + indents > MAX_CODE_DEPTH:
        raise LimitExceeded("its expressions and blocks are nested too deep")


def _terms(node: nodes.BinExpr) -> list[nodes.Expr]:
    """The operands of a + b + c ..., written without brackets."""
    terms, left = [node.right], node.left
    while type(left) is type(node):
        terms.append(left.right)
        left = left.left
    return [left, *reversed(terms)]
