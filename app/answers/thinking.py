"""How models mark what they think before they answer, and how that is switched off."""

TAGS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<seed:think>", "</seed:think>"),
)


def tags_of(source: str) -> tuple[str, str] | None:
    """The tags of a template's text; None: its model does not mark thoughts."""
    return next((tags for tags in TAGS if tags[0] in source or tags[1] in source), None)


def without_thoughts(source: str, prompt: str) -> str:
    """A prompt whose thoughts are over, for a template that opens them whatever it is told (DeepSeek's R1, QwQ).

    A template without any switch leaves it to the model to open them: it gets empty ones, too, as Qwen 3's does.
    """
    tags = tags_of(source)
    if tags is None:
        return prompt
    opening, closing = tags
    end = prompt.rstrip()
    if end.endswith(opening):
        return f"{end}\n\n{closing}\n\n"
    has_switch = "thinking" in source or tags != TAGS[0]
    return prompt if has_switch or end.endswith(closing) else f"{prompt}{opening}\n\n{closing}\n\n"
