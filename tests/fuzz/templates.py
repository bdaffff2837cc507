"""Random chat templates: expressions, filters, methods and statements with extreme operands, nested at random."""

from random import Random
from typing import Any

from py_engine.errors import WispError
from py_engine.text.chat_template import ChatTemplate


def words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


MESSAGES: list[Any] = [
    {"role": "system", "content": "Be <b>brief</b>.\n" * 20},
    {"role": "user", "content": "Hi {0} %s %(a)s"},
    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, {"b": 2}]}}}]}
]  # fmt: skip
ATOMS = words(
    "1 0 -1 2 7 60 1000 99999 1000000 10**9 2**63 1.5 1e308 '' 'a' 'ab' 'a,b' '%s%s' '%(a)s' '%99999d' '%*d' '{0}{0}' "
    "'%.0000009999999d' ('%('*99999) '%((a))9999999d' ('%'*999999) ('{}'*400000) '{:>0000009999999}' '%r' huge "
    "'{:99999}' '{:{}}' '<|im_end|>' none true false x ns.x y m messages messages[0] messages[0].content tools "
    "messages[-1].tool_calls range(3) range(1000000) [] [1] {} {'a':1} (1,) namespace dict loop self caller range "
    "raise_exception strftime_now cycler joiner lipsum bos_token undefined_name ('é,'*400000) ('a'|e) "
    "('{0}%s<'*9|e) big many rows ('a\\r'*200000) quotes"
)
FILTERS = words(
    "abs attr('x') attr('format') batch(3) batch(10**9,0) capitalize center(9) center(10**9) count d default(1) "
    "dictsort e escape filesizeformat first float forceescape format(1) format(x,x) groupby('role') indent "
    "indent(10**9,true) int items join join(x) last length list lower map('upper') map('tojson') "
    "map(attribute='content') max min random reject('none') select('in',[1]*1000000) "
    "reject('eq',big) rejectattr('role') replace('a','bb') replace('',x) reverse "
    "round(2) round(7,'floor') round(300,'ceil') round(10**9,'ceil') safe select('string') selectattr('role') "
    "slice(3) slice(10**9) sort string sum "
    "sort(attribute='a,a.a') trim(big) sum(start=[]) title tojson tojson(indent=4) tojson(indent=10**9) trim "
    "trim(x) truncate(5) unique upper urlencode "
    "wordcount striptags urlize map('string')|map('int')|first select('lt',1)|map('default',x) map('map','string') "
    "map('select')|map('list') map('replace',x,big) sort(attribute='role',reverse=true) groupby('a') format(*many) "
    "max(attribute='a') batch(2)|map('first') slice(99)|map('list') unique(attribute='a') tojson(sort_keys=true) "
    "indent(9999) indent(999,true,true) format(quotes,quotes)"
)
METHODS = words(
    "upper() lower() strip() strip(x) split() split(x) rsplit(x,1) splitlines() join(x) replace('a','bb') "
    "replace('',x) format(x) format(x,x) format_map(x) center(10**9) ljust(999) zfill(10**6) expandtabs(10**9) "
    "startswith(x) find(x) rfind(x) count(x) encode() title() items() keys() values() get('role') get('a',x) copy() "
    "append(1) append(x) append(a) append([x]) update(x) pop() pop(0) "
    "fromkeys(x) index(1) to_bytes(10**9,'big') bit_length() role content a x __class__ "
    "__init__ mro __globals__ _Namespace__attrs _limits gi_frame find(big) count(big) partition(big) removesuffix(big) "
    "casefold() swapcase() "
    "partition('b') replace('<',quotes) join([quotes]) strip(big) rindex(big) split(big) join(many) format(*many) "
    "translate(x) maketrans(x) startswith(many) endswith(('b',)*900000)"
)
OPERATORS = words("+ - * / // % ** ~ == != < <= in and or")
TESTS = words(
    "defined none string mapping iterable number sameas(x) divisibleby(0) in(x) odd eq(big) in([1.5]*1000000) upper "
    "filter test"
)
PARTS = words("[{0}] [{0},{0}] {{'a':{0}}} ({0},) [{0}]*9 ({0})[0] ({0})[::2] ({0})[1:]")
CALLS = words("m({0}) m({0},*{0}) range({0}) namespace(y={0}) dict(a={0}) cycler(*{0}) cycler({0}) joiner({0})")
# Values that hold another one, which may hold another one, and so on.
HOLDERS = words(
    "[{0}] ({0},) {{'a':{0}}} [{0}].x {{}}[[{0}]] [{0}]['x'] cycler({0}) joiner({0}) cycler({0}).next "
    "cycler({0}).current dict(a={0}) dict(a={0}).get dict(a={0}).items() [{0}].count [{0}]|list [{0}]|reverse "
    "[{0}]|batch(2) [{0}]|slice(2) [{0}]|map('list') [{0}]|select [{0}]|reject [{0}]|unique [{0}]|map('default',1) "
    "[1]|map('default',{0}) namespace(y={0}) ({0}|map('upper')) ({0}|select) ({0}|batch(3)) ({0}|slice(3)) "
    "({0}|reverse) ({0}|items) {0}|d (({0}|select)|d)"
)
# What may be written around a piece of source many times.
AROUND = [
    ("(x + ", ")"), ("(x ~ ", ")"), ("not (", ")"), ("-(", ")"), ("[", "]"), ("{'a':", "}"), ("(", ",)"), ("(", ")|e"),
    ("x|default(", ")"), ("m(", ")"), ("m(*", ")"), ("m(a=", ")"), ("(", ").x"), ("x[", "]"), ("x[1:", "]"),
    ("(1 if ", " else 2)"), ("(", " if x else 2)"), ("(x == ", ")"), ("(x in ", ")"), ("(x and ", ")"), ("(x ** ", ")"),
    ("(", " is defined)"), ("x is sameas(", ")"), ("(x ~ m(x|default(", ")))"), ("", "|list"), ("", ".x"), ("", "[0]"),
    ("", "()"), ("", " + x"), ("", " or x"), ("", " is none"), ("", " ~ x"), ("", " * x"), ("x if x else ", ""),
    ("-", ""), ("x(", ")"),
]  # fmt: skip
BLOCKS = [
    ("{% if x %}", "{% endif %}"), ("{% if y %}{% else %}", "{% endif %}"), ("{% if x %}{% elif x %}", "{% endif %}"),
    ("{% for i in [1] %}", "{% endfor %}"), ("{% for i in [1] if i recursive %}{{ loop.index }}", "{% endfor %}"),
    ("{% macro m(a) %}", "{% endmacro %}{{ m(1) }}"), ("{% call m(1) %}", "{% endcall %}"),
    ("{% set x %}", "{% endset %}"), ("{% filter upper %}", "{% endfilter %}"),
    ("{% generation %}", "{% endgeneration %}"), ("{% autoescape true %}", "{% endautoescape %}"),
    ("{% with a=1 %}", "{% endwith %}"),
]  # fmt: skip
TIMES = (1, 3, 8, 15, 25, 36, 60, 500, 5000, 20000)

