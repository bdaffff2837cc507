"""Search for tokenizers that Wisp runs differently from llama.cpp: toy vocabularies with random changes.

    python -m tests.golden.make.tokenizer_campaign --seed 1 --count 300

A seed decides the kind, which flags and special ids the metadata has, the types and scores of some tokens, and known
texts (<|im_end|>, </s>, markers) among the tokens. Ids with and without special tokens, decoded texts, what is added,
and which tokens end an answer are compared. A line names the changes of each tokenizer that differs.
"""

import argparse
import random
from collections.abc import Callable
from pathlib import Path

from py_engine.text.tokenizer import Tokenizer, load_tokenizer
from py_engine.text.tokenizers.vocab import (
    BYTE,
    CONTROL,
    END_TEXTS,
    FIM_TEXTS,
    HARMONY_TEXTS,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
)
from tests.golden.make.campaign import NOT_COMPARED, in_process
from tests.golden.make.gguf_file import GgufFile, Layout
from tests.golden.make.llama_cpp import Vocabulary
from tests.golden.make.llama_cpp_api import library
from tests.golden.make.presets import PRESETS
from tests.golden.make.pretokenizers import NAMES
from tests.golden.make.random_models import build
from tests.golden.make.tokenizers import random_text
from tools.gguf_writer import Value

