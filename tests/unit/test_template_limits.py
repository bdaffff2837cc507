"""The limits of chat templates: what would run for hours or fill the memory ends, and long chats do not."""

import sys
import time
from contextlib import suppress

import pytest

from py_engine.errors import WispError
from py_engine.text.chat_template import ChatTemplate
from py_engine.text.template_limits import LAZY_BYTES, MAX_SECONDS, NOTED_BYTES, LimitExceeded, Limits

USER = [{"role": "user", "content": "Hi"}]


BIG = "'a' * 1000000"
DOUBLED = "{% set ns = namespace(x=START) %}{% for i in range(60) %}{% set ns.x = NEXT %}{% endfor %}{{ ns.x }}"
NESTED = DOUBLED.replace("60", "100000")
RUNAWAYS = [
    # loops
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% for i in range(10 ** 9) %}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) if false %}{% endfor %}{% endfor %}",
    "{% for i in range(1000000) %}{{ " + BIG + " in 'b' }}{% endfor %}",
    "{% for i in [1, 1] recursive %}{{ loop([1, 1]) if loop.depth < 40 }}{% endfor %}",
    # macros and blocks
    "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}",
    "{% block a %}{{ self.a() }}{% endblock %}",
    "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    # texts
    "{{ 'a' * 10 ** 9 }}",
    "{% for i in range(900000) %}{{ 'a' * 100 }}{% endfor %}",
    DOUBLED.replace("START", "'a'").replace("NEXT", "ns.x ~ ns.x"),
    DOUBLED.replace("START", "'a'").replace("NEXT", "ns.x + ns.x"),
    DOUBLED.replace("START", "'a'").replace("NEXT", "'%s%s' % (ns.x, ns.x)"),
    DOUBLED.replace("START", "'a'").replace("NEXT", "'{0}{0}'.format(ns.x)"),
    DOUBLED.replace("START", "'aa'").replace("NEXT", "ns.x|replace('a', 'aa')"),
    DOUBLED.replace("START", "'aa'").replace("NEXT", "ns.x.replace('a', 'aa')"),
    DOUBLED.replace("START", "'aa'").replace("NEXT", "[ns.x, ns.x]|join"),
    DOUBLED.replace("START", "'aa'").replace("NEXT", "'-'.join([ns.x, ns.x])"),
    "{% set x %}aaaa{% endset %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 40,
    "{% filter upper %}{% for i in range(900000) %}" + "a" * 50 + "{% endfor %}{% endfilter %}",
    "{{ 'a'.center(10 ** 9) }}", "{{ 'a'|center(10 ** 9) }}", "{{ 'a'.ljust(10 ** 9) }}", "{{ 'a'.zfill(10 ** 9) }}",
    "{{ 'a'|indent(10 ** 9, true) }}", "{{ ('a\\n' * 400000)|indent(9999) }}", "{{ ('\\t' * 99999).expandtabs(9999) }}",
    "{{ [1]|tojson(indent=10 ** 9) }}", "{{ lipsum(100000) }}", "{{ 'a'|attr('center')(10 ** 9) }}",
    "{{ '%1000000000d' % 1 }}", "{{ '%*d' % (10 ** 9, 1) }}", "{{ '%.1000000000f'|format(1.0) }}",
    "{{ '{:1000000000}'.format(1) }}", "{{ '{:{}}'.format(1, 10 ** 9) }}", "{{ strftime_now('%1000000000Y') }}",
    "{{ (" + BIG + ").rfind('b' + 'a' * 500000) }}", "{{ range(1000000)|join(" + BIG + ") }}",
    "{{ '{0.x}{0.x}'.format(namespace(x=" + BIG + ")) }}",
    "{{ ('%(' * 400000) % 1 }}", "{{ ('%(' * 400000)|format(1) }}", "{{ '%((a))99999999d' % {'(a)': 1} }}",
    "{% set x = '%' * 999999 %}{{ (x ~ x ~ x ~ x ~ x ~ x) % 1 }}",
    "{% set x = '{}' * 400000 %}{{ (x ~ x ~ x ~ x ~ x ~ x ~ x).format(1) }}",
    "{% set x = ('b',) * 900000 %}{% for i in range(999999) %}{{ 'a'.startswith(x) }}{% endfor %}",
    "{{ ('a\\r' * 200000)|groupby('role') }}", "{{ ('a\\r' * 200000)|sort(attribute='a.b') }}",
    "{{ ('a'|e).center(10 ** 9) }}", "{{ ('%9999999d'|e) % 5 }}", "{{ ((" + BIG + ")|e).strip('b' * 900000 ~ 'a') }}",
    "{{ (" + BIG + ")|trim('b' * 900000 ~ 'a') }}", "{{ ((" + BIG + ")|e).escape('<' * 1000000) }}",
    "{% set x = " + BIG + " %}" + "".join(f"{{% set x{i} = x[1:] %}}" for i in range(200)),
    "{{ " + "~".join(["'a'|center(9999)"] * 1000) + " }}",
    # texts as lists: each piece is an object
    *("{{ ((" + BIG + ")|" + f + ")|length }}" for f in ("list", "join(',')", "sort", "slice(3)|list", "wordcount")),
    *("{{ ((" + BIG + ")|" + f + ")|length }}" for f in ("unique|list", "groupby('a')", "title", "batch(3)|list")),
    *("{{ ('a ' * 500000)." + f + "|length }}" for f in ("split()", "split(' ')", "rsplit(' ')")),
    "{{ ('\n' * 999999).splitlines() }}", "{{ cycler(*" + BIG + ") }}",
    "{% macro m() %}{% endmacro %}{{ m(*" + BIG + ") }}",
    # lists
    "{% set x = range(900000)|list %}" + "".join(f"{{% set x{i} = x[1:] %}}" for i in range(200)),
    "{{ range(9999)|sort(attribute='" + ",".join(["real"] * 3000) + "') }}",
    "{{ [0] * 10 ** 9 }}", "{{ [" + BIG + "] * 1000 }}", "{{ [1]|batch(10 ** 9, 0)|list }}", "{{ [1]|slice(10 ** 9) }}",
    "{{ [['a'] * 1000] * 1000|sum(start=[]) }}", "{{ {}.fromkeys(range(10 ** 6)) }}",
    DOUBLED.replace("START", "[1]").replace("NEXT", "ns.x + ns.x"),
    DOUBLED.replace("START", "[1]").replace("NEXT", "[ns.x, ns.x]"),
    NESTED.replace("START", "1").replace("NEXT", "[ns.x]"),
    NESTED.replace("START", "1").replace("NEXT", "(ns.x,)"),
    NESTED.replace("START", "1").replace("NEXT", "{'a': ns.x}"),
    NESTED.replace("START", "1").replace("NEXT", "dict(a=ns.x)"),
    NESTED.replace("START", "1").replace("NEXT", "namespace(y=ns.x)"),
    # comparisons
    "{% set b = [1] * 1000000 %}{% for i in range(99999) %}{{ 2 in b }}{% endfor %}",
    "{% set b = [1] * 1000000 %}{% set c = b[:] %}{% for i in range(99999) %}{{ b == c }}{% endfor %}",
    "{% for i in range(99999) %}{{ 'a' in range(1000000) }}{% endfor %}",
    "{% set b = [1] * 1000000 %}{{ ([2] * 99999)|select('in', b)|list }}",
    "{% set b = [1] * 1000000 %}{% for i in range(99999) %}{{ 2 is in b }}{% endfor %}",
    "{% set ns = namespace(x=(1,)) %}{% for i in range(19) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}"
    "{% for i in range(99999) %}{{ {}[ns.x] }}{% endfor %}",
    *(  # these two hash the value, which may be no name
        "{% set ns = namespace(x=(1,)) %}{% for i in range(18) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}"
        + ("{{ ns.x is " + test + " }}") * 800 for test in ("filter", "test")
    ),
    # long bodies
    *("{% for i in range(99999) %}" + body * 1800 + "{% endfor %}" for body in ("{{ x }}", "{% set a = x %}")),
    "{% macro m() %}" + "{{ x }}" * 4000 + "{% endmacro %}{% for i in range(99999) %}{{ m() }}{% endfor %}",
    # numbers
    "{{ 10 ** 100000000 }}", "{{ 1|round(10 ** 9, 'ceil') }}", "{{ (1).to_bytes(10 ** 9, 'big') }}",
    DOUBLED.replace("START", "9").replace("NEXT", "ns.x * ns.x"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(60)  # without its limits, the sandbox would run for hours
@pytest.mark.parametrize("source", RUNAWAYS, ids=range(len(RUNAWAYS)))
def test_runaway_templates_end(source: str) -> None:
    began = time.process_time()
    with pytest.raises(WispError) as error:
        ChatTemplate(source).render(USER)
    assert error.value.code == "bad_chat_template"
    assert time.process_time() - began < 2 * MAX_SECONDS


@pytest.mark.parametrize("value", ["'x'", "('x' * 9999)", "[1]", "(1,)", "'x'|e"])
def test_what_is_no_number_is_not_rounded(value: str) -> None:
    """Jinja multiplies it by 10 ** precision first, which repeats a text or a list."""
    with pytest.raises(WispError, match="no number"):
        ChatTemplate("{{ (" + value + ")|round(7, 'floor') }}").render(USER)
    assert ChatTemplate("{{ 1.26|round(1, 'floor') }} {{ true|round }}").render(USER) == "1.2 1"


def test_formats_within_the_limits_are_applied() -> None:
    source = "{{ '%(a)5.2f %%|%%(' % {'a': 1} }}{{ '%r %-5s|' % ('a', 1) }}"
    assert ChatTemplate(source).render(USER) == " 1.00 %|%('a' 1    |"


def test_lazy_iterators_count_as_memory() -> None:
    limits = Limits()
    limits.start(values=10 * LAZY_BYTES + 11 * NOTED_BYTES)
    held = ([1],)
    iterators = [limits.lazy(iter([1]), held) for _ in range(10)]
    with pytest.raises(LimitExceeded, match="too many values"):
        iterators.append(limits.lazy(iter([1]), held))


DEEP = [
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "{{ 1" + " if 1 else 1" * 5000 + " }}",
    "{{ " + "not " * 5000 + "1 }}",
    "{{ " + "- " * 5000 + "1 }}",
    "{{ a" + ".b" * 5000 + " }}",
    "{{ a" + "|upper" * 5000 + " }}",
    "{{ a" + "[0]" * 5000 + " }}",
    "{{ 1" + " - 1" * 5000 + " }}",
    "{{ x }}" * 9000,
    "{{ 1" + " ** 1" * 5000 + " }}",
    "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "{% if 1 %}" + "{% elif 1 %}" * 3000 + "{% endif %}",
    "{{ 1" + " ~ 1" * 20000 + " }}",
    "a" * 2_000_000,
    "{% macro m() %}" * 3000 + "{% endmacro %}" * 3000,
    "{% for i in [1] %}" * 25 + "{% endfor %}" * 25,
]


@pytest.mark.slow
@pytest.mark.parametrize("source", DEEP, ids=range(len(DEEP)))
def test_deep_and_large_templates_do_not_compile(source: str) -> None:
    with pytest.raises(WispError, match="does not compile"):
        ChatTemplate(source)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("('abc'|list)[1:]", "['b', 'c']"),
        ("range(5)|slice(2)|list", "[[0, 1, 2], [3, 4]]"),
        ("range(3)|batch(2)|list", "[[0, 1], [2]]"),
        ("'a b c'.split(maxsplit=1)", "['a', 'b c']"),
        ("('a,b'|e).split(',')", "[Markup('a'), Markup('b')]"),
        ("'ab'|join('-')", "a-b"),
        ("[{'a': 2}, {'a': 1}]|sort(attribute='a')|map(attribute='a')|join(',')", "1,2"),
        ("' a '|trim", "a"),
        ("'{}{}'.format(*'ab')", "ab"),
        ("'a\\nb'.splitlines()", "['a', 'b']"),
        ("'empty iterators are true' if []|select else ''", "empty iterators are true"),
        ("cycler([1, 2]|select).next()|list", "[1, 2]"),
        ("{'a': [1]}.items()|list", "[('a', [1])]"),
        ("'a' + 'b' + 'c' + 'd' * 2", "abcdd"),
        ("0 or '' or 'x' and 'y' and 'z' or 1", "z"),
        (
            "{'a': [1, {}], 'b': {'c': none}}|tojson(indent=1)",
            '{\n "a": [\n  1,\n  {}\n ],\n "b": {\n  "c": null\n }\n}',
        ),
    ],
)
def test_the_limits_leave_results_as_they_are(expression: str, text: str) -> None:
    loop = "{% for i in [1] %}{{ " + expression + " }}{% endfor %}"
    assert ChatTemplate("{{ " + expression + " }}" + loop).render(USER) == text * 2


