"""The environment in which chat templates are compiled and run: Hugging Face's, with Jinja's sandbox and Limits.

Jinja's sandbox hides what is private. This one also accounts for every block, loop, call, operator and output, offers
only methods and filters whose cost can be foreseen, and checks a template's depth before it is compiled: Python's
compiler recurses in C, and WebAssembly's stack is small.
"""

from __future__ import annotations

import inspect
import json
import re
import string
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import wraps
from types import BuiltinMethodType
from typing import Any

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from py_engine.text.template_limits import LimitExceeded, Limits

MAX_SOURCE = 100_000  # characters of a template
MAX_NODES = 20_000  # of its syntax tree
MAX_DEPTH = 60  # of that tree
MAX_BRANCHES = 100  # {% elif %} of one {% if %}
MAX_REPEAT = 1_000_000  # length of a sequence made by * in a template
MAX_BITS = 4096  # of an integer
MAX_WIDTH = 10_000  # of a padded or indented text, and of a number in a format


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_METHODS: dict[type, frozenset[str]] = {
    str: _words(
        "capitalize casefold center count endswith expandtabs find format format_map index isalnum isalpha isascii "
        "isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip "
        "partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines "
        "startswith strip swapcase title upper zfill"
    ),
    dict: _words("copy get items keys values"),
    list: _words("copy count index"),
    tuple: _words("count index"),
    range: _words("count index"),
    float: _words("is_integer"),
    int: _words("bit_count bit_length is_integer"),
}
_PADDING = _words("center expandtabs ljust rjust zfill")
_QUADRATIC = _words("lstrip rfind rindex rpartition rsplit rstrip strip")  # length times argument, at worst
_REMOVED = _words("pprint striptags urlize wordwrap xmlattr")  # cost that cannot be foreseen; no model needs them
_SORTING = _words("dictsort groupby sort unique")
_CHOOSING = _words("attr d default first last max min random")  # return a value that was there before
_FORMAT = re.compile(r"%(?:\([^)]*\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?")


