"""Limits on what a template's operators, methods and filters cost, checked on their arguments before they run."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2.runtime import Undefined
from markupsafe import Markup, escape

from py_engine.text.template_limits import MAX_BITS, MAX_PIECES, QUOTED, LimitExceeded, Limits

MAX_REPEAT = 1_000_000  # length of a sequence that * makes
MAX_WIDTH = 10_000  # of a padded or indented text, and of a number in a format
ESCAPED = 5  # characters that the escape filter makes of one, as in &#34;
CASED = 3  # characters that a change of case makes of one, at most


def words(text: str) -> frozenset[str]:
    """Split a text into names."""
    return frozenset(text.split())


_METHODS: dict[type, frozenset[str]] = {
    str: words(
        "capitalize casefold center count endswith expandtabs find format format_map index isalnum isalpha isascii "
        "isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip "
        "partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines "
        "startswith strip swapcase title upper zfill"
    ),
    dict: words("copy get items keys values"),
    list: words("append copy count index pop"),
    tuple: words("count index"),
    range: words("count index"),
    float: words("is_integer"),
    int: words("bit_count bit_length is_integer"),
}
_PADDING = words("center expandtabs ljust rjust zfill")
# At worst they compare length times argument characters. 64 comparisons count as one character: they are fast.
_QUADRATIC = words("lstrip rfind rindex rpartition rstrip strip")
_SPLITTING = words("rsplit split")
_CASES = words("capitalize casefold lower swapcase title upper")
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
MAX_KEY = 1000  # characters of a name in a format string, as in %(name)s
_FORMAT = re.compile(rf"%(?:%|(?:\([^()]{{0,{MAX_KEY}}}\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?[hlL]?(.?))", re.DOTALL)


def check_product(limits: Limits, left: Any, right: Any) -> None:
    """Check left * right."""
    for what, times in ((left, right), (right, left)):
        if isinstance(what, str | bytes | list | tuple) and isinstance(times, int):
            if len(what) * times > MAX_REPEAT:
                raise LimitExceeded("it repeats a text too often")
            limits.foresee(limits.size(what) * max(times, 0))
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MAX_BITS:
        raise LimitExceeded("its numbers are too large")


def check_power(left: Any, right: Any) -> None:
    """Check left ** right."""
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * max(right, 0) > MAX_BITS:
        raise LimitExceeded("its numbers are too large")


def check_percent(limits: Limits, text: str, values: tuple[Any, ...]) -> None:
    """Check text % values."""
    quoted = 1
    limits.foresee(len(text) + text.count("%") * MAX_BITS)  # before each is parsed
    for found in _FORMAT.finditer(text):
        *widths, conversion = found.groups("")
        if conversion == "(":  # the name is too long, has parentheses within, or has no end
            raise LimitExceeded("its format string has too long a name")
        if any(width == "*" or _is_wide(width) for width in widths):
            raise LimitExceeded("its format string has too large a width")
        quoted = QUOTED if conversion in ("r", "a") else quoted
    size = quoted * escaped(text, max(map(limits.shown, values), default=0))
    limits.foresee(len(text) + text.count("%") * (MAX_BITS + size))


def check_fields(limits: Limits, text: str, values: tuple[Any, ...]) -> None:
    """Check text.format(*values)."""
    fields = 0
    quoted = 1
    limits.spend(text.count("{") + text.count("}"))
    for _, name, form, conversion in string.Formatter().parse(text):
        fields += name is not None
        quoted = QUOTED if conversion in ("r", "a") else quoted
        if form and ("{" in form or any(map(_is_wide, re.findall(r"\d+", form)))):
            raise LimitExceeded("its format string has too large a width")
    if any(not isinstance(v, str | int | float | list | tuple | dict | Undefined | None) for v in values):
        raise LimitExceeded("it formats a value that is no text, number or list")
    size = quoted * escaped(text, max(map(limits.shown, values), default=0))
    limits.foresee(len(text) + fields * (MAX_BITS + size))


def _is_wide(digits: str) -> bool:
    """Whether a number in a format string is too large. No format needs a run of zeros before it."""
    return len(digits) > 5 or int(digits or 0) > MAX_WIDTH


def escaped(text: str, size: int) -> int:
    """At most as many characters as another text of that size has in `text`: one that is escaped escapes others."""
    return size * ESCAPED if isinstance(text, Markup) else size


def belongs_to_a_value(called: Any) -> bool:
    """Whether what is called is a method of a built-in type, or of one made from such a type: the escape filter's."""
    if isinstance(called, MethodType):
        owner = called.__self__
        return isinstance(owner, (type, *_METHODS))
    return isinstance(called, BuiltinMethodType)


