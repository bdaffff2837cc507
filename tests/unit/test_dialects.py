"""Tools and thinking in each kind of template: its dialect, the parsing of its answers, and its grammar."""

import functools
import json
import random
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from app.answers.recognition import dialect_of
from app.constrain import effort, grammar_cache
from app.openai.answers import Message
from app.openai.formats import Format
from app.openai.tools import Tools
from py_engine.errors import WispError
from py_engine.text.chat_template import CHATML, ChatTemplate
from tests.support.call_kinds import (
    HI,
    KINDS,
    LOOP,
    MESSAGES,
    PARIS,
    ROME,
    WHOLE,
    calls_of,
    dialect,
    parsed,
    rules_of,
    template,
    tools_of,
)  # fmt: skip
from tests.support.grammar_matcher import run


@pytest.mark.parametrize("kind", KINDS)
def test_calls_are_parsed_while_they_stream(kind: str) -> None:
    _, answer, after_text = KINDS[kind]
    found = dialect(kind)
    assert found.syntax.name == kind
    assert found.template_tools()
    want = [("weather", PARIS), ("weather", ROME)][: answer.count("weather")]
    for seed in range(60):
        message = parsed(found.parser("", True), answer, seed)
        assert calls_of(message) == want, seed
        assert message["content"] is None
        if after_text:
            said = ">>>all\nLet me see: a < b.\n" if kind == "functionary" else "Let me see: a < b.\n"
            message = parsed(found.parser("", True), said + answer, seed)
            assert calls_of(message) == want
            assert message["content"] == "Let me see: a < b."


@pytest.mark.parametrize("kind", KINDS)
def test_tool_arguments_stream_in_pieces(kind: str) -> None:
    parser = dialect(kind).parser("", True)
    deltas = [delta for char in KINDS[kind][1] for delta in parser.push(char)]
    parts = [c for d in deltas for c in d.get("tool_calls", []) if c["index"] == 0]
    assert parts[0]["function"] == {"name": "weather", "arguments": ""}
    assert parts[0]["id"]
    assert all("id" not in part for part in parts[1:])
    assert len(parts) > {"lfm2": 5, "gemma": 1}.get(kind, len(PARIS) / 3)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_calls_are_read_alike_however_they_arrive(kind: str) -> None:
    """Parts of an answer that are repeated, lost or in another order, and heads that do not end."""
    parts = re.findall(r"<[^<>\s]+>|\[[A-Z_]+\]|\w+|\s+|.", KINDS[kind][1], re.DOTALL)
    for seed in range(40):
        rng = random.Random(seed)
        at, times = rng.randrange(len(parts)), rng.choice([0, 1, 40, 400])
        text = "".join([*parts[:at], *[rng.choice(parts) for _ in range(times)], *parts[max(0, at - 9) :], " end"])
        whole = Message()
        parser = dialect(kind).parser("", True)
        for delta in (*parser.push(text), *parser.finish()):
            whole.add(delta)
        pieces = parsed(dialect(kind).parser("", True), text, seed)
        assert pieces["content"] == whole.as_dict()["content"], seed
        assert calls_of(pieces) == calls_of(whole.as_dict()), seed


@pytest.mark.parametrize("kind", KINDS)
def test_text_without_calls_is_content(kind: str) -> None:
    for text in ("Just text.", "a < b > c {d} [e] to=", "", "{", "<", "  two  words  "):
        for seed in range(10):
            message = parsed(dialect(kind).parser("", True), text, seed)
            assert "tool_calls" not in message
            if kind not in MESSAGES:
                assert message["content"] == text
    cut = KINDS[kind][1][: KINDS[kind][1].index("Paris") + 2]  # the token limit ends the answer here
    message = parsed(dialect(kind).parser("", True), cut, 1)
    assert calls_of(message) == [("weather", WHOLE.get(kind, '{"city": "Pa'))]


