"""Answers with tool calls that come in pieces: nothing is lost, copied again for each piece, or made what it is not."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from app.answers.harmony import HarmonyParser
from app.answers.parsing import Parser
from app.openai.answers import Message
from tests.support.call_kinds import KINDS, calls_of, dialect, parsed

LONG = 1500


def held(value: Any) -> Iterator[str]:
    """The texts that a parser holds."""
    if isinstance(value, str):
        yield value
    elif hasattr(value, "__dict__") and type(value).__module__.startswith("app.answers"):
        for part in vars(value).values():
            yield from held(part)


def after(parser: Parser, begin: str, rest: str) -> int:
    """The length of the longest text that the parser holds after the rest came one character at a time."""
    parser.push(begin)
    for char in rest:
        parser.push(char)
    return max(map(len, held(parser)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("filler", ["x", "\n", "[", '"'])
def test_no_long_text_is_copied_for_each_piece(kind: str, filler: str) -> None:
    """Texts that grow are held in pieces: else an answer of a megabyte takes minutes."""
    answer = KINDS[kind][1]
    places = [0, answer.index("weather"), answer.index("Paris"), answer.index("2"), len(answer) - 3, len(answer)]
    for place in places:
        assert after(dialect(kind).parser("", True), answer[:place], filler * LONG) < 1000, answer[:place]


def test_ends_within_a_text_do_not_end_it() -> None:
    begin, ends = '<|tool_call>call:f{a:<|"|>', "<tool_call|>" * 500
    assert after(dialect("gemma").parser("", True), begin, ends) < 1000
    message = parsed(dialect("gemma").parser("", True), f'{begin}{ends}<|"|>}}<tool_call|>', 1)
    assert calls_of(message) == [("f", json.dumps({"a": ends}))]


@pytest.mark.parametrize("kind", ["qwen-xml", "seed", "glm", "glm-4.7", "lfm2", "gemma"])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "[1, NaN]"])
def test_numbers_that_json_lacks_do_not_pass_for_json(kind: str, number: str) -> None:
    """Only Python reads NaN in JSON; a client in another language would find the arguments damaged."""
    answer = KINDS[kind][1].replace("2", number, 1)
    (_, arguments), *_ = calls_of(parsed(dialect(kind).parser("", True), answer, 1))
    if kind == "gemma":  # its arguments are converted as a whole, or not at all
        assert arguments == answer[answer.index("{") : answer.index("<tool_call|>")]
    else:
        assert json.loads(arguments, parse_constant=pytest.fail)["n"] == number
    whole = Message()
    whole.add({"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f", "arguments": f'{{"n": {number}}}'}}]})
    assert not whole.calls_whole(cut=False)


@pytest.mark.parametrize(
    ("written", "value"),
    [("'a\\\nb'", "ab"), ('"a\\\nb"', "ab"), ('"it\\\'s"', "it's"), ('"a\tb\nc"', "a\tb\nc"), ("'\"\\\"\\''", '""\'')],
)
def test_strings_of_python_have_pythons_values(written: str, value: str) -> None:
    answer = f"<|tool_call_start|>[weather(city={written})]<|tool_call_end|>"
    for seed in range(20):
        ((_, arguments),) = calls_of(parsed(dialect("lfm2").parser("", True), answer, seed))
        assert json.loads(arguments) == {"city": value}


def harmony() -> HarmonyParser:
    return HarmonyParser(lambda: "1", True)


def test_a_call_whose_header_an_end_token_cuts_is_no_text() -> None:
    for seed in range(20):
        assert not parsed(harmony(), " to=functions.get", seed)["content"]


@pytest.mark.parametrize(
    "answer",
    ["assistants help.", "assistant for you", "<|channel|>" + "x" * 600, "to=functions.f" + " y" * 400],
    ids=["plural", "word", "channel", "recipient"],
)
def test_a_text_that_only_begins_like_a_header_is_content(answer: str) -> None:
    for seed in range(20):
        assert parsed(harmony(), answer, seed)["content"] == answer


@pytest.mark.parametrize("answer", ["", "assistant", "<|channel|>final", "assistant<|channel|>analysis", " <|start|>"])
def test_a_header_that_is_cut_off_is_no_content(answer: str) -> None:
    for seed in range(20):
        assert not parsed(harmony(), answer, seed, cut=True)["content"]
        assert parsed(harmony(), answer, seed)["content"] == ("assistant" if answer == "assistant" else "")


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_is_cut_in_its_head_is_no_content(kind: str) -> None:
    """Up to the head's end nobody knows the call; markup would be no text for a reader."""
    _, answer, after_text = KINDS[kind]
    syntax = dialect(kind).syntax
    trigger = "to=functions." if kind == "harmony" else syntax.trigger
    said = {"functionary": ">>>all\nHi.", "harmony": ""}.get(kind, "Hi. ") if after_text else ""
    begins = [m.start() for m in re.finditer(re.escape(trigger), answer)]
    for begin in begins:
        arguments = min(
            at for mark in ("{", "(", "city") if (at := answer.find(mark, answer.index("weather", begin))) > 0
        )
        for end in range(begin, arguments):
            text, held = said + answer[:end], answer[begin:end]
            for seed in range(3):
                message = parsed(dialect(kind).parser("", True), text, seed, cut=True)
                content = (message["content"] or "").strip()
                assert content.removeprefix("Hi.").strip() in ("", held if len(held) < len(trigger) else ""), text
                assert not any(map(str.isalpha, content.removeprefix("Hi."))), text
                assert content.startswith("Hi." if after_text and said else ""), text
                assert len(calls_of(message)) in (begins.index(begin), begins.index(begin) + 1), text


@pytest.mark.parametrize("head", ["[weather", "[wea", "weather", "wea"])
def test_a_python_call_without_its_bracket_that_is_cut_is_no_content(head: str) -> None:
    found = dialect("lfm2")
    for seed in range(3):
        assert not parsed(found.parser("", True), found.syntax.trigger + head, seed, cut=True)["content"]
        (call,) = calls_of(parsed(found.parser("", True), f"{found.syntax.trigger}weather(", seed, cut=True))
        assert call[0] == "weather"
    other = found.syntax.trigger + "cooking"  # none of the request's tools
    assert parsed(found.parser("", True), other, 1, cut=True)["content"] == other


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"harmony"}))
def test_text_that_is_no_beginning_of_a_call_stays_when_the_answer_is_cut(kind: str) -> None:
    for text in ("a <", "a [", "{", "Just text", *(["Use <tool_ and <"] if kind != "llama" else [])):
        assert parsed(dialect(kind).parser("", True), text, 1, cut=True)["content"] == text
    trigger = dialect(kind).syntax.trigger
    other = trigger + '{"name": "cooking", "arguments":'  # none of the request's tools
    assert parsed(dialect(kind).parser("", True), other, 1, cut=True)["content"] == other
    assert parsed(dialect(kind).parser("", True), trigger, 1)["content"] == trigger  # the model's own end


@pytest.mark.parametrize("kind", KINDS)
def test_blanks_within_a_call_take_no_longer(kind: str) -> None:
    """The parts of a head may have blanks between them; where several parts are empty, all ways to share them count."""
    answer = KINDS[kind][1]
    began = time.process_time()
    for place in range(min(len(answer), 40)):
        parser = dialect(kind).parser("", True)
        for char in answer[:place] + " " * 290:
            parser.push(char)
    assert time.process_time() - began < 4