HOLDERS = "cycler(ns.x) cycler(ns.x).next joiner(ns.x) dict(a=ns.x).get [ns.x].count [cycler(ns.x)] dict(a=loop) m"
ITERATORS = "[ns.x]|map('list') [ns.x]|select (ns.x|batch(2)) (ns.x|slice(2)) [ns.x|select] [ns.x]|reverse"


@pytest.mark.parametrize("value", [*HOLDERS.split(), *ITERATORS.split()])
def test_values_that_hold_each_other_end(value: str) -> None:
    """Freeing a long chain of them would overflow the stack of WebAssembly."""
    start = "{% macro m() %}{% endmacro %}{% set ns = namespace(x=[1]) %}"
    template = ChatTemplate(start + "{% for i in range(500) %}{% set ns.x = " + value + " %}{% endfor %}")
    with pytest.raises(WispError, match=r"nests lists|in another value"):
        template.render(USER)


@pytest.mark.parametrize(
    "body",
    [
        "{% set _ = l.append(l) %}",
        "{% set ns.x = l %}{% set _ = l.append(ns) %}",
        "{% set held = [l] %}{% set _ = l.append(1) %}",
        "{% set held = {'a': l} %}{% set _ = l.append(1) %}",
        "{% set held = namespace(l=l) %}{% set holds = [held] %}{% set _ = l.append(1) %}",
        "{% set held = l|select %}{% set _ = l.append(1) %}",
        "{% set k = [] %}{% set _ = k.append(l) %}{% set _ = l.append(k) %}",
        "{% set _ = messages.append(1) %}",
    ],
)
def test_a_list_that_another_value_holds_does_not_grow(body: str) -> None:
    """What was measured of that value would be wrong: its depth and its length as text."""
    template = ChatTemplate("{% set l = [] %}{% set ns = namespace() %}" + body)
    with pytest.raises(WispError, match="changes a list that another value holds"):
        template.render(USER)


