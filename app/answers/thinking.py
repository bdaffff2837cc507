"""How models mark what they think before they answer, and how that is switched off."""

import re
from typing import Any

from app.answers.reasoning_levels import with_effort

Tags = tuple[str, str]
HORIZON = ("<ifm|think>", "</ifm|think>")  # K2 Horizon; the prompt's end may have another pair, by the effort
SOLAR = ("<|think|>", "<|end|>")
MINIMAX_3 = ("<mm:think>", "</mm:think>")  # an answer without a thought begins with the end tag

TAGS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<seed:think>", "</seed:think>"),
    MINIMAX_3,
    ("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    ("<|channel>thought\n", "<channel|>"),  # Gemma 4
    ("<think:opensource>", "</think:opensource>"),  # Hunyuan 3
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),  # Kimi K3
    ("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),  # Apriel
    HORIZON,
    SOLAR,
)


def tags_of(written: str) -> Tags | None:
    """The tags of a template, given its text and what it renders; None: its model does not mark thoughts."""
    return next((tags for tags in TAGS if tags[0] in written or (tags[1] in written and tags != SOLAR)), None)


def tags_at(tags: Tags | None, prompt: str) -> Tags | None:
    """The tags of the answer to a prompt, of a template's. K2 Horizon's depend on the effort."""
    found = re.search(r"<(ifm\|think\w+)>\s*\Z", prompt) if tags == HORIZON else None
    return (f"<{found[1]}>", f"</{found[1]}>") if found else tags


def without_thoughts(written: str, prompt: str) -> str:
    """A prompt whose thoughts are over, for a template that opens them whatever it is told (DeepSeek's R1, QwQ).

    Where the model opens them, the prompt stays: other models, which never think, have such templates, too.
    """
    tags, end = tags_at(tags_of(written), prompt), prompt.rstrip()
    return f"{end}\n\n{tags[1]}\n\n" if tags and end.endswith(tags[0].rstrip()) else prompt


def with_reasoning(source: str, variables: dict[str, Any]) -> dict[str, Any]:
    """A request's variables, and those of its reasoning under the names and with the values that the template knows."""
    thinks, out = variables.get("enable_thinking"), with_effort(source, variables)
    if isinstance(thinks, bool) and "enable_thinking" not in source:  # DeepSeek V3.1, Granite 3.3, Kimi K3; MiniMax M3
        out = {"thinking": thinks, "thinking_mode": "enabled" if thinks else "disabled", **out}
    return out
