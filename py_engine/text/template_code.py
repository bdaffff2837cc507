"""Translate a template's syntax tree to Python code that accounts for what it does, and check the depth of both.

Python's compiler recurses in C, and a browser's worker has a stack of 500 KB.
"""

from __future__ import annotations

import gc
import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

from jinja2 import Environment, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.visitor import NodeVisitor

from py_engine.text.template_limits import LimitExceeded

MAX_SOURCE = 100_000  # characters of a template
MAX_NODES = 6_000  # of its syntax tree; those of real models have up to 5,000
MAX_DEPTH = 40  # of that tree
MAX_BRANCHES = 100  # {% elif %} of one {% if %}
MAX_CODE_DEPTH = 30  # brackets and indents within each other in the Python code
MAX_MACROS = 200  # and {% call %} blocks: each may hold the one before

_STRING = re.compile(r"'(?:[^'\\]++|\\.)*+'|\"(?:[^\"\\]++|\\.)*+\"")
_OPENING, _CLOSING = b"([{", b")]}"
_STEPS = bytes(1 if c in _OPENING else 255 if c in _CLOSING else 0 for c in range(256))  # 255: -1 as a signed byte
_OTHERS = bytes(c for c in range(256) if c not in _OPENING + _CLOSING)
_INDENT = re.compile(r"^ +", re.MULTILINE)

_OWN_VISIT, _OWN_VISIT_CHILDREN = NodeVisitor.visit, NodeVisitor.generic_visit  # Jinja's

SPREAD = "limits.spread"  # what accounts for the arguments *a of a call


@contextmanager
def shallow_visitors() -> Iterator[None]:
    """Let Jinja's visitors call functions. Its own call bound methods with *args, which recurses in C.

    Only while a template is compiled: other code of this Python may use Jinja, too.
    """
    visitors: Any = NodeVisitor
    visitors.visit, visitors.generic_visit = _visit, _visit_children
    try:
        yield
    finally:
        visitors.visit, visitors.generic_visit = _OWN_VISIT, _OWN_VISIT_CHILDREN