def check_method(
    limits: Limits, method: BuiltinMethodType | MethodType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Check a call of a method that belongs to a value."""
    owner: Any = method.__self__
    name = method.__name__
    allowed = next((names for kind, names in _METHODS.items() if isinstance(owner, kind)), frozenset())
    if name not in allowed:
        raise LimitExceeded(f"it calls {name}(), which chat templates may not")
    if name == "append":
        limits.spend()
        for value in args:
            limits.append(owner, value)
        return
    if not isinstance(owner, str):
        for value in args:
            limits.compared(value)
        if not isinstance(owner, int | float) and name not in ("get", "items", "keys", "values"):
            limits.spend(len(owner))
        return
    _check_text_method(limits, owner, name, args, kwargs)


def _check_text_method(limits: Limits, owner: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    limits.foresee(len(owner))
    for value in args:
        if isinstance(value, tuple):  # of startswith() and endswith()
            limits.spend(len(limits.compared(value)))
    if name in _PADDING:
        _check_width(next((a for a in (*args, *kwargs.values()) if isinstance(a, int)), 8))
        limits.foresee(len(owner) * (MAX_WIDTH if name == "expandtabs" and owner.count("\t") > 1000 else 1))
    elif name in _QUADRATIC:
        _check_comparisons(limits, owner, args)
    elif name in _SPLITTING:
        if name == "rsplit":
            _check_comparisons(limits, owner, args)
        given = dict(zip(("sep", "maxsplit"), args, strict=False)) | kwargs
        limits.cut(_pieces(owner, given.get("sep"), given.get("maxsplit")))
    elif name == "splitlines":
        limits.cut(_lines(owner))
    elif name in _CASES:
        _check_case(limits, owner)
    elif name == "join" and args:
        _check_join(limits, owner, args[0])
    elif name == "replace" and len(args) > 1 and isinstance(args[0], str) and isinstance(args[1], str):
        _check_replace(limits, owner, args[0], args[1])


def _check_join(limits: Limits, between: str, given: Any) -> None:
    if isinstance(given, str):
        limits.cut(len(given))
    size = limits.size(given) if isinstance(given, str | list | tuple | dict) else 0
    limits.foresee(escaped(between, size) + len(between) * (len(given) if size else 0))
    if not size and not isinstance(given, list | tuple | dict | str):
        raise LimitExceeded("it joins what is no list")


def _check_replace(limits: Limits, text: str, old: str, new: str) -> None:
    limits.foresee(escaped(text, len(old) + len(new)))
    if isinstance(text, Markup):
        old, new = escape(old), escape(new)
    limits.foresee(len(text) + text.count(old) * len(new))


def _check_comparisons(limits: Limits, text: str, args: tuple[Any, ...]) -> None:
    limits.foresee(len(text) * max((len(a) for a in args if isinstance(a, str)), default=0) >> 6)


def _pieces(text: str, sep: Any, maxsplit: Any) -> int:
    """At most as many as text.split(sep, maxsplit) makes."""
    made = text.count(sep) + 1 if isinstance(sep, str) and sep else len(text) // 2 + 1
    return min(made, maxsplit + 1) if isinstance(maxsplit, int) and maxsplit >= 0 else made


def _lines(text: str) -> int:
    """At most as many as text.splitlines() makes, if they are many."""
    return len(text) if len(text) <= MAX_PIECES else sum(map(text.count, _LINE_ENDS))


def _check_case(limits: Limits, text: str) -> None:
    if not text.isascii():
        limits.check_size(len(text) * CASED)


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
    lines = sum(map(text.count, _LINE_ENDS))
    limits.cut(lines)
    limits.foresee(len(text) + (lines + 2) * (len(width) if isinstance(width, str) else max(0, width)))


def _replace(limits: Limits, given: Arguments) -> None:
    text, old, new = (str(given[name]) for name in ("s", "old", "new"))
    limits.foresee(len(text) + text.count(old) * len(new))


def _join(limits: Limits, given: Arguments) -> None:
    _cut(limits, given)
    given["value"] = list(given["value"])
    limits.foresee(sum(map(limits.shown, given["value"])) + len(given["value"]) * len(str(given["d"])))


def _format(limits: Limits, given: Arguments) -> None:
    text = given["value"]
    check_percent(limits, text if isinstance(text, str) else str(text), (*given["args"], *given["kwargs"].values()))


def _round(limits: Limits, given: Arguments) -> None:
    if not isinstance(given["precision"], int) or abs(given["precision"]) > 300:
        raise LimitExceeded("it rounds to too many digits")
    if isinstance(given["value"], str | list | tuple):  # multiplying one by 10 ** precision repeats it
        raise LimitExceeded("it rounds what is no number")


def _groups(limits: Limits, given: Arguments) -> None:
    """Check batch(linecount) and slice(slices)."""
    _cut(limits, given)
    if (given["linecount"] if "linecount" in given else given["slices"]) > MAX_WIDTH:
        raise LimitExceeded("it makes too many groups")


def _trim(limits: Limits, given: Arguments) -> None:
    _check_comparisons(limits, str(given["value"]), (str(given["chars"] or ""),))


def _cut(limits: Limits, given: Arguments) -> None:
    """Check a filter that makes a list of a text's characters or words."""
    text = given["value"] if "value" in given else given["s"]
    if isinstance(text, str):
        limits.cut(len(text))


def _case(limits: Limits, given: Arguments) -> None:
    _check_case(limits, str(given["s"]))


def _title(limits: Limits, given: Arguments) -> None:
    _cut(limits, given)
    _case(limits, given)


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


ATTRIBUTES = words("groupby join map max min rejectattr selectattr sort sum unique")  # filters that read attributes
MAX_ATTRIBUTES = 16  # names in one of their arguments, as in "a.b,c"


def check_attributes(values: tuple[Any, ...]) -> None:
    """Check the arguments of a filter that reads attributes of each member."""
    for value in values:
        if isinstance(value, str) and value.count(".") + value.count(",") >= MAX_ATTRIBUTES:
            raise LimitExceeded("it reads too many attributes at once")


FILTERS: dict[str, Callable[[Limits, Arguments], None]] = {
    "batch": _groups, "capitalize": _case, "center": _center, "e": _escape, "escape": _escape, "forceescape": _escape,
    "format": _format, "groupby": _cut, "indent": _indent, "int": _int, "join": _join, "list": _cut, "lower": _case,
    "replace": _replace, "round": _round, "slice": _groups, "sort": _cut, "sum": _sum, "title": _title,
    "tojson": _json, "trim": _trim, "unique": _cut, "upper": _case, "urlencode": _escape, "wordcount": _cut,
}  # fmt: skip