def test_lists_that_grow_are_bounded() -> None:
    deep = "{% set ns = namespace(x=[]) %}{% for i in range(500) %}{% set l = [] %}{% set _ = l.append(ns.x) %}"
    for source in (
        deep + "{% set ns.x = l %}{% endfor %}",
        "{% set l = [] %}{% set t = 'ab' * 99999 %}{% for i in range(500) %}{% set _ = l.append(t) %}{% endfor %}",
        "{% set l = [1] %}{% for i in l %}{% set _ = l.append(i) %}{% endfor %}",
    ):
        with pytest.raises(WispError, match=r"nests lists|too long|too many"):
            ChatTemplate(source).render(USER)


def test_undefined_values_hold_nothing() -> None:
    template = ChatTemplate(
        "{% set ns = namespace(x=[1]) %}{% for i in range(500) %}{% set ns.x = [ns.x].a %}{% endfor %}x"
    )
    assert template.render(USER) == "x"
    for source, text in (
        ("{{ {}.a.b }}", "'dict object' has no attribute 'a'"),
        ("{{ [][0].b }}", "list object has no element 0"),
        ("{{ a.b }}", "'a' is undefined"),
    ):
        with pytest.raises(WispError, match=text):
            ChatTemplate(source).render(USER)


def test_long_sums_and_conditions_compile() -> None:
    """A chain of operators is no deeper than one of them, in the code that Python compiles."""
    for count in (2, 3, 57, 3000):
        for operator, text in (" + ", "x" * count), (" ~ ", "x" * count), (" or ", "x"), (" and ", "x"):
            assert ChatTemplate("{{ " + operator.join(["bos_token"] * count) + " }}", "x").render(USER) == text
    assert (
        ChatTemplate("{{ '{}{}{}'.format(*['a'] + ['b'] + ['c']) }}{{ 1 + 2 + 3 if 0 or '' or 4 }}").render([])
        == "abc6"
    )


