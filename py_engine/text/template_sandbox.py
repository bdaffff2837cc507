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
from functools import reduce, wraps
from types import CodeType
from typing import Any

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Joiner, missing
from markupsafe import Markup

from py_engine.text import indented_json
from py_engine.text.template_code import (
    MAX_SOURCE,
    Code,
    check_code,
    check_tree,
    flatten,
    shallow_visitors,
    take_trees_apart,
)
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
    escaped,
    words,
)
from py_engine.text.template_limits import LimitExceeded, Limits
from py_engine.text.template_values import AccountedNamespace, Missing

MAX_BOUND = 1 << 60  # of a range: lists of larger numbers need more memory
BLOCK_CALLS = 5  # calls of macros that one of a block counts as: it recurses in C

_REMOVED = words("pprint striptags urlize wordwrap xmlattr")  # cost that cannot be foreseen; no model needs them
_SORTING = words("dictsort groupby sort unique")
_READING = _SORTING | words("batch items join list max min reverse slice sum tojson")  # read iterators to their end
_LAZY = words("map reject rejectattr select selectattr")
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_OF_TYPES = words(  # tests that look at no more than a value's type
    "boolean callable defined false float integer iterable mapping none number sequence string true undefined"
)
_OF_DICTS = frozenset(dir(dict))
_QUICK = words("attr count d default first last length random")  # take as long for many members as for one
_OF_TEXTS = words(  # read any value as a text
    "capitalize center e escape filesizeformat float forceescape format indent int lower replace safe string title "
    "trim truncate upper urlencode"
)
_CHOOSING = words("attr d default first last max min random")  # return a value that was there before


