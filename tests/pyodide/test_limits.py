"""Hostile templates and JSON in real Pyodide, where Python's stack is small and an overflow ends the engine."""

import os
from typing import Any

import pytest
from pytest_pyodide import run_in_pyodide

CASES = int(os.environ.get("WISP_FUZZ_CASES", "30"))
SEED = int(os.environ.get("WISP_FUZZ_SEED", "1"))
CHUNK = 500  # cases of one call, which may take two minutes


@run_in_pyodide
def fuzz(selenium_node: Any, name: str, seeds: list[int]) -> float:
    """Run the cases of one fuzzer; the seconds of the slowest."""
    import importlib
    import sys
    from random import Random
    from time import perf_counter

    sys.path.append("/repo")
    fuzzer = importlib.import_module(f"tests.fuzz.{name}")
    slowest = 0.0
    for seed in seeds:
        case = fuzzer.case(Random(seed))
        began = perf_counter()
        fuzzer.run(case)
        slowest = max(slowest, perf_counter() - began)
    return slowest


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", ["constraints", "json_texts", "requests", "templates"])
def test_fuzzers_end_with_clean_errors(selenium_node: Any, name: str) -> None:
    firsts = range(SEED, SEED + CASES, CHUNK)
    slowest = max(fuzz(selenium_node, name, list(range(at, min(at + CHUNK, SEED + CASES)))) for at in firsts)
    print(name, round(slowest, 2), "s")


@run_in_pyodide
def test_chains_of_values_and_deep_trees_are_freed_without_recursion(selenium_node: Any) -> None:
    """Python frees a value that holds another one by recursion in C."""
    import gc
    import sys
    from contextlib import suppress

    from py_engine.errors import WispError
    from py_engine.text.chat_template import ChatTemplate

    sys.path.append("/repo")
    from tests.fuzz.templates import AROUND, BLOCKS, HOLDERS

    start = (
        "{% set ns = namespace(x='a') %}{% set x = 'a' %}{% macro m(a) %}{{ caller() if caller else a }}{% endmacro %}"
    )
    sources = [
        *(f"{{% for i in range(4000) %}}{{% set ns.x = {h.format('ns.x')} %}}{{% endfor %}}" for h in HOLDERS),
        "{% set x = x|select %}" * 1500,
        *("{{ " + b * n + "x" + a * n + " }}" for b, a in AROUND for n in (28, 2000)),
        *("{{ " + b * 2000 + "x" + a * 2000 + "(" for b, a in AROUND),
        *(b * n + "x" + a * n for b, a in BLOCKS for n in (18, 500)),
        "{% for i in range(4000) %}{% for j in [ns.x] %}{% set ns.x = loop %}{% endfor %}{% endfor %}",
        "{% macro n(b) %}{% set ns.x = caller %}{% endmacro %}"
        "{% for i in range(4000) %}{% set b = ns.x %}{% call n(1) %}{{ b }}{% endcall %}{% endfor %}",
        "".join(f"{{% macro m{i + 1}() %}}{{{{ m{i} }}}}{{% endmacro %}}" for i in range(1000)),
        "{% block b %}{{ self.b() }}{% endblock %}",
        "{% macro r(n) %}{{ r(n - 1) if n }}{% endmacro %}{{ r(48) }}",
        "{{ 'abc'|map(" + "'map'," * 2000 + "'list')|list }}",
    ]
    for source in sources:
        with suppress(WispError):
            ChatTemplate(start + source).render([])
        gc.collect()


@run_in_pyodide
def test_the_deepest_that_is_allowed_has_stack_to_spare(selenium_node: Any) -> None:
    """JSON, templates, values and macros at their limits, called from 300 frames of Python."""
    import json

    from py_engine import json_input
    from py_engine.errors import WispError
    from py_engine.text.chat_template import ChatTemplate

    def below(frames: int) -> None:
        if frames:
            return below(frames - 1)
        text = '[{"a":' * (json_input.MAX_DEPTH // 2) + "1" + "}]" * (json_input.MAX_DEPTH // 2)
        value = json_input.parse(text)
        assert json.loads(json.dumps(value, indent=1)) == value
        template = ChatTemplate(
            "{{ x }}{{ x|tojson(indent=1) }}{{ x == x }}"
            "{% macro m(n) %}{{ m(n - 1) if n }}{{ n }}{% endmacro %}{{ m(40) }}"
        )
        assert "40" in template.render([{"role": "user", "content": ""}], x=value)
        deep = "{{ " + "(" * 25 + "1 + " * 20 + "1" + ")" * 25 + " }}" + "{% if 1 %}" * 20 + "x" + "{% endif %}" * 20
        assert ChatTemplate(deep).render([]) == "21x"
        for source in (
            "{{ " + "(" * 20_000,
            "{{ " + "[" * 20_000,
            "{% if 1 %}" * 9_000,
            "{{ " + "not " * 20_000 + "1 }}",
        ):
            try:
                ChatTemplate(source)
            except WispError:
                continue
            raise AssertionError(source[:20])
        return None

    below(300)


@run_in_pyodide
def test_a_long_conversation_may_grow_piece_by_piece(selenium_node: Any) -> None:
    """What a template no longer holds is given back: its references are counted as in CPython."""
    from py_engine.text.chat_template import ChatTemplate

    source = (
        "{% set ns = namespace(out='') %}{% for m in messages %}{% set ns.out = ns.out ~ m.content %}"
        "{% set ns.out = ns.out + '<sep>' %}{% endfor %}{{ ns.out }}"
    )
    text = ChatTemplate(source).render([{"role": "user", "content": "x" * 300}] * 1001)
    assert text == ("x" * 300 + "<sep>") * 1001
