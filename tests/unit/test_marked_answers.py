"""Answers whose thoughts, content and calls have markers of their own: Solar Open, Kimi K3, Muse Glimmer and others."""

import json
from typing import Any

import pytest

from app.answers.dialect import Dialect
from app.answers.recognition import dialect_of
from app.answers.thinking import with_reasoning
from app.openai.formats import Format
from app.openai.tools import Tools
from py_engine.text.chat_template import ChatTemplate
from tests.support.call_kinds import HI, KINDS, LOOP, PARIS, ROME, calls_of, dialect, parsed, rules_of, tools_of
from tests.support.grammar_matcher import run

NUMBER = Format("regex", "[0-9]+")
# kind -> (the prompt's end, a thought, content, the end of content or "")
PROMPTS = {
    "solar": "<|begin|>assistant",
    "kimi-k3": '<|open|>message role="assistant"<|sep|><|open|>think<|sep|>',
    "muse": "<|start|>assistant",
}
THOUGHT = {
    "solar": "<|think|>hm <b><|end|><|begin|>assistant",
    "kimi-k3": "hm <b><|close|>think<|sep|>",
    "muse": " to=self<|message|>hm <b><|eom|><|start|>assistant",
}
REPLY = {
    "solar": ("<|content|>", "<|end|>"),
    "kimi-k3": ("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
    "muse": (" to=user<|message|>", "<|eom|>"),
}
AGAIN = {"solar": "<|begin|>assistant", "kimi-k3": "", "muse": "<|start|>assistant"}  # between content and calls
THINKS = {"solar": " <|think|>", "kimi-k3": " <|open|>think<|sep|>", "muse": ""}  # in the template


def marked(kind: str, **more: Any) -> Dialect:
    template = ChatTemplate(LOOP + "{# " + KINDS[kind][0] + THINKS[kind] + " #}")
    return dialect_of(template, tools_of(**more))


@pytest.mark.parametrize("kind", PROMPTS)
def test_thoughts_content_and_calls_are_told_apart(kind: str) -> None:
    begin, end = REPLY[kind]
    said, called = f"{THOUGHT[kind]}{begin}Hi 1 < 2.{end}", f"{AGAIN[kind]}{KINDS[kind][1]}"
    for seed in range(40):
        message = parsed(marked(kind).parser(PROMPTS[kind], True), said, seed)
        assert (message["reasoning_content"], message["content"]) == ("hm <b>", "Hi 1 < 2.")
        message = parsed(marked(kind).parser(PROMPTS[kind], True), said + called, seed)
        assert (message["reasoning_content"], message["content"]) == ("hm <b>", "Hi 1 < 2.")
        assert calls_of(message) == [("weather", PARIS), ("weather", ROME)]
        message = parsed(marked(kind).parser(PROMPTS[kind], True), THOUGHT[kind] + KINDS[kind][1], seed)
        assert (message["content"], len(calls_of(message))) == (None, 2)
        without = dialect_of(marked(kind).template, Tools())
        message = parsed(without.parser(PROMPTS[kind], True), said, seed)
        assert (message["reasoning_content"], message["content"]) == ("hm <b>", "Hi 1 < 2.")


@pytest.mark.parametrize("kind", PROMPTS)
def test_markers_are_shown_to_the_parser(kind: str) -> None:
    """Also where no tool may be called."""
    wanted = {
        "solar": {"<|content|>", "<|end|>", "<|begin|>", "<|think|>"},
        "kimi-k3": {"<|open|>", "<|close|>", "<|sep|>"},
        "muse": {"<|start|>", "<|message|>", "<|eom|>"},
    }[kind]
    assert wanted - {"<|begin|>"} <= set(dialect_of(marked(kind).template, Tools()).markers)


@pytest.mark.parametrize("kind", PROMPTS)
def test_forms_and_calls_stand_between_markers(kind: str) -> None:
    begin, end = REPLY[kind]
    thought, call = THOUGHT[kind], KINDS[kind][1]
    closed = [f"{thought}{begin}12{end}"] if kind != "muse" else []
    form = [f"{thought}{begin}12", *closed, f"{thought}12", f"{thought}{begin}x", begin + "12"]
    must = [thought + call, f"{thought}{begin}Hi{end}{AGAIN[kind]}{call}", f"{thought}{begin}Hi{end}", thought + "Hi"]
    jobs = [
        {"grammar": rules_of(dialect_of(marked(kind).template, Tools()), NUMBER, PROMPTS[kind]), "texts": form},
        {"grammar": rules_of(marked(kind, tool_choice="required"), None, PROMPTS[kind]), "texts": must},
    ]
    held, called = (result["texts"] for result in run(jobs))
    assert held == [True] * (1 + len(closed)) + [False, False, kind != "kimi-k3"]  # whose prompt opens a thought
    assert called == [True, kind == "kimi-k3", False, False]  # whose calls always come after content


def test_a_prompt_may_open_the_content() -> None:
    """As Kimi K3's does without thoughts."""
    found, prompt = (
        marked("kimi-k3", tool_choice="required"),
        '<|open|>message role="assistant"<|sep|><|open|>response<|sep|>',
    )
    call, end = KINDS["kimi-k3"][1], REPLY["kimi-k3"][1]
    form = rules_of(dialect_of(found.template, Tools()), NUMBER, prompt)
    jobs = [
        {"grammar": rules_of(found, None, prompt), "texts": [f"Hi{end}{call}", end + call, call]},
        {"grammar": form, "texts": ["12", "12" + end, REPLY["kimi-k3"][0] + "12"]},
    ]
    assert [result["texts"] for result in run(jobs)] == [[True, True, False], [True, True, False]]
    for seed in range(20):
        message = parsed(found.parser(prompt, True), f"Hi{end}{call}", seed)
        assert (message.get("reasoning_content"), message["content"], len(calls_of(message))) == (None, "Hi", 2)


def test_solar_chooses_the_ids_of_calls() -> None:
    found, call = marked("solar", tool_choice="required"), KINDS["solar"][1]
    texts = [call, call.replace("a0b3c4d5e6", "a0b3c4d5e"), call.replace("a0b3c4d5e6", "A0b3c4d5e6")]
    assert run([{"grammar": rules_of(found, None), "texts": texts}])[0]["texts"] == [True, False, False]
    message = parsed(found.parser("", True), call, 1)
    assert [each["id"] for each in message["tool_calls"]] == ["a0b3c4d5e6", "0000000001"]


def test_solar_s_template_gets_thoughts_as_it_names_them() -> None:
    template = ChatTemplate(
        LOOP + "{% for message in messages %}{% if message.reasoning %}[{{ message.reasoning }}]{% endif %}{% endfor %}"
    )
    said: list[dict[str, Any]] = [*HI, {"role": "assistant", "content": "x", "reasoning_content": "hm"}]
    assert template.render(template.prepare(said)) == "Hix[hm]"


def test_thoughts_are_a_part_of_content_where_the_template_takes_them_so() -> None:
    """As Ministral 3's; the texts of other templates are as before."""
    blocks = (
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
        "{% if p.type == 'thinking' %}[THINK]{{ p.thinking }}[/THINK]{% elif p.type == 'text' %}{{ p.text }}"
        "{% endif %}{% endfor %}{% endif %}{% endfor %}"
    )
    template, other = ChatTemplate(blocks), ChatTemplate(LOOP + "{# 'thinking' #}")
    for content in ("x", [{"type": "text", "text": "x"}], None):
        said: list[dict[str, Any]] = [*HI, {"role": "assistant", "content": content, "reasoning_content": "hm"}]
        assert template.render(template.prepare(said)) == f"Hi[THINK]hm[/THINK]{'x' if content else ''}"
        assert other.render(other.prepare(said)) == f"Hi{'x' if content else ''}"


@pytest.mark.parametrize("effort", ["", "_fast", "_faster"])
def test_thoughts_of_k2_horizon_have_tags_by_the_effort(effort: str) -> None:
    template = ChatTemplate(LOOP + "{# <ifm|tool_calls> <ifm|think> #}")
    call, prompt = KINDS["k2-horizon"][1], f"<|ifm|im_start|>assistant\n<ifm|think{effort}>\n"
    found, end = dialect_of(template, tools_of(tool_choice="required")), f"</ifm|think{effort}>"
    texts = [f"hm{end}{call}", f"hm</ifm|think_fast>{call}", call]
    (result,) = run([{"grammar": rules_of(found, None, prompt), "texts": texts}])
    assert result["texts"] == [True, effort == "_fast", False]
    for seed in range(20):
        message = parsed(found.parser(prompt, True), texts[0], seed)
        assert (message["reasoning_content"], message["content"], len(calls_of(message))) == ("hm", None, 2)


def test_marks_of_hunyuan_s_tags_are_formatted_by_the_template() -> None:
    for mark in (":opensource", ""):
        head = "{% set HYTK = '" + mark + "' %}{% set sep = '<tool_sep{}>'.format(HYTK) %}"
        template = ChatTemplate(head + LOOP + "{{ '<think{}></think{}>'.format(HYTK, HYTK) }}")
        found = dialect_of(template, tools_of())
        assert found.syntax.name == ("hunyuan-open" if mark else "hunyuan")
        assert {f"<think{mark}>", f"</think{mark}>", f"<tool_calls{mark}>"} <= set(found.markers)
        for seed in range(20):
            message = parsed(
                found.parser(f"<think{mark}>", True), f"hm</think{mark}>{KINDS[found.syntax.name][1]}", seed
            )
            assert (message["reasoning_content"], message["content"], len(calls_of(message))) == ("hm", None, 2)


def test_a_call_of_gigachat_3_is_a_message() -> None:
    found, call = dialect("gigachat-3"), KINDS["gigachat-3"][1]
    assert {"<|message_sep|>\n\n", "<|role_sep|>\n"} <= set(found.markers)
    for seed in range(20):
        message = parsed(found.parser("", True), f"Let me see.{call}<|message_sep|>\n\n", seed)
        assert (message["content"], calls_of(message)) == ("Let me see.", [("weather", PARIS)])
        assert parsed(found.parser("", True), "Hi.<|message_sep|>\n\n", seed)["content"] == "Hi."


def test_muse_s_markup_is_a_call_in_a_message_to_a_tool_only() -> None:
    markup = KINDS["muse"][1].split("<|message|>", 1)[1].split("<|eom|>")[0]
    for seed in range(20):
        for kind, to in (("content", "user"), ("reasoning_content", "self")):
            message = parsed(dialect("muse").parser("", True), f" to={to}<|message|>So: {markup}", seed)
            assert (message[kind], calls_of(message)) == (f"So: {markup}", [])
        both = f" to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>{markup}"
        whole = parsed(dialect("muse").parser("", False), both, seed)
        assert (whole.get("reasoning_content"), whole["content"]) == (None, f"hm{markup}")
        for cut in ("", " to=wea", " to=weather<|mess", "<|start|>assistant to=w"):
            assert not parsed(dialect("muse").parser("", True), cut, seed, cut=True)["content"]
        for plain in ("assistants help.", "assistant", "to=x"):
            assert parsed(dialect("muse").parser("", True), plain, seed)["content"] == plain
        twice = parsed(dialect("muse").parser("", True), " to=user<|message|>Hi.<|eom|><|start|>assistant", seed)
        assert twice["content"] == "Hi."


def test_text_in_a_message_to_a_tool_comes_before_the_next_message() -> None:
    call = KINDS["muse"][1]
    junk, answer = " to=f<|message|>junk <ate<|eom|><|start|>assistant", " to=user<|message|>Answer"
    for seed in range(20):
        message = parsed(dialect("muse").parser("", True), junk + answer, seed)
        assert (message["content"], calls_of(message)) == ("junk <ateAnswer", [])
        message = parsed(dialect("muse").parser("", True), junk + call, seed)
        assert len(calls_of(message)) == len(calls_of(parsed(dialect("muse").parser("", True), call, seed)))


def test_values_of_muse_are_json_beside_strings() -> None:
    ((_, arguments), _) = calls_of(parsed(dialect("muse").parser("", True), KINDS["muse"][1], 1))
    assert json.loads(arguments) == json.loads(PARIS)


def test_reasoning_is_asked_for_as_the_template_names_it() -> None:
    def known(source: str, **variables: Any) -> dict[str, Any]:
        names = {"thinking", "thinking_mode", "reasoning_strength", "thinking_effort"}
        given = with_reasoning(source, variables)
        return {name: given[name] for name in given if name in source or name not in names}

    high = {"reasoning_effort": "high", "enable_thinking": True}
    assert known("thinking", **high) == {**high, "thinking": True}
    assert known("thinking enable_thinking", **high) == high
    assert known("thinking", enable_thinking=False, thinking=True) == {"enable_thinking": False, "thinking": True}
    assert known("thinking_mode", enable_thinking=False)["thinking_mode"] == "disabled"
    assert known("no thoughts") == {}


def test_thoughts_of_apriel_stand_between_sentences() -> None:
    begin, end = "Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"
    template = ChatTemplate(LOOP + "{# <tool_calls>[ " + end + " #}")
    found, call = dialect_of(template, tools_of()), KINDS["apriel"][1]
    for seed in range(20):
        for prompt, answer in ((f"<|begin_assistant|>\n{begin}", "hm\n"), ("<|assistant|>\n", f"{begin}hm\n")):
            message = parsed(found.parser(prompt, True), f"{answer}{end}\nHi.\n[END FINAL RESPONSE]", seed)
            assert (message["reasoning_content"], (message["content"] or "").strip()) == ("hm\n", "Hi.")
            message = parsed(found.parser(prompt, True), f"{answer}{end}\n{call}", seed)
            assert (message["content"], len(calls_of(message))) == (None, 2)
        without = dialect_of(template, Tools())
        assert parsed(without.parser("", True), "Hi.[END FINAL RESPONSE]", seed)["content"] == "Hi."
