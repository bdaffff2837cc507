"""The environment in which chat templates are compiled and run: Hugging Face's, with Jinja's sandbox and Limits.

Jinja's sandbox hides what is private. This one also accounts for every block, loop, call, operator and output, offers
only methods and filters whose cost can be foreseen, and checks a template's depth before it is compiled: Python's
compiler recurses in C, and WebAssembly's stack is small.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import wraps
from typing import Any

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from py_engine.text.template_costs import (
    ATTRIBUTES,
    FILTERS,
    MAX_REPEAT,
    belongs_to_a_value,
    check_attributes,
    check_fields,
    check_method,
    check_percent,
    check_power,
    check_product,
    words,
)
from py_engine.text.template_limits import LimitExceeded, Limits

MAX_SOURCE = 100_000  # characters of a template
MAX_NODES = 20_000  # of its syntax tree
MAX_DEPTH = 60  # of that tree
MAX_BRANCHES = 100  # {% elif %} of one {% if %}

_REMOVED = words("pprint striptags urlize wordwrap xmlattr")  # cost that cannot be foreseen; no model needs them
_SORTING = words("dictsort groupby sort unique")
_CHOOSING = words("attr d default first last max min random")  # return a value that was there before


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

    def _accounted(self, name: str, node: Any) -> nodes.Call:
        """An expression whose value is accounted for by a method of the environment."""
        return nodes.Call(nodes.EnvironmentAttribute(name), [node], [], None, None, lineno=node.lineno)

    def _wrapped(self, name: str, visit: Callable[[Any, Frame], None], node: nodes.Expr, frame: Frame) -> None:
        self.write(f"environment.{name}(")
        visit(node, frame)
        self.write(")")


class Generation(jinja2.ext.Extension):
    """{% generation %} marks the assistant's text for training. Here it only renders its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class Sandbox(ImmutableSandboxedEnvironment):
    """A Jinja environment that accounts for everything to `limits`."""

    code_generator_class = Code
    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.limits = limits = Limits()
        extensions = [jinja2.ext.loopcontrols, Generation]
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=extensions, cache_size=0, finalize=self._finalized
        )
        filters = {name: filter for name, filter in self.filters.items() if name not in _REMOVED}
        filters |= {"tojson": _tojson}
        self.filters = {name: self._accounted(name, filter) for name, filter in filters.items()}

        class AccountedNamespace(Namespace):
            """A namespace. It is not shown as text, where namespaces within each other would have no end."""

            changes = True

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                limits.made(dict(*args, **kwargs))

            def __setitem__(self, name: str, value: Any) -> None:
                limits.measure(value, 1)
                super().__setitem__(name, value)

            def __repr__(self) -> str:
                return "<Namespace>"

        def limited_range(*arguments: int) -> range:
            numbers = range(*arguments)
            if len(numbers) > MAX_REPEAT:
                raise LimitExceeded("its loops are too long")
            return numbers

        def raise_exception(message: str) -> None:
            raise jinja2.TemplateError(str(message)[:1000])

        def strftime_now(form: str) -> str:
            if len(form) > 200 or re.search(r"\d{2}", form):
                raise LimitExceeded("its date has too long a format")
            return now().strftime(form)

        def new_dict(*pairs: Any, **members: Any) -> dict[Any, Any]:
            return dict(*pairs, **members)  # the type itself has methods that change other dicts

        self.globals = {
            "range": limited_range,
            "dict": new_dict,
            "namespace": AccountedNamespace,
            "cycler": self.globals["cycler"],
            "joiner": self.globals["joiner"],
            "raise_exception": raise_exception,
            "strftime_now": strftime_now,
        }

    # -- compiling

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > MAX_SOURCE:
            raise LimitExceeded(f"it has more than {MAX_SOURCE} characters")
        tree = super()._parse(source, name, filename)
        _check_tree(tree)
        return tree

    # -- running: called by the code that Code writes

    def concatenated(self, parts: tuple[Any, ...]) -> str:
        """Join the operands of ~."""
        return self.concat(map(self._text, parts))

    def concat(self, parts: Iterable[str]) -> str:
        """Join texts: those of ~, of macros and of {% set %} blocks."""
        found = list(parts)
        self.limits.foresee(sum(map(len, found)))
        return self.limits.made("".join(found))

    def _text(self, value: Any) -> str:
        self.limits.foresee(self.limits.size(value))
        return str(value)

    def _finalized(self, value: Any) -> Any:
        """Account for what {{ }} prints."""
        self.limits.foresee(self.limits.size(value))
        return value

    def call(self, context: Any, called: Any, /, *args: Any, **kwargs: Any) -> Any:
        limits = self.limits
        limits.enter()
        try:
            limits.spend(len(args))
            if belongs_to_a_value(called):
                check_method(limits, called, args, kwargs)
            result = super().call(context, called, *args, **kwargs)
            return result if getattr(called, "__name__", "") == "get" else limits.made(result)
        finally:
            limits.leave()

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        limits = self.limits
        limits.spend()
        sequences = isinstance(left, list | tuple) and isinstance(right, list | tuple)
        if operator == "+" and (sequences or isinstance(left, str)):
            limits.foresee(limits.size(left) + limits.size(right))
        elif operator == "*":
            check_product(limits, left, right)
        elif operator == "**":
            check_power(left, right)
        elif operator == "%" and isinstance(left, str):
            check_percent(limits, left, right if isinstance(right, tuple) else (right,))
        result = super().call_binop(context, operator, left, right)
        return limits.joined(result, left, right) if operator == "+" and sequences else limits.made(result)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        made = super().wrap_str_format(value)
        if made is None:
            return None
        text: str = value.__self__

        def limited(*args: Any, **kwargs: Any) -> str:
            check_fields(self.limits, text, (*args, *kwargs.values()))
            return made(*args, **kwargs)

        return limited

    def _accounted(self, name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that accounts for its arguments and its result."""
        limits, check = self.limits, FILTERS.get(name)
        passed = int(hasattr(filter, "jinja_pass_arg"))
        hidden = passed - int(
            hasattr(inspect.unwrap(filter), "jinja_pass_arg")
        )  # its signature lacks what Jinja passes
        signature = inspect.signature(filter) if check else None
        weight = 8 if name in _SORTING else 1

        @wraps(filter)
        def accounted(*args: Any, **kwargs: Any) -> Any:
            limits.spend()
            value = args[passed]
            if isinstance(value, Iterator):
                value = limits.counted(value)
            elif isinstance(value, (list, tuple, dict, range)):
                limits.spend(len(value) * weight)
            else:
                limits.foresee(limits.size(value))
            args = (*args[:passed], value, *args[passed + 1 :])
            if name in ATTRIBUTES:
                check_attributes((*args[passed + 1 :], *kwargs.values()))
            if check is not None and signature is not None:
                bound = signature.bind(*args[hidden:], **kwargs)
                bound.apply_defaults()
                check(limits, bound.arguments)
                args, kwargs = (*args[:hidden], *bound.args), bound.kwargs
            result = filter(*args, **kwargs)
            return result if name in _CHOOSING else limits.made(result)

        return accounted


def _check_tree(tree: nodes.Node) -> None:
    """Refuse a syntax tree that is too deep or too large to compile."""
    level: list[nodes.Node] = [tree]
    depth = count = 0
    while level:
        depth, count = depth + 1, count + len(level)
        if depth > MAX_DEPTH:
            raise LimitExceeded(f"it is nested more than {MAX_DEPTH} levels deep")
        if count > MAX_NODES:
            raise LimitExceeded(f"it has more than {MAX_NODES} expressions and blocks")
        if any(isinstance(node, nodes.If) and len(node.elif_) > MAX_BRANCHES for node in level):
            raise LimitExceeded(f"an if has more than {MAX_BRANCHES} branches")
        level = [child for node in level for child in node.iter_child_nodes()]


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