# presets with each kind of tokenizer
KINDS = ("llama", "qwen3", "bert", "t5", "plamo2", "plamo3", "rwkv6", "gemma4", "nomic-bert")
FLAGS = [
    *("add_bos_token", "add_eos_token", "add_sep_token", "add_space_prefix", "remove_extra_whitespaces"),
    *("escape_whitespaces", "normalizer.lowercase", "normalizer.strip_accents"),
]
IDS = ("bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "cls", "mask", *FIM_TEXTS)
TYPES = (NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE)
# Texts of one role: of those that mark a place to fill in, llama.cpp takes any, by the order of a hash table.
ROLES = [*((text,) for text in (*END_TEXTS, *HARMONY_TEXTS)), *(tuple(texts.split()) for texts in FIM_TEXTS.values())]
TEXTS, MOST_CHANGES = 40, 4
KEY = "tokenizer.ggml."


def metadata_of(seed: int) -> tuple[dict[str, Value], list[str]]:
    """A tokenizer's metadata, and what was changed."""
    rng = random.Random(seed)
    preset = rng.choice([name for name in KINDS if name in PRESETS])
    file, _ = build(preset, 1, kinds={})
    found = {key: value for key, value in file.metadata if key.startswith("tokenizer.")}
    done = [preset]
    changes = [_flag, _id, _without_id, _types, _scores, _texts, _pre]
    for change in rng.choices(changes, k=rng.randint(1, MOST_CHANGES)):
        done.append(change(found, rng))
    return found, done


def _flag(found: dict[str, Value], rng: random.Random) -> str:
    name, value = rng.choice(FLAGS), rng.random() < 0.5
    found[KEY + name] = value
    return f"{name} = {value}"


def _id(found: dict[str, Value], rng: random.Random) -> str:
    name, size = rng.choice(IDS), len(found[KEY + "tokens"])  # type: ignore[arg-type]
    found[f"{KEY}{name}_token_id"] = value = rng.choice([rng.randrange(size), rng.randrange(size), size + 7])
    return f"{name}_token_id = {value}"


def _without_id(found: dict[str, Value], rng: random.Random) -> str:
    there = [key for key in found if key.endswith("_token_id")]
    if not there:
        return "nothing"
    del found[key := rng.choice(there)]
    return f"without {key}"


def _types(found: dict[str, Value], rng: random.Random) -> str:
    types: list[int] = [*found[KEY + "token_type"]]  # type: ignore[misc]
    chosen = {rng.randrange(len(types)): rng.choice(TYPES) for _ in range(rng.randint(1, 6))}
    for at, kind in chosen.items():
        if kind != BYTE or types[at] == BYTE:  # other texts name no byte
            types[at] = kind
    found[KEY + "token_type"] = types
    return f"types {chosen}"


def _scores(found: dict[str, Value], rng: random.Random) -> str:
    if KEY + "scores" not in found:
        return "nothing"
    found[KEY + "scores"] = [float(n) + rng.choice([0, 0, 1, -900]) for n in found[KEY + "scores"]]  # type: ignore[union-attr]
    return "other scores"


def _texts(found: dict[str, Value], rng: random.Random) -> str:
    tokens: list[str] = [*found[KEY + "tokens"]]  # type: ignore[misc]
    roles = [role for role in rng.sample(ROLES, 4) if not {*role} & {*tokens}]
    # not those that merges make: without them, llama.cpp leaves characters of a text out
    places = [i for i, token in enumerate(tokens) if token.startswith("[UNUSED")]
    chosen = dict(zip(rng.sample(places, min(len(roles), len(places))), map(rng.choice, roles), strict=False))
    for at, text in chosen.items():
        tokens[at] = text
    found[KEY + "tokens"] = tokens
    return f"texts {chosen}"


def _pre(found: dict[str, Value], rng: random.Random) -> str:
    found[KEY + "pre"] = name = rng.choice(NAMES)
    return f"pre {name}"


def difference(seed: int, folder: Path) -> str:
    """What Wisp's tokenizer does differently, if anything."""
    found, _ = metadata_of(seed)
    file, path = GgufFile("llama", 1), folder / "vocabulary.gguf"
    file.metadata = list(found.items())
    file.add("llama.vocab_size", len(found[KEY + "tokens"]))  # type: ignore[arg-type]
    file.constant("token_embd.weight", [[0.0, 0.0]])
    file.write(path, "F32", Layout(), library())
    try:
        oracle = Vocabulary(library(), path)
    except RuntimeError:
        return NOT_COMPARED
    wisp = load_tokenizer(dict(found))
    return _properties(oracle, wisp) or _texts_of(oracle, wisp, random.Random(seed))


def _properties(oracle: Vocabulary, wisp: Tokenizer) -> str:
    ends = {i for i in range(oracle.n_vocab) if oracle.api.llama_vocab_is_eog(oracle.vocab, i)}
    if ends != wisp.eog_ids:
        return f"ends {sorted(ends)}, Wisp {sorted(wisp.eog_ids)}"
    control = {i for i in range(oracle.n_vocab) if oracle.api.llama_vocab_is_control(oracle.vocab, i)}
    own = {i for i in range(oracle.n_vocab) if wisp.vocab.types[i] == CONTROL}
    return "" if control == own else f"control tokens {sorted(control ^ own)}"


def _texts_of(oracle: Vocabulary, wisp: Tokenizer, rng: random.Random) -> str:
    for _ in range(TEXTS):
        text = random_text(rng, oracle)
        if rng.random() < 0.5:
            pieces = [oracle.piece(rng.randrange(oracle.n_vocab)).decode(errors="ignore") for _ in range(3)]
            text = " ".join([text[:9], *pieces])
        for special in ((False, False), (True, False), (False, True), (True, True)):
            want = oracle.encode(text, add_special=special[0], parse_special=special[1])
            if (ids := wisp.encode(text, *special)) != want:
                return f"encodes {text!r} {special} as {ids}, llama.cpp {want}"
            if (got := wisp.decode(want)) != (decoded := oracle.decode(want).decode(errors="replace")):
                return f"decodes {want} as {got!r}, llama.cpp {decoded!r}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make.tokenizer_campaign", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first tokenizer")
    parser.add_argument("--count", type=int, default=100, help="of tokenizers")
    arguments = parser.parse_args()
    ran = faults = 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        work: Callable[[Path], str] = lambda folder, seed=seed: difference(seed, folder)  # type: ignore[misc]  # noqa: E731
        found = in_process(work)
        ran += found != NOT_COMPARED
        if found not in ("", NOT_COMPARED):
            faults += 1
            print(f"seed {seed}, {'; '.join(metadata_of(seed)[1])}: {found}", flush=True)
    print(f"{ran} tokenizers compared, {faults} different", flush=True)


if __name__ == "__main__":
    main()