def _visit(visitor: Any, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
    kind = type(visitor)
    return getattr(kind, f"visit_{type(node).__name__}", kind.generic_visit)(visitor, node, *args, **kwargs)


def _visit_children(visitor: Any, node: nodes.Node, *args: Any, **kwargs: Any) -> None:
    visit = type(visitor).visit
    for child in node.iter_child_nodes():
        visit(visitor, child, *args, **kwargs)


CHAINS = {nodes.Add: "+", nodes.And: "and", nodes.Or: "or"}  # operators whose chains are one node of the tree


class Code(CodeGenerator):
    """Jinja's compiler, with an account of blocks, loops, literals and concatenations in the code it writes."""

    _paced: list[nodes.Node] | None = None  # the body of a loop that accounts for each item by itself

    def blockvisit(self, body: Iterable[nodes.Node], frame: Frame) -> None:
        if body is not self._paced:
            self.writeline(f"environment.limits.spend({_weight(body)})")
        super().blockvisit(body, frame)

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        _end_early(node)
        inside = _within(node.body)
        if node.recursive or any(isinstance(n, nodes.Block) or getattr(n, "name", "") == "loop" for n in inside):
            node.iter = self._accounted("limits.counted", node.iter)  # `loop` needs to know its length
        else:
            node.iter = self._accounted("limits.paced", node.iter, nodes.Const(1 + _weight(node.body)))
            self._paced = node.body
        super().visit_For(node, frame)

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:
        if isinstance(node.node, nodes.EnvironmentAttribute):  # made by flatten or _accounted
            if node.node.name in CHAINS.values():
                self._chain(node.node.name, node.args, frame)
            else:
                self.write(f"environment.{node.node.name}(")
                for argument in node.args:
                    self.visit(argument, frame)
                    self.write(", ")
                self.write(")")
        else:
            super().visit_Call(node, frame, forward_caller=forward_caller)

    def signature(self, node: Any, frame: Frame, extra_kwargs: Any = None) -> None:
        if node.dyn_args is not None and getattr(getattr(node.dyn_args, "node", None), "name", None) != SPREAD:
            node.dyn_args = self._accounted(SPREAD, node.dyn_args)
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

    def _chain(self, operator: str, operands: list[nodes.Expr], frame: Frame) -> None:
        """Write a + b + c ..., as deep as one of them."""
        if operator == "+":
            self.write("environment.added(context, ")
            super().visit_Tuple(nodes.Tuple(operands, "load"), frame)
        else:
            for i, operand in enumerate(operands):
                self.write(f" {operator} " if i else "(")
                self.visit(operand, frame)
        self.write(")")

    def _accounted(self, name: str, node: Any, *others: nodes.Expr) -> nodes.Call:
        """An expression whose value is accounted for by a method of the environment."""
        return nodes.Call(nodes.EnvironmentAttribute(name), [node, *others], [], None, None, lineno=node.lineno)

    def _wrapped(self, name: str, visit: Callable[[Any, Frame], None], node: nodes.Expr, frame: Frame) -> None:
        self.write(f"environment.{name}(")
        visit(node, frame)
        self.write(")")


def flatten(tree: nodes.Node) -> None:
    """Replace each chain of +, `and` or `or`, which the parser nests, by one node with all its operands."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        for name, value in list(node.iter_fields()):
            if isinstance(value, list):
                value[:] = [_flat(part) for part in value]
            else:
                setattr(node, name, _flat(value))
        waiting += node.iter_child_nodes()


def _flat(value: Any) -> Any:
    operator = CHAINS.get(type(value))
    if operator is None or type(value.left) is not type(value):
        return value
    called = nodes.EnvironmentAttribute(operator)
    return nodes.Call(called, _operands(value), [], None, None, lineno=value.lineno, environment=value.environment)


def _operands(node: nodes.BinExpr) -> list[nodes.Expr]:
    """The operands of a + b + c ..., written without brackets. Clears the inner nodes: freeing them recurses."""
    kind, operands, left = type(node), [node.right], node.left
    while type(left) is kind:
        inner = left
        operands.append(inner.right)
        left = inner.left
        vars(inner).clear()
    return [left, *reversed(operands)]


def _end_early(loop: nodes.For) -> None:
    """Break out of `for i in range(...)` where a condition says that all further iterations do nothing.

    Templates search the messages in such loops: {% if not ns.found %} ... {% endif %} is the whole body, or it begins
    with {% if ns.found %}{% elif ... %}. Nothing but the loop's body can change the condition.
    """
    is_range = isinstance(loop.iter, nodes.Call) and getattr(loop.iter.node, "name", None) == "range"
    if not is_range or loop.test or loop.else_ or loop.recursive or len(loop.body) != 1:
        return
    (choice,) = loop.body
    if not isinstance(choice, nodes.If) or not _is_the_same(choice.test, loop.target):
        return
    if not choice.body:
        choice.body = [nodes.Break(lineno=choice.lineno)]
    elif not choice.elif_ and not choice.else_:
        choice.else_ = [nodes.Break(lineno=choice.lineno)]


def _is_the_same(condition: nodes.Node, target: nodes.Node) -> bool:
    """Whether a condition computes the same in each iteration unless the loop's body changes a variable."""
    given = {node.name for node in _within([target]) if isinstance(node, nodes.Name)} | {"loop"}
    return all(
        node.name not in given if isinstance(node, nodes.Name) else isinstance(node, nodes.Not | nodes.Getattr)
        for node in _within([condition])
    )


def _within(body: Iterable[nodes.Node]) -> list[nodes.Node]:
    """All expressions and blocks of a block."""
    found = list(body)
    for node in found:
        found += node.iter_child_nodes()
    return found


def _weight(body: Iterable[nodes.Node]) -> int:
    """The steps that a block counts as: one, and one for every 32 expressions and blocks in it."""
    return 1 + len(_within(body)) // 32


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