def test_answers_are_held_to_the_tools() -> None:
    jobs, wanted = [], []
    for kind, (_, answer, after_text) in KINDS.items():
        free, must, one = dialect(kind), dialect(kind, tool_choice="required"), dialect(kind, parallel_tool_calls=False)
        named = dialect(kind, tool_choice={"type": "function", "function": {"name": "get.time"}})
        other_type = answer.replace('"n": 2', '"n": "2"', 1) if PARIS in answer else answer.replace("2", '"2"', 1)
        named_by = 2 if kind == "muse" else 1  # a header, too, has the name
        wrong = [answer.replace("weather", "cooking", named_by), other_type]
        text = ["Just text."] if after_text or kind == "llama" else []
        two = [answer] if answer.count("weather") > 1 else []
        final = "<|channel|>final<|message|>Just text."
        for found, good, bad in (
            (free, [answer, *text, *([final] if kind == "harmony" else [])], wrong),
            (must, [answer], [*wrong, "Just text.", final]),
            (one, text, [*wrong, *two]),
            (named, [], [answer, "Just text."]),
        ):
            rules = rules_of(found, None)
            jobs.append({"grammar": rules, "texts": good + bad})
            wanted.append((kind, good + bad, [True] * len(good) + [False] * len(bad)))
    for (kind, texts, want), result in zip(wanted, run(jobs), strict=True):
        assert result.get("texts") == want, (kind, texts, result)


