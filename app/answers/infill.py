"""Prompts that have the model fill a gap in a text (fill in the middle, FIM), in llama.cpp's layout.

    repository's name, files, BOS, PREFIX, the text before the gap, SUFFIX, the text after it, MIDDLE

The FIM tokens (PREFIX, SUFFIX, MIDDLE) are control tokens of the vocabulary; models of code have them.
Source: tools/server/README.md of llama.cpp, and the prompts of its server.
"""

from app.models.loaded import Loaded
from app.openai.fields import unsupported
from app.openai.messages import Infill

_FIM_TOKENS = ("fim_pre", "fim_suf", "fim_mid")
_BETWEEN = "\n\n--- snippet ---\n\n"  # before a file, where the vocabulary has no fim_sep
_REPOSITORY, _FILE = "myproject\n", "filename\n"  # llama.cpp's names for what a request does not name


def encode(model: Loaded, infill: Infill, most: int | None) -> tuple[list[int], int]:
    """Token ids of a FIM prompt, and the number of tokens left out.

    Above `most` tokens, drops files first, then the text farthest from the gap.
    """
    tokenizer = model.tokenizer
    tokens = {name: tokenizer.vocab.special(name) for name in _FIM_TOKENS}
    if lacking := next((name for name, token in tokens.items() if token is None), None):
        text = f"{model.id} cannot fill gaps: its vocabulary has no FIM token {lacking}. Use a model of code."
        raise unsupported(text, infill.param)
    before, after, middle = (token for token in tokens.values() if token is not None)
    begin = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    prefix, typed, suffix = map(tokenizer.encode, (infill.prefix, infill.prompt, infill.suffix))
    files = _files(model, infill)
    whole = len(files) + len(prefix) + len(suffix)
    if most is not None:
        left = max(0, most - len(begin) - len(tokens) - len(typed))
        prefix, suffix = _shortened(prefix, suffix, left)
        left -= len(prefix) + len(suffix)
        files = files[max(0, len(files) - left) :]
    ids = [*files, *begin, before, *prefix, *typed, after, *suffix, middle]
    return ids, whole - len(files) - len(prefix) - len(suffix)


def _shortened(prefix: list[int], suffix: list[int], most: int) -> tuple[list[int], list[int]]:
    """The end of what is before the gap and the beginning of what is after it, 3 to 1 where both are too long."""
    n_suffix = min(len(suffix), max(most // 4, most - len(prefix)))
    n_prefix = min(len(prefix), most - n_suffix)
    return prefix[len(prefix) - n_prefix :], suffix[:n_suffix]


def _files(model: Loaded, infill: Infill) -> list[int]:
    """The ids of other files, and of the names of the repository and of the file with the gap."""
    if infill.files is None:
        return []
    vocab, text = model.tokenizer.vocab, model.tokenizer.encode
    repository, file = vocab.special("fim_rep"), vocab.special("fim_sep")
    ids = [repository, *text(_REPOSITORY)] if repository is not None else []
    for name, content in infill.files:
        ids += [file, *text(f"{name}\n")] if file is not None else text(_BETWEEN)
        ids += text(content)
    return ids + ([file, *text(_FILE)] if file is not None else [])
