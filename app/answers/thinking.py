"""How models mark what they think before they answer, and how that is switched off."""

TAGS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    ("<|channel>thought\n", "<channel|>"),  # Gemma 4
)


def tags_of(source: str) -> tuple[str, str] | None:
    """The tags of a template's text; None: its model does not mark thoughts."""
    return next((tags for tags in TAGS if tags[0] in source or tags[1] in source), None)


def without_thoughts(source: str, prompt: str) -> str:
    """A prompt whose thoughts are over, for a template that opens them whatever it is told (DeepSeek's R1, QwQ).

    Where the model opens them, the prompt stays: other models, which never think, have such templates, too.
    """
    tags, end = tags_of(source), prompt.rstrip()
    return f"{end}\n\n{tags[1]}\n\n" if tags and end.endswith(tags[0].rstrip()) else prompt