class Generation(jinja2.ext.Extension):
    """{% generation %} marks the assistant's text for training. Here it only renders its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class Sandbox(ImmutableSandboxedEnvironment):
    """A Jinja environment that accounts for everything to `limits`."""

    code_generator_class = Code
    intercepted_binops = frozenset(["+", "-", "*", "**", "%"])

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.limits = limits = Limits()
        extensions = [jinja2.ext.loopcontrols, Generation]
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=extensions,
            undefined=Missing,
            optimized=False,  # the optimizer recurses in C
            cache_size=0,
            finalize=self._finalized,
        )
        filters = {name: filter for name, filter in self.filters.items() if name not in _REMOVED}
        filters |= {"tojson": _tojson}
        self.filters = {name: self._accounted(name, filter) for name, filter in filters.items()}
        tests: dict[str, Any] = self.tests
        self.tests = {n: test if n in _OF_TYPES else self._accounted_test(test) for n, test in tests.items()}

        def paired(pairs: Any) -> Any:
            """The pairs of a new dict, one by one: keys of one hash are each compared with all before them."""
            return pairs if isinstance(pairs, dict) else limits.stepped(pairs)

        def new_namespace(*args: Any, **kwargs: Any) -> AccountedNamespace:
            return AccountedNamespace(limits, *map(paired, args), **kwargs)

        def new_cycler(*items: Any) -> Cycler:
            return Cycler(*limits.made(items))

        def new_joiner(sep: Any = ", ") -> Joiner:
            return Joiner(*limits.made((sep,)))

        def limited_range(*arguments: int) -> range:
            numbers = range(*arguments)
            if max(map(abs, arguments)) > MAX_BOUND:
                raise LimitExceeded("its numbers are too large")
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
            return dict(*map(paired, pairs), **members)  # the type itself has methods that change other dicts

        self.globals = {
            "range": limited_range,
            "dict": new_dict,
            "namespace": new_namespace,
            "cycler": new_cycler,
            "joiner": new_joiner,
            "raise_exception": raise_exception,
            "strftime_now": strftime_now,
        }

    # -- compiling

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > MAX_SOURCE:
            raise LimitExceeded(f"it has more than {MAX_SOURCE} characters")
        try:
            tree = super()._parse(source, name, filename)
            flatten(tree)
            check_tree(tree)
        except Exception:
            take_trees_apart(self)
            raise
        return tree

    def _generate(self, *args: Any, **kwargs: Any) -> str:
        with shallow_visitors():
            return super()._generate(*args, **kwargs)

    def _compile(self, source: str, filename: str) -> CodeType:
        check_code(source)
        return super()._compile(source, filename)

    # -- running: called by the code that Code writes

    def added(self, context: Any, terms: tuple[Any, ...]) -> Any:
        """Add the operands of a + b + c ..., from the left."""
        return reduce(lambda left, right: self.call_binop(context, "+", left, right), terms)

    def concatenated(self, parts: tuple[Any, ...]) -> str:
        """Join the operands of ~."""
        return self.concat(map(self._text, parts))

    def concat(self, parts: Iterable[str]) -> str:
        """Join texts: those of ~, of macros and of {% set %} blocks."""
        return self.limits.text([part for part in parts])  # noqa: C416 - list() would recurse in C

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Look up obj.attribute: at once in namespaces, and in dicts, unless it is a method of theirs."""
        kind = type(obj)
        if kind is AccountedNamespace:
            value = obj.__dict__.get(attribute, missing)
            if value is not missing and not attribute.startswith("_"):
                return value
        elif kind is dict and attribute in obj and attribute not in _OF_DICTS:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Allow append() and pop() of lists, which Jinja's sandbox does not: some models' templates call them."""
        return (type(obj) is list and attr in ("append", "pop")) or super().is_safe_attribute(obj, attr, value)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Look up obj[argument]. Filters with an attribute call this once per item, so it costs a step."""
        self.limits.spend()
        return super().getitem(obj, self.limits.compared(argument))

    def _text(self, value: Any) -> str:
        if type(value) is str:
            return value
        self.limits.foresee(self.limits.shown(value))
        return str(value)

    def _finalized(self, value: Any) -> Any:
        """Account for what {{ }} prints."""
        self.limits.foresee(self.limits.shown(value))
        return value

    def call(self, context: Any, called: Any, /, *args: Any, **kwargs: Any) -> Any:
        limits = self.limits
        weight = BLOCK_CALLS if isinstance(called, BlockReference) else 1
        limits.enter(weight)
        try:
            limits.spend(len(args))
            if belongs_to_a_value(called):
                check_method(limits, called, args, kwargs)
            result = self._called(context, called, args, kwargs)
            if isinstance(result, _VIEWS) and isinstance(called.__self__, dict):
                return limits.viewed(result, called.__self__)
            return result if getattr(called, "__name__", "") == "get" else limits.returned(result)
        finally:
            limits.leave(weight)

    def _called(self, context: Context, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call. Macros and loops call each other as functions of Python, which does not recurse in C."""
        if not isinstance(called, Macro | LoopContext):
            return super().call(context, called, *args, **kwargs)
        kwargs.pop("_loop_vars", None)
        kwargs.pop("_block_vars", None)
        if isinstance(called, Macro):
            return Macro.__call__(called, context.eval_ctx, *args, **kwargs)
        return LoopContext.__call__(called, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        limits = self.limits
        limits.spend()
        if operator == "+" and type(left) is str and type(right) is str:
            return limits.text([left, right])
        sequences = isinstance(left, list | tuple) and isinstance(right, list | tuple)
        if operator == "+" and (sequences or isinstance(left, str)):
            either = left if isinstance(left, Markup) else right
            limits.foresee(escaped(either, limits.size(left) + limits.size(right)))
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

    def _accounted_test(self, test: Callable[..., Any]) -> Callable[..., Any]:
        """A test that accounts for what it compares."""
        limits = self.limits

        @wraps(test)
        def accounted(*args: Any, **kwargs: Any) -> Any:
            limits.spend()
            for value in (*args, *kwargs.values()):
                limits.compared(value)
            return test(*args, **kwargs)

        return accounted

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
            if isinstance(value, Iterator | range) and name in _READING:
                value = limits.returned(list(limits.counted(value)))
            if isinstance(value, (list, tuple, dict, range)):
                limits.spend(len(value) * weight if name not in _QUICK else 1)
                limits.spend(weight * limits.size(value) >> 8 if weight > 1 else 0)
                if name in _OF_TEXTS:
                    limits.foresee(limits.shown(value))
            elif not isinstance(value, Iterator):
                limits.foresee(limits.size(value))
            args = (*args[:passed], value, *args[passed + 1 :])
            if name in ATTRIBUTES:
                check_attributes((*args[passed + 1 :], *kwargs.values()))
            if check is not None and signature is not None:
                bound = signature.bind(*args[hidden:], **kwargs)
                bound.apply_defaults()
                check(limits, bound.arguments)
                args, kwargs = (*args[:hidden], *bound.args), bound.kwargs
            if name in _LAZY and value:  # it may look at many items for each that it yields
                args = (*args[:passed], limits.stepped(value), *args[passed + 1 :])
            limits.enter()
            try:
                result = filter(*args, **kwargs)
                if name in _LAZY:
                    return limits.lazy(result, (value, *args[passed + 1 :], *kwargs.values()))
                return result if name in _CHOOSING else limits.returned(result)
            finally:
                limits.leave()

        return accounted


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    if indent is None:
        return json.dumps(value, ensure_ascii=ensure_ascii, separators=separators, sort_keys=sort_keys)
    blanks = indent if isinstance(indent, str) else " " * indent
    comma, colon = separators or (",", ": ")
    return indented_json.dumps(value, blanks, comma, colon, ensure_ascii, sort_keys)
