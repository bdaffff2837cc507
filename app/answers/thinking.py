"""How models mark what they think before they answer, and how that is switched off."""

import re
from typing import Any

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
# An effort that Kimi K3 (low, high, max) and Hunyuan 3 (no_think, low, high) reject -> the next one that they take.
# That of an answer without thoughts comes as "low", which Kimi K3 then does not read.
_LOW_OR_HIGH = {"medium": "high"}


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


def with_names_of(source: str, variables: dict[str, Any]) -> dict[str, Any]:
    """A request's variables, and those of its reasoning under the names and with the values that the template knows."""
    effort, thinks, out = variables.get("reasoning_effort"), variables.get("enable_thinking"), dict(variables)
    if isinstance(thinks, bool) and "enable_thinking" not in source:  # DeepSeek V3.1, Granite 3.3, Kimi K3; MiniMax M3
        out = {"thinking": thinks, "thinking_mode": "enabled" if thinks else "disabled", **out}
    level = _LOW_OR_HIGH.get(effort, effort) if isinstance(effort, str) else None
    if level is not None:
        out = {"reasoning_strength": effort, "thinking_effort": level, **out}  # Muse Glimmer, Kimi K3
    if "'no_think'" in source and (isinstance(thinks, bool) or level):  # Hunyuan 3, which does not think unless told
        out["reasoning_effort"] = "no_think" if thinks is False else level or "high"
    return out