# Lists that grow, and hold each other.
GROWTH = (
    "{% set l = [] %}", "{% set _ = l.append(ns.x) %}", "{% set ns.x = l %}", "{% set ns.x = [l] %}", "{% set l = y %}",
    "{% set _ = ns.x.append(l) %}", "{% set _ = l.append(ns) %}", "{% set _ = y.append(l) %}", "{% set ns.x = y %}",
    "{% set _ = l.append(l|select) %}", "{% set _ = l.append('ab' * 9999) %}", "{% set ns.x = ns.x|select %}",
    "{% set l = l + l %}", "{% set _ = l.pop() %}", "{% set ns.x = namespace(x=l) %}", "{% set ns.x = {'a': l} %}",
)  # fmt: skip


def expression(rng: Random, depth: int) -> str:
    """A random expression."""
    if depth <= 0:
        return rng.choice(ATOMS)
    inner = expression(rng, depth - 1)
    shape = rng.randrange(12)
    if shape < 3:
        return f"({inner} {rng.choice(OPERATORS)} {expression(rng, depth - 2)})"
    if shape < 6:
        return f"({inner}|{rng.choice(FILTERS)})"
    if shape < 8:
        return f"({inner}).{rng.choice(METHODS)}"
    if shape == 8:
        return rng.choice(PARTS).format(inner)
    if shape == 9:
        return f"({inner} if {expression(rng, depth - 2)} is {rng.choice(TESTS)} else {expression(rng, depth - 2)})"
    if shape == 10:
        return rng.choice(CALLS).format(inner)
    return rng.choice(["not ", "-", "+", "(" * rng.choice((1, 5, 300))]) + inner  # the last one is not closed


def statement(rng: Random, depth: int) -> str:
    """A random statement."""
    body = "".join(statement(rng, depth - 1) for _ in range(rng.randrange(3))) if depth > 0 else "text "
    given = expression(rng, rng.randrange(4))
    shapes = [
        "{{{{ {0} }}}}", "{{{{ {0} }}}}", "{{% set x = {0} %}}", "{{% set ns.x = {0} %}}{{{{ ns.x }}}}",
        "{{% set x %}}{1}{{{{ x }}}}{{{{ x }}}}{{% endset %}}",
        "{{% if {0} %}}{1}{{% elif x %}}{{% else %}}{{% endif %}}",
        "{{% for i in {0} %}}{1}{{% endfor %}}",
        "{{% for i in range(1000000) %}}{1}{{% set ns.x = {0} %}}{{% endfor %}}",
        "{{% for i in range(99) %}}{{% set ns.x = [ns.x, {0}] %}}{1}{{% endfor %}}",
        "{{% for i in range(99) %}}{{% set ns.x = ns.x ~ ns.x %}}{{% endfor %}}",
        "{{% for i in {0} recursive %}}{{{{ loop(i) }}}}{{{{ loop.previtem }}}}{1}{{% endfor %}}",
        "{{% for i in {0} if {0} %}}{1}{{% break %}}{{% endfor %}}",
        "{{% macro m(a) %}}{1}{{{{ m({0}) }}}}{{% endmacro %}}", "{{% macro m(a) %}}{1}{{{{ a }}}}{{% endmacro %}}",
        "{{% filter upper %}}{1}{{% endfilter %}}", "{{% call m({0}) %}}{1}{{% endcall %}}", "{{% generation %}}{1}",
        "{{% block b %}}{1}{{{{ self.b() }}}}{{% endblock %}}", "{{% include {0} %}}", "{{# {0} #}}", "{{% raw %}}{1}",
    ]  # fmt: skip
    return rng.choice(shapes).format(given, body)