class Code(CodeGenerator):
    """Jinja's compiler, with an account of blocks, loops, literals and concatenations in the code it writes."""

    def blockvisit(self, body: Iterable[nodes.Node], frame: Frame) -> None:
        self.writeline("environment.limits.spend()")
        super().blockvisit(body, frame)

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        counted = nodes.EnvironmentAttribute("limits.counted")
        node.iter = nodes.Call(counted, [node.iter], [], None, None, lineno=node.lineno)
        super().visit_For(node, frame)

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:
        if isinstance(node.node, nodes.EnvironmentAttribute):  # made by visit_For
            self._wrapped(node.node.name, self.visit, node.args[0], frame)
        else:
            super().visit_Call(node, frame, forward_caller=forward_caller)

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
            if isinstance(called, BuiltinMethodType):
                _check_method(limits, called, args, kwargs)
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
            _check_product(limits, left, right)
        elif operator == "**":
            _check_power(left, right)
        elif operator == "%" and isinstance(left, str):
            _check_percent(limits, left, right if isinstance(right, tuple) else (right,))
        result = super().call_binop(context, operator, left, right)
        return limits.joined(result, left, right) if operator == "+" and sequences else limits.made(result)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        made = super().wrap_str_format(value)
        if made is None:
            return None
        text: str = value.__self__

        def limited(*args: Any, **kwargs: Any) -> str:
            _check_fields(self.limits, text, (*args, *kwargs.values()))
            return made(*args, **kwargs)

        return limited

    def _accounted(self, name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that accounts for its arguments and its result."""
        limits, check = self.limits, _FILTERS.get(name)
        passed = int(hasattr(filter, "jinja_pass_arg"))
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
            if check is not None and signature is not None:
                bound = signature.bind(*args, **kwargs)
                bound.apply_defaults()
                check(limits, bound.arguments)
                args, kwargs = bound.args, bound.kwargs
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


# -- checks of operators and methods: refuse what would exhaust memory or time


def _check_product(limits: Limits, left: Any, right: Any) -> None:
    for what, times in ((left, right), (right, left)):
        if isinstance(what, str | bytes | list | tuple) and isinstance(times, int):
            if len(what) * times > MAX_REPEAT:
                raise LimitExceeded("it repeats a text too often")
            limits.foresee(limits.size(what) * max(times, 0))
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MAX_BITS:
        raise LimitExceeded("its numbers are too large")


def _check_power(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * max(right, 0) > MAX_BITS:
        raise LimitExceeded("its numbers are too large")


def _check_percent(limits: Limits, text: str, values: tuple[Any, ...]) -> None:
    """Check text % values."""
    for found in _FORMAT.finditer(text):
        if any(width == "*" or int(width[:6] or 0) > MAX_WIDTH for width in found.groups("")):
            raise LimitExceeded("its format string has too large a width")
    limits.foresee(len(text) + text.count("%") * (MAX_BITS + max(map(limits.size, values), default=0)))


def _check_fields(limits: Limits, text: str, values: tuple[Any, ...]) -> None:
    """Check text.format(*values)."""
    fields = 0
    for _, name, form, _ in string.Formatter().parse(text):
        fields += name is not None
        if form and ("{" in form or any(int(n[:6]) > MAX_WIDTH for n in re.findall(r"\d+", form))):
            raise LimitExceeded("its format string has too large a width")
    if any(not isinstance(v, str | int | float | list | tuple | dict | Undefined | None) for v in values):
        raise LimitExceeded("it formats a value that is no text, number or list")
    limits.foresee(len(text) + fields * (MAX_BITS + max(map(limits.size, values), default=0)))


def _check_method(limits: Limits, method: BuiltinMethodType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    owner: Any = method.__self__
    name = method.__name__
    allowed = next((names for kind, names in _METHODS.items() if isinstance(owner, kind)), frozenset())
    if name not in allowed:
        raise LimitExceeded(f"it calls {name}(), which chat templates may not")
    if not isinstance(owner, str):
        if not isinstance(owner, int | float) and name not in ("get", "items", "keys", "values"):
            limits.spend(len(owner))
        return
    limits.foresee(len(owner))
    if name in _PADDING:
        _check_width(next((a for a in (*args, *kwargs.values()) if isinstance(a, int)), 8))
        limits.foresee(len(owner) * (MAX_WIDTH if name == "expandtabs" and owner.count("\t") > 1000 else 1))
    elif name in _QUADRATIC:
        limits.foresee(len(owner) * max((len(a) for a in args if isinstance(a, str)), default=0) >> 6)
    elif name == "join" and args:
        size = limits.size(args[0]) if isinstance(args[0], str | list | tuple | dict) else 0
        limits.foresee(size + len(owner) * (len(args[0]) if size else 0))
        if not size and not isinstance(args[0], list | tuple | dict | str):
            raise LimitExceeded("it joins what is no list")
    elif name == "replace" and len(args) > 1 and isinstance(args[0], str) and isinstance(args[1], str):
        limits.foresee(len(owner) + owner.count(args[0]) * len(args[1]))


def _check_width(width: Any) -> None:
    if isinstance(width, int) and abs(width) > MAX_WIDTH:
        raise LimitExceeded("it pads a text too far")


# -- checks of filters, by their arguments

Arguments = dict[str, Any]


def _center(limits: Limits, given: Arguments) -> None:
    _check_width(given["width"])


def _indent(limits: Limits, given: Arguments) -> None:
    width = given["width"]
    _check_width(width)
    text = str(given["s"])
    limits.foresee(len(text) + (text.count("\n") + 2) * (len(width) if isinstance(width, str) else max(0, width)))


def _replace(limits: Limits, given: Arguments) -> None:
    text, old, new = (str(given[name]) for name in ("s", "old", "new"))
    limits.foresee(len(text) + text.count(old) * len(new))


def _join(limits: Limits, given: Arguments) -> None:
    given["value"] = list(given["value"])
    limits.foresee(limits.size(given["value"]) + len(given["value"]) * len(str(given["d"])))


def _format(limits: Limits, given: Arguments) -> None:
    _check_percent(limits, str(given["value"]), (*given["args"], *given["kwargs"].values()))


def _round(limits: Limits, given: Arguments) -> None:
    if not isinstance(given["precision"], int) or abs(given["precision"]) > 300:
        raise LimitExceeded("it rounds to too many digits")


def _groups(limits: Limits, given: Arguments) -> None:
    """Check batch(linecount) and slice(slices)."""
    if (given["linecount"] if "linecount" in given else given["slices"]) > MAX_WIDTH:
        raise LimitExceeded("it makes too many groups")


def _sum(limits: Limits, given: Arguments) -> None:
    if not isinstance(given["start"], int | float):
        raise LimitExceeded("it sums values that are no numbers")


def _int(limits: Limits, given: Arguments) -> None:
    if isinstance(given["value"], str) and len(given["value"]) > 1000:
        raise LimitExceeded("its numbers are too large")


def _escape(limits: Limits, given: Arguments) -> None:
    limits.foresee(6 * limits.size(next(iter(given.values()))))


def _json(limits: Limits, given: Arguments) -> None:
    indent, separators = given["indent"], given["separators"] or ("", "")
    width = len(indent) if isinstance(indent, str) else indent or 0
    if width > 100 or sum(map(len, separators)) > 100:
        raise LimitExceeded("it indents JSON too far")
    depth, size = limits.measure(given["value"])
    limits.foresee(size * 6 + size // 8 * (width * depth + sum(map(len, separators))))


_FILTERS: dict[str, Callable[[Limits, Arguments], None]] = {
    "batch": _groups, "center": _center, "e": _escape, "escape": _escape, "forceescape": _escape, "format": _format,
    "indent": _indent, "int": _int, "join": _join, "replace": _replace, "round": _round, "slice": _groups, "sum": _sum,
    "tojson": _json, "urlencode": _escape,
}  # fmt: skip


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
