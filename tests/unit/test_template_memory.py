"""What hostile chat templates make is foreseen: their largest values are refused before they are made."""

import tracemalloc

import pytest

from py_engine.errors import WispError
from py_engine.text.chat_template import ChatTemplate

MOST = 110 << 20  # bytes: those that the values of a rendering may have, and what it holds beside them
QUOTES = "{% set q = '\"' * 1000000 %}{% set q = '\U0001f600' ~ q ~ q ~ q %}"
TAGS = "{% set t = '\U000e0001' * 1000000 %}{% set t = t ~ t ~ t ~ t %}"
GROWN = "{% set ns = namespace(x=2) %}{% for i in range(60000) %}{% set ns.x = ns.x OP %}{% endfor %}"
LARGE = "{% set n = 2 ** 2000 * 2 ** 2000 %}"
HOSTILE = [
    # numbers in formats, after zeros
    "{{ '%.000000099999999d' % 1 }}", "{{ '%.000000099999999d'|format(1) }}", "{{ '{:>000000099999999}'.format(1) }}",
    "{{ '{:>" + "\u0660" * 6 + "99999999}'.format(1) }}",
    # all ends of lines
    "{{ ('\\ra' * 20000)|indent(9999) }}", "{{ ('\\x85' * 20000)|indent(9999, blank=true) }}",
    # lists of long numbers
    LARGE + "{{ [n] * 90000 }}", LARGE + "{{ ([n] * 60000)|tojson }}", LARGE + "{{ '%s' % [[n] * 90000] }}",
    LARGE + "{{ ([n] * 90000)|join }}", LARGE + "{% set x = range(n, n + 300000)|list %}",
    GROWN.replace("OP", "+ ns.x") + "{{ ('{:b}' * 1900).format(*[ns.x] * 1900) }}",
    GROWN.replace("OP", "- -ns.x") + "{{ ('{:b}' * 1900).format(*[ns.x] * 1900) }}",
    # pieces of texts and members of ranges are new values
    "{% set t = 'é中' * 190000 %}" + "".join(f"{{% set x{i} = t|list %}}" for i in range(9)),
    "{% set t = 'ab cd ' * 120000 %}" + "".join(f"{{% set x{i} = t.split() %}}" for i in range(9)),
    QUOTES + "".join(f"{{% set x{i} = (q ~ 'xa').partition('x') %}}" for i in range(20)),
    "{% set d = dict(range(200000)|batch(2)|list) %}" + "".join(f"{{% set x{i} = d|items|list %}}" for i in range(20)),
    # an escaped text escapes what is added to it
    QUOTES + "{{ ('a'|e) + q }}", QUOTES + "{{ q + ('a'|e) }}", QUOTES + "{{ ('{0}{0}'|e).format(q) }}",
    QUOTES + "{{ ('%s%s'|e) % (q, q) }}", QUOTES + "{{ ('%s%s'|e)|format(q, q) }}",
    QUOTES + "{{ ('a'|e).join([q, q]) }}",
    QUOTES + "{{ ('aaa'|e).replace('a', q) }}", "{{ (('<' * 100000)|e).replace('<', 'a' * 2000) }}",
    # quoted by Python, a character becomes ten
    TAGS + "{{ [t] }}", TAGS + "{{ [t]|string }}", TAGS + "{{ [t]|trim }}", TAGS + "{{ '%r' % t }}",
    TAGS + "{{ [[t]]|join }}", TAGS + "{{ '{!r}'.format(t) }}", TAGS + "{{ [t] ~ '' }}",
    # letters that become three in upper case
    "{% set t = 'ΐ' * 900000 %}{% set t = t ~ t ~ t ~ t %}{{ (t ~ t)|upper }}",
    "{% set t = 'ΐ' * 900000 %}{% set t = t ~ t ~ t ~ t %}{{ (t ~ t).title() }}",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("source", HOSTILE, ids=range(len(HOSTILE)))
def test_values_are_refused_before_they_are_made(source: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(WispError) as error:
            ChatTemplate(source).render([])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert error.value.code == "bad_chat_template"
    assert peak < MOST


def test_errors_are_short() -> None:
    for source in ("{{ 1|" + "a" * 90_000 + " }}", "{{ " + "a" * 90_000 + ".b }}"):
        with pytest.raises(WispError) as error:
            ChatTemplate(source).render([])
        assert len(error.value.message) < 1200