def nested(rng: Random) -> str:
    """A template with one thing very often: within itself, after itself, or as a value that holds the one before."""
    shape, times = rng.randrange(6), rng.choice(TIMES)
    if shape == 0:
        before, after = rng.choice(AROUND)
        return "{{ " + before * times + expression(rng, 1) + after * times + rng.choice([" }}", " }}", ""])
    if shape == 1:
        before, after = rng.choice(BLOCKS)
        return before * times + statement(rng, 1) + after * times
    value = "ns.x"
    for _ in range(rng.randrange(1, 4)):
        value = rng.choice(HOLDERS).format(value)
    used = rng.choice(["", "", "{{ ns.x }}", "{{ ns.x|list }}", "{{ ns.x == ns.x }}", "{{ ns.x|tojson(indent=1) }}"])
    if shape == 2:
        return f"{{% set x = {value.replace('ns.x', 'x')} %}}" * times + used.replace("ns.x", "x")
    if shape == 5:
        body = "".join(rng.choices(GROWTH, k=rng.randrange(2, 7)))
        return f"{{% set l = [] %}}{{% for i in range({times * 10}) %}}{body}{{% endfor %}}{used}"
    if shape == 3:
        calls = ["m(a - 1)", "caller() if caller else m(a - 1)", "[m(a - 1)]|map('upper')|list", "m(a=a - 1)"]
        body = f"{{{{ {rng.choice(calls)} if a }}}}{used}"
        return f"{{% macro m(a) %}}{body}{{% endmacro %}}{{{{ m({rng.choice((5, 24, 48, 60))}) }}}}"
    return f"{{% for i in range({times * 10}) %}}{{% set ns.x = {value} %}}{{% endfor %}}{used}"


def hot(rng: Random) -> str:
    """A template that computes something small very often, or something large often."""
    inner = expression(rng, rng.randrange(1, 4))
    times = rng.choice((1, 1, 3, 100, 1000, 3000))
    body = rng.choice(
        ["{{{{ {0} }}}}", "{{% if {0} %}}x{{% endif %}}", "{{% set x = {0} %}}", "{{{{ ({0})|length }}}}"]
    )
    text = rng.choice(["", "", "{{ loop.index }}"]) + body.format(inner) * times
    if rng.random() < 0.2:
        return "{% macro h() %}" + text + "{% endmacro %}{% for i in range(99999) %}{{ h() }}{% endfor %}"
    over = rng.choice(["range(99999)", "range(999999)", "many", "many|map('string')", "rows|batch(3)", "messages*999"])
    loop = f"{{% for i in {over} %}}"
    depth = rng.choice((1, 1, 2, 5))
    return loop * depth + text + rng.choice(["", "{% break %}"]) + "{% endfor %}" * depth


def case(rng: Random) -> str:
    """A template, sometimes damaged or repeated."""
    text = "{% set ns = namespace(x='a') %}{% set x = 'ab' %}{% set y = [1] %}{% macro m(a) %}{{ a }}{% endmacro %}"
    text += "{% set big = 'b,' * 400000 ~ 'a' %}"
    text += "{% set huge = 2 ** 2000 * 2 ** 2000 %}{% set quotes = '\"😀' * 400000 %}"
    text += "{% set many = range(9999)|list %}{% set rows = [{'a': 'b'}] * 9999 %}"
    if rng.random() < 0.15:
        text += nested(rng)
    if rng.random() < 0.15:
        text += hot(rng)
    text += "".join(statement(rng, rng.randrange(4)) for _ in range(rng.randrange(1, 5)))
    if rng.random() < 0.1:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(["%}", "{{", "(", "'", "\0", "{%", "|"]) + text[at + rng.randrange(3) :]
    return text * rng.choice((1, 1, 1, 40)) if rng.random() < 0.1 else text


def run(source: str) -> None:
    """Compile and render."""
    before = repr(MESSAGES)
    try:
        ChatTemplate(source, "<s>", "</s>").render(MESSAGES, tools=[{"a": [1]}])
    except WispError as error:
        if error.code != "bad_chat_template":
            raise AssertionError(error.code) from error
    assert repr(MESSAGES) == before
