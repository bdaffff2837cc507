"""Answers checked by the types of OpenAI's own client."""

from typing import Any

from app.openai.answers import Answer, Logprobs, Message, Usage
from py_engine.plan.sampling import TokenLogprob


def test_answers_have_the_shapes_of_openai() -> None:
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

    usage = Usage(10, 5, cached_tokens=4, prompt_ms=12.0, predicted_ms=50.0, ttft_ms=13.0)
    answer = Answer("wisp", chat=True)
    pieces = {5: b"He", 6: "\u00e9".encode()[:1]}
    message, logprobs = Message(), Logprobs(True, pieces.__getitem__)
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": ""}}
    deltas: list[dict[str, Any]] = [
        {"content": "He"},
        {"tool_calls": [call]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
    ]
    for delta in deltas:
        message.add(delta)
    logprobs.add([TokenLogprob(5, -0.5, [(5, -0.5), (6, -1.0)])])
    whole = ChatCompletion.model_validate(
        answer.whole([answer.choice(0, message, logprobs.whole(), "tool_calls")], usage), strict=True
    )
    choice = whole.choices[0]
    assert choice.message.content == "He"
    assert choice.message.tool_calls[0].function.arguments == "{}"  # type: ignore[index, union-attr]
    entry = choice.logprobs.content[0]  # type: ignore[index, union-attr]
    assert (entry.token, entry.bytes, entry.top_logprobs[1].bytes) == ("He", [72, 101], [195])
    assert whole.usage is not None
    assert (whole.usage.total_tokens, whole.usage.prompt_tokens_details.cached_tokens) == (15, 4)  # type: ignore[union-attr]
    opening = answer.opening(1)
    chunks = [opening, *map(answer.piece, deltas), answer.closing("length", usage), answer.usage(usage)]
    parsed = [ChatCompletionChunk.model_validate(c, strict=True) for c in chunks]
    assert {c.id for c in parsed} == {whole.id}
    assert parsed[0].choices[0].index == 1
    assert [c.choices[0].delta.content for c in parsed[:2]] == ["", "He"]
    assert parsed[2].choices[0].delta.tool_calls[0].function.name == "look"  # type: ignore[index, union-attr]
    assert [c.choices[0].finish_reason for c in parsed[:5]] == [None, None, None, None, "length"]
    assert parsed[5].choices == []
    assert chunks[4]["timings"]["prompt_n"] == 6  # type: ignore[index]
    assert chunks[4]["timings"]["predicted_per_second"] == 80.0  # type: ignore[index]
    assert Usage(10, 3, prompt_ms=100.0, first_tokens=3).timings()["predicted_per_second"] == 30.0


def test_completions_have_the_shapes_of_openai() -> None:
    from openai.types import Completion

    usage = Usage(10, 5)
    answer = Answer("wisp", chat=False)
    assert answer.opening() is None
    message, logprobs = Message(), Logprobs(False, {5: b"He", 6: b"y"}.__getitem__)
    message.add({"content": "Hey"})
    chunk = logprobs.add([TokenLogprob(5, -0.5, [(5, -0.5)])])
    assert (chunk["tokens"], chunk["text_offset"]) == (["He"], [0])
    assert logprobs.add([TokenLogprob(6, -1.0, [])])["text_offset"] == [2]
    whole = answer.whole([answer.choice(0, message, logprobs.whole(), "stop")], usage)
    assert whole["choices"][0]["logprobs"]["token_logprobs"] == [-0.5, -1.0]
    assert whole["choices"][0]["text"] == "Hey"
    for c in (whole, answer.closing("stop", usage), answer.usage(usage)):
        Completion.model_validate(c)
    assert answer.piece({"content": "x"})["choices"][0]["text"] == "x"


def test_parts_of_characters_in_a_completion_have_their_bytes() -> None:
    """As OpenAI writes them: the names of alternatives differ, and offsets count the characters of the text."""
    tokens = dict(enumerate([b"a", b"\xf0\x9f", b"\x98\x80", "\u00e9".encode(), b"\xc3"]))
    logprobs = Logprobs(False, tokens.__getitem__)
    entries = [TokenLogprob(token, -1.0, [(1, -1.0), (2, -2.0), (4, -3.0)]) for token in (0, 1, 2, 3)]
    first, rest = logprobs.add(entries[:2]), logprobs.add(entries[2:])
    whole = logprobs.whole()
    assert whole["tokens"] == ["a", r"bytes:\xf0\x9f", r"bytes:\x98\x80", "\u00e9"]
    assert whole["text_offset"] == first["text_offset"] + rest["text_offset"] == [0, 1, 1, 2]
    hidden = Logprobs(False, lambda token: [b"a", b"<end>", b"b"][token], lambda token: [b"a", b"", b"b"][token])
    shown = hidden.add([TokenLogprob(token, -1.0, []) for token in (0, 1, 2)])
    assert (shown["tokens"], shown["text_offset"]) == (["a", "<end>", "b"], [0, 1, 1])
    assert list(whole["top_logprobs"][0]) == [r"bytes:\xf0\x9f", r"bytes:\x98\x80", r"bytes:\xc3"]
