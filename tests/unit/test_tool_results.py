"""Results of tools on their way into a template."""

from typing import Any

from app.answers.calls.tool_results import in_answers


def test_a_result_has_the_name_of_the_call_that_it_answers() -> None:
    """Whatever the order; without a known id, that of the call at its place."""
    calls = [{"id": name, "function": {"name": f"f{name}"}} for name in "ab"]
    asked: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": calls}
    for ids, names in ((("b", "a"), ["fb", "fa"]), (("x", "y"), ["fa", "fb"])):
        results = [{"role": "tool", "tool_call_id": id, "content": f"of {id}"} for id in ids]
        (turn,) = in_answers([asked, *results])
        assert [(one["name"], one["response"]) for one in turn["tool_responses"]] == [
            (name, f"of {id}") for id, name in zip(ids, names, strict=True)
        ]


def test_a_text_before_calls_stays_before_them() -> None:
    """As an answer of its own. The turn of the results before it ends there, and the last one stays open."""
    calls = [{"id": "a", "function": {"name": "f"}}]
    texts: list[Any] = [
        "Let me look.",
        [{"type": "text", "text": "Once more."}],
        "",
        None,
        [{"type": "text", "text": " "}],
    ]
    asked = [{"role": "assistant", "content": text, "tool_calls": calls, "reasoning_content": "hm"} for text in texts]
    result = {"role": "tool", "tool_call_id": "a", "content": "5"}
    said = [{"role": "user", "content": "?"}, *(message for answer in asked for message in (answer, result))]
    found = in_answers(said)
    assert [(m["role"], m["content"], "tool_responses" in m) for m in found] == [
        ("user", "?", False),
        ("assistant", "Let me look.", False),
        ("assistant", " ", True),
        ("assistant", texts[1], False),
        *[("assistant", "", True)] * 4,
    ]
    assert [m.get("reasoning_content") for m in found if "tool_responses" in m] == ["hm"] * 5


def test_a_text_after_results_is_of_their_turn() -> None:
    """Its thought is left out: templates would write it before the calls."""
    asked = {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "function": {"name": "f"}}]}
    result = {"role": "tool", "tool_call_id": "a", "content": "5"}
    (turn,) = in_answers([asked, result, {"role": "assistant", "content": "It is 5.", "reasoning_content": "so"}])
    assert turn["content"] == "It is 5."
    assert "reasoning_content" not in turn


def test_an_answer_of_blanks_after_results_is_no_text() -> None:
    asked = {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "function": {"name": "f"}}]}
    result = {"role": "tool", "tool_call_id": "a", "content": "5"}
    for blank in ("", " ", [{"type": "text", "text": " "}]):
        turn, after = in_answers([asked, result, {"role": "assistant", "content": blank}])
        assert turn["content"] == ""
        assert after["content"] == blank
