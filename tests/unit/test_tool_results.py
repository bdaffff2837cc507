"""Results of tools on their way into a template."""

from typing import Any

from app.answers.tool_results import in_answers


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