@pytest.mark.parametrize("kind", ["hermes", "llama", "harmony"])
@pytest.mark.parametrize("form", [None, Format("regex", "[a-z]{3,9}")])
def test_rules_that_take_too_many_steps_are_an_error_of_the_request(
    kind: str, form: Format | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the steps end: in a schema, between two, or when the prompt is known."""
    monkeypatch.setattr(grammar_cache, "_recent", OrderedDict())  # other tests may have written these rules
    found = dialect(kind)
    codes = set()
    for most in range(0, 100_000, 19):
        monkeypatch.setattr(effort, "MAX_EFFORT", most)
        try:
            rules_of(found, form)
        except WispError as error:
            codes.add(error.code)
        else:
            break
    assert 500 < most < 99_000
    assert codes == {"unsupported_parameter"}


def test_a_response_format_with_tools() -> None:
    form = Format("regex", "[0-9]+")
    grammar = rules_of(dialect("hermes"), form)
    (result,) = run([{"grammar": grammar, "texts": ["12", KINDS["hermes"][1], "text"]}])
    assert result["texts"] == [True, True, False]
    assert dialect_of(ChatTemplate(LOOP), Tools()).rules(None) is None


@pytest.mark.parametrize("kind", KINDS)
def test_tools_that_may_not_be_called(kind: str) -> None:
    """The model sees them only where the token that begins a call can be banned."""
    none = functools.partial(dialect_of, template(kind), tools_of(tool_choice="none"))
    assert none().template_tools() is None
    trigger = none().syntax.first_token
    assert none().banned is None
    found = none({trigger})
    if kind == "functionary":  # ">>>" begins its texts, too
        assert (found.banned, found.template_tools()) == (None, None)
    else:
        assert found.banned == trigger
        assert found.template_tools()
    assert dialect_of(template(kind), tools_of(), {trigger}).banned is None


THINKS = LOOP + "{# <think></think> <tool_call> #}"


def test_thinking_is_split_off() -> None:
    found = dialect_of(ChatTemplate(THINKS), tools_of())
    call = KINDS["hermes"][1]
    for prompt, text, reasoning, content, calls in (
        ("", "<think>\nhm <b>\n</think>\n\nSo: 5", "hm <b>\n", "So: 5", 0),
        ("<think>\n", "hm\n</think>\n\nSo: 5", "hm\n", "So: 5", 0),
        ("", "So: 5 <think>", None, "So: 5 <think>", 0),
        ("", "\n<think>hm</think>" + call, "hm", None, 2),
        ("<think>", "cut short", "cut short", "", 0),
        ("", "<thi", None, "<thi", 0),
    ):
        for seed in range(30):
            message = parsed(found.parser(prompt, True), text, seed)
            assert message.get("reasoning_content") == reasoning, text
            assert message["content"] == content
            assert len(message.get("tool_calls", [])) == calls
    whole = parsed(found.parser("", False), "<think>hm</think>5", 1)
    assert whole["content"] == "<think>hm</think>5"


def test_gemma_s_thoughts_are_split_off() -> None:
    found = dialect_of(ChatTemplate(LOOP + "{{ '<|channel>thought\\n<channel|>' }}"), Tools())
    assert {"<|channel>", "<channel|>"} <= set(found.markers)
    for seed in range(20):
        message = parsed(found.parser("", True), "<|channel>thought\nhm\n<channel|>So: 5", seed)
        assert (message["reasoning_content"], message["content"]) == ("hm\n", "So: 5")
        answer = parsed(found.parser("<|channel>thought\n<channel|>", True), "So: 5", seed)
        assert (answer.get("reasoning_content"), answer["content"]) == (None, "So: 5")
    rules = rules_of(found, Format("regex", "[0-9]+"))
    texts = ["12", "<|channel>thought\nso\n<channel|>12", "<|channel>12"]
    assert run([{"grammar": rules, "texts": texts}])[0]["texts"] == [True, True, False]


def test_a_response_format_applies_after_thinking() -> None:
    found = dialect_of(ChatTemplate(THINKS), Tools())
    form = Format("regex", "[0-9]+")
    jobs = [
        {"grammar": rules_of(found, form), "texts": ["12", "<think>so, a </thin k></think>\n\n12", "hm", "<think>12"]},
        {"grammar": rules_of(found, form, "...<think>\n"), "texts": ["hm\n</think>\n\n12", "12", "hm</think>x"]},
        {"grammar": rules_of(found, form, "<think>\n\n</think>\n\n"), "texts": ["12", "<think></think>12"]},
        {"grammar": rules_of(dialect("harmony"), form), "texts": [
            "<|channel|>final<|message|>12", "12",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>12"]},
    ]  # fmt: skip
    results = [result["texts"] for result in run(jobs)]
    assert results == [[True, True, False, False], [True, False, False], [True, False], [True, False, True]]


def test_harmony() -> None:
    found = dialect("harmony")
    text = (
        "<|channel|>analysis<|message|>They want the weather.<|end|><|start|>assistant<|channel|>commentary<|message|>"
        f"I'll look.<|end|><|start|>assistant to=functions.weather<|channel|>commentary json<|message|>{PARIS}"
    )
    for seed in range(40):
        message = parsed(found.parser("", True), text, seed)
        assert message["reasoning_content"] == "They want the weather."
        assert message["content"] == "I'll look."
        assert calls_of(message) == [("weather", PARIS)]
        plain = parsed(found.parser("", True), "<|channel|>final<|message|>It is 5 < 6.", seed)
        assert plain["content"] == "It is 5 < 6."
        assert parsed(found.parser("", True), "No channels.", seed)["content"] == "No channels."
        for cut in ("assistant to=functions.weather<|channel|>comm", " to=functions.weather<|channel|>comm", "<|chan"):
            assert parsed(found.parser("", True), cut, seed)["content"] == ""


@pytest.mark.parametrize(("golden", "kind"), [("qwen3", "hermes"), ("llama-3.2", "llama")])
def test_real_templates(golden: str, kind: str) -> None:
    path = Path(__file__).parents[1] / "golden" / "chat" / f"{golden}.json"
    found = dialect_of(ChatTemplate(json.loads(path.read_text())["template"]), tools_of())
    assert found.syntax.name == kind
    assert found.template_tools()


def test_a_template_that_only_looks_like_another_s_gets_tools_as_text() -> None:
    minimax = dialect_of(ChatTemplate(LOOP + "{# ]<]minimax[>[ <tool_call> #}"), tools_of())  # a later version's
    assert minimax.template_tools() is None


def test_templates_without_tools_get_them_as_text() -> None:
    template = ChatTemplate(CHATML)
    found = dialect_of(template, tools_of())
    assert found.template_tools() is None
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}
    messages: list[dict[str, Any]] = [
        *HI,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "sunny"},
    ]
    text = template.render(found.messages(messages))
    assert text.startswith("<|im_start|>system\nYou may call functions")
    assert '"name": "weather"' in text
    assert '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>' in text
    assert "<|im_start|>user\n<tool_response>\nsunny\n</tool_response>" in text
    assert calls_of(parsed(found.parser("", True), KINDS["hermes"][1], 1)) == [("weather", PARIS), ("weather", ROME)]
    without = dialect_of(template, Tools())
    assert without.messages(HI) == HI
    system = [{"role": "system", "content": "Be brief."}, *HI]
    told = found.messages(system)
    assert len(told) == 2
    assert told[0]["content"].startswith("Be brief.\n\nYou may")