def test_long_conversations_render() -> None:
    """Lists that grow message by message, as in Mistral's templates, and a long text in each of several steps."""
    grows = "{% set ns = namespace(l=[]) %}{% for m in messages %}{% set ns.l = ns.l + [m] %}{% endfor %}"
    template = ChatTemplate(grows + "{% for m in ns.l %}{{ m.content | trim | replace('b', 'c') }}{% endfor %}")
    assert len(template.render([*USER, *USER] * 1000)) == 4000
    assert len(template.render([{"role": "user", "content": "b" * 1_000_000}] * 3)) == 3_000_000


def test_the_budget_is_per_rendering() -> None:
    template = ChatTemplate("{% for i in range(400000) %}{% endfor %}done")
    assert [template.render(USER) for _ in range(4)] == ["done"] * 4


def test_a_long_chat_is_rendered() -> None:
    """Each message is a few parts of the prompt, which are accounted for once."""
    template = ChatTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}")
    messages = [{"role": "user", "content": "word " * 60}] * 4000
    assert len(template.render(messages)) > 1_200_000


# As in Gemma 4's template: the last message before this one that is no tool's, and the tools' messages after it.
SEARCHES = """{% for m in messages %}{% set found = namespace(role=none, yes=false) %}
{%- for j in range(loop.index0 - 1, -1, -1) %}{% if not found.yes %}{% if messages[j].role != 'tool' %}
{%- set found.role = messages[j].role %}{% set found.yes = true %}{% endif %}{% endif %}{% endfor %}
{%- set after = namespace(count=0, stopped=false) %}{% for k in range(loop.index0 + 1, messages|length) %}
{%- if after.stopped %}{% elif messages[k].role != 'tool' %}{% set after.stopped = true %}
{%- else %}{% set after.count = after.count + 1 %}{% endif %}{% endfor %}
{{- m.role }} {{ found.role }} {{ after.count }};{% endfor %}"""


