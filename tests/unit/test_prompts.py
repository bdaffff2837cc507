"""Prompts of chats: system messages, long conversations that are shortened by bisection, and thoughts that are over."""

from typing import Any

import pytest

from app.answers import prompts
from app.answers.media import RequestMedia
from app.answers.recognition import dialect_of
from app.answers.truncation import without_oldest_turns
from app.openai.requests import chat_request
from app.openai.tools import Tools
from py_engine.text.chat_template import ChatTemplate
from tests.support.mini_model import mini


def r1(end: str) -> str:
    """A template as DeepSeek R1's, with what follows "<|Assistant|>"."""
    return (
        "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ m['content'].split('</think>')[-1] }}{% else %}"
        "{{ m['content'] }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|Assistant|>" + end + "{% endif %}"
    )


@pytest.mark.parametrize("dropped", [False, True])
def test_a_system_message_that_the_template_rejects_is_asked(dropped: bool) -> None:
    """Also where the oldest turns are left out: it stays."""
    model = mini(60 if dropped else 4096)
    model.template = ChatTemplate(
        "{% if messages[0].role == 'system' %}{{ raise_exception('No system role') }}{% endif %}"
        "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
    )
    said = [("system", "Be kind."), ("user", "old " * 40), ("assistant", "yes"), ("user", "Hi")]
    messages = [{"role": role, "content": content} for role, content in said]
    request = chat_request({"messages": messages, "truncation": "auto", "max_tokens": 4})
    text = prompts.of_chat(RequestMedia(model), request, messages, None).text
    old = f"[user:Be kind.\n{'old ' * 40}][assistant:yes][user:Hi]"
    assert text == ("[user:Be kind.\nHi]" if dropped else old)


def chat_of(turns: int, answer: str) -> list[dict[str, Any]]:
    turn = [{"role": "user", "content": "Tell me a story."}, {"role": "assistant", "content": answer}]
    return [{"role": "system", "content": "Be brief."}, *turn * turns, {"role": "user", "content": "Go on."}]


@pytest.mark.parametrize(
    ("turns", "answer"),
    [
        (1, "Once."), (4, "Once upon a time."), (100, "Once upon a time."), (2500, "Once upon a time."), (2500, ""),
        (200, "internationalization " * 9), (300, " " * 400), (40, "\U0001f525" * 30), (9, "once " * 400),
    ],
)  # fmt: skip
def test_the_fewest_turns_are_dropped_without_rendering_a_long_chat(
    monkeypatch: pytest.MonkeyPatch, turns: int, answer: str
) -> None:
    model = mini(300)
    messages = chat_of(turns, answer)
    request = chat_request({"messages": messages, "truncation": "auto", "max_tokens": 20})
    render, rendered = model.template.render, []

    def counted(given: Any, *rest: Any, **variables: Any) -> str:
        rendered.append(len(given))
        return render(given, *rest, **variables)

    def tokens(turns: int) -> int:
        return len(model.tokenizer.encode_prompt(render(without_oldest_turns(messages, turns))))

    monkeypatch.setattr(model.template, "render", counted)
    prompt = prompts.of_chat(RequestMedia(model), request, messages, None)
    assert len(prompt.ids) <= 280
    assert max(rendered) < 200, "messages"
    assert len(rendered) < 16
    assert prompt.text.count("Be brief.") == 1
    assert prompt.text.rstrip().endswith("<|im_start|>assistant")
    fewest = next(n for n in range(turns + 1) if turns - n < 100 and (n == turns or tokens(n) <= 280))
    assert len(prompt.ids) == tokens(fewest)
    whole = 0 if turns > 300 else tokens(0)  # takes long
    if not fewest:
        assert prompt.truncated == 0
    elif turns < 5:
        assert prompt.truncated == whole - len(prompt.ids)
    elif whole:
        assert prompt.truncated == pytest.approx(whole - len(prompt.ids), rel=0.2)
    else:
        assert prompt.truncated > 10_000


@pytest.mark.parametrize(
    ("template", "end"),
    [
        (r1("<think>\n"), "<think>\n\n</think>\n\n"),
        (r1(""), "<|Assistant|>"),  # the model opens them, or never thinks
        (r1("{% if enable_thinking is false %}<think></think>{% endif %}"), "<|Assistant|><think></think>"),
        (r1("{% if not enable_thinking %}{# thinking #}</think>{% endif %}"), "<|Assistant|></think>"),
        (r1("").replace("</think>", "|"), "<|Assistant|>"),  # it marks no thoughts
    ],
    ids=["opens them", "leaves it to the model", "closes them", "has another switch", "marks none"],
)
def test_a_model_that_is_told_not_to_think_has_no_thoughts_to_go_on_with(template: str, end: str) -> None:
    model = mini()
    model.template = ChatTemplate(template)
    messages = [{"role": "user", "content": "Hi"}]

    def prompt(**more: Any) -> str:
        request = chat_request({"messages": messages, **more})
        return prompts.of_chat(RequestMedia(model), request, messages, None).text

    for off in ({"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}):
        assert prompt(**off).endswith(end)
        if "<think>" in end:
            parser = dialect_of(model.template, Tools()).parser(prompt(**off), True)
            assert parser.push("Paris") == [{"content": "Paris"}]
    assert prompt(reasoning_effort="high").endswith("<think>\n") == ("<think>\n" in template)