def test_a_search_in_each_message_s_past_ends_where_it_has_found() -> None:
    roles = ["user", "assistant", "tool", "tool", "assistant"]
    template = ChatTemplate(SEARCHES)
    text = template.render([{"role": role} for role in roles])
    assert text == "user None 0;assistant user 2;tool assistant 1;tool assistant 0;assistant assistant 0;"
    assert template.render([{"role": role} for role in roles] * 1000).startswith(text[:30])


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("{% if not ns.x %}{{ i }}{% endif %}", "012"),
        ("{% if not i %}{{ i }}a{% endif %}", "0a"),
        ("{% if i %}{% else %}{{ i }}{% endif %}", "0"),
        ("{% if not ns.x %}{{ i }}{% set ns.x = i %}{% endif %}", "01"),
        ("{% if ns.x %}{% else %}{{ i }}{% set ns.x = i %}{% endif %}", "01"),
        ("{% if ns.x %}{% elif i %}{{ i }}{% endif %}", "12"),
        ("{% if ns.x %}{{ i }}{% elif i %}{{ i }}{% endif %}", "12"),
        ("{% if not ns.x %}{{ loop.index }}{% endif %}", "123"),
    ],
)
def test_loops_that_may_end_early_do_what_they_would(body: str, text: str) -> None:
    source = "{% set ns = namespace(x=0) %}{% for i in range(3) %}" + body + "{% endfor %}"
    assert ChatTemplate(source).render([]) == text


GROWS = (
    "{% set ns = namespace(out='', n=0) %}{% for m in messages %}{% set ns.out = ns.out ~ m.role ~ ': ' %}"
    "{% set ns.out = ns.out + m.content %}{% set ns.out = ns.out ~ '<sep>' %}{% endfor %}{{ ns.out }}"
)


def test_a_long_conversation_may_grow_piece_by_piece() -> None:
    """As in Reka Edge's template: each piece copies the prompt so far, 800 MB of them in all."""
    template = ChatTemplate(GROWS)
    text = template.render([{"role": "user", "content": "x" * 500}] * 1001)
    assert text == ("user: " + "x" * 500 + "<sep>") * 1001


@pytest.mark.parametrize(
    "keep",
    [
        "{% set ns.all = ns.all + [ns.out] %}",
        "{% set ns.all = [ns.all, ns.out] %}",
        "{% set ns.all = {'a': ns.all, 'b': ns.out ~ 1} %}",
    ],
)
def test_texts_that_a_template_keeps_count_as_memory(keep: str) -> None:
    source = (
        "{% set ns = namespace(out='ab' * 500000, all=[]) %}{% for i in range(110) %}"
        "{% set ns.out = ns.out ~ i %}" + keep + "{% endfor %}"
    )
    with pytest.raises(WispError, match=r"too many values|too long"):
        ChatTemplate(source).render(USER)


def test_no_more_is_given_back_than_was_taken() -> None:
    limits = Limits()
    limits.start()
    left = limits.left
    text = ""
    for piece in ("a" * 5000, "é" * 5000, "中" * 5000) * 20:
        text = limits.text([text, piece])
        assert limits.left <= left
    single = limits.text([text])
    assert single is text
    assert limits.left <= left - 2 * sys.getsizeof(text)


PAIRS = (
    "{% set ns = namespace(pairs=[], some=[]) %}{% for ids in range(20000)|batch(200) %}{% set ns.some = [] %}"
    "{% for id in ids %}{% set ns.some = ns.some + [(id * MODULUS, 1)] %}{% endfor %}"
    "{% set ns.pairs = ns.pairs + ns.some %}{% endfor %}"
)


@pytest.mark.parametrize("use", ["dict(ns.pairs)", "namespace(ns.pairs)"])
def test_keys_of_one_hash_take_no_longer_than_a_template_may(use: str) -> None:
    """Each is compared with all before it."""
    template = ChatTemplate(PAIRS.replace("MODULUS", str(sys.hash_info.modulus)) + f"{{{{ {use}|string|length }}}}")
    started = time.process_time()
    with suppress(WispError):  # unless this machine is quick
        template.render([])
    assert time.process_time() - started < 2
