"""Compare every pre-tokenizer that llama.cpp knows with Wisp's, on random texts and a vocabulary that shows each cut.

    python -m tests.golden.make.pretokenizers --seed 1 --count 300 [NAME ...]
    python -m tests.golden.make pretokenizers                       # tests/golden/vocab/pretokenizers.json

A vocabulary has a token for every two of a few characters, longer ones, and tokens that no merges lead to. NAME: a
value of tokenizer.ggml.pre, or a kind of tokenizer in KINDS. The golden has llama.cpp's ids of a few texts; names with
the same ids share them.
"""

import argparse
import itertools
import json
import random
import tempfile
from pathlib import Path

from py_engine.text.tokenizer import load_tokenizer
from tests.golden.make.gguf_file import GgufFile, Layout
from tests.golden.make.llama_cpp import Vocabulary
from tests.golden.make.llama_cpp_api import Library, library
from tests.golden.make.tokenizers import random_text
from tests.golden.make.toy_vocabularies import BYTE, CONTROL, NORMAL, byte_characters
from tools.gguf_writer import Value

GOLDEN = Path(__file__).parents[1] / "vocab" / "pretokenizers.json"
LLAMA_CPP_KNOWS = """
a.x-4.0 afmoe bailingmoe bailingmoe2 bloom chameleon chatglm-bpe codeshell cohere2moe command-r dbrx
deepseek-coder deepseek-llm deepseek-r1-qwen deepseek-v3 default exaone exaone-moe exaone4 f2llmv2 falcon
falcon-h1 falcon3 gemma4 gigachat glm4 glm5 gpt-2 gpt-4o gpt3-finnish granite-docling granite-embed-multi-311m
granite-embed-multi-97m grok-2 hunyuan hunyuan-dense hy_v4 jais jais-2 jina-de jina-es jina-v1-en jina-v2-code
jina-v2-de jina-v2-es jina-v5-nano joyai-llm kanana2 kimi-k2 kormo laguna lfm2 llada-moe llama-bpe llama-v3
llama3 llama4 megrez mellum mellum2 midm-2.0 minerva-7b minicpm5 minimax-m2 modern-bert mpt olmo phi-2 pixtral
poro-chat qwen2 qwen35 refact roberta-bpe sarvam-moe seed-coder smaug-bpe smollm solar-open spark2_5 stablelm2
starcoder superbpe talkie tekken tiny_aya trillion ufakzeka viking youtu
"""
NAMES = LLAMA_CPP_KNOWS.split()
KINDS = ("whitespace", "hybriddna")  # values of tokenizer.ggml.model
RAW = ("gemma4", "granite-embed-multi-311m", "sarvam-moe", "whitespace")  # tokens are text, not bytes
SEED = 1
WRITTEN = 9  # texts in the golden
VISIBLE = "'0123456789abcXYZsStTlLrReE.,!?-_/()é你ñ"
SPACES = " \n\t\r"
DNA = ("<dna>", "</dna>", "ACGTACGT", "aaacgt", "AAAAAAACG", "N", "<oov>")


def vocabulary(name: str, seed: int) -> dict[str, Value]:
    """The metadata of a tokenizer."""
    rng, characters = random.Random(seed), byte_characters()
    tokens, common = list(characters), [characters[byte] for byte in (VISIBLE + SPACES).encode()]
    if name in RAW:
        tokens = [f"<0x{byte:02X}>" for byte in range(256)] + sorted({*map(chr, range(33, 127)), *VISIBLE})
        common = list(VISIBLE)
        if name != "whitespace":
            tokens.append("▁")
            common.append("▁")
    common = list(dict.fromkeys(common))
    bytes_there = 256 if name in RAW else 0
    pairs = list(itertools.product(common, common))
    rng.shuffle(pairs)
    pairs += [(a + b, rng.choice(common)) for a, b in rng.sample(pairs, 400)]
    unmerged = ["".join(rng.choices(common, k=rng.randint(3, 4))) for _ in range(200)]
    tokens += [token for token in dict.fromkeys([a + b for a, b in pairs] + unmerged) if token not in {*tokens}]
    if name == "hybriddna":
        sequences = map("".join, itertools.product("ACGT", repeat=6))
        tokens += ["<dna>", "</dna>", "<oov>", *(sequence + "\ue000" for sequence in sequences)]
    end = len(tokens)
    return {
        "tokenizer.ggml.model": name if name in KINDS else "gpt2",
        "tokenizer.ggml.pre": "qwen2" if name == "hybriddna" else name,
        "tokenizer.ggml.tokens": [*tokens, "<|bos|>", "<|eos|>"],
        "tokenizer.ggml.token_type": [*[BYTE] * bytes_there, *[NORMAL] * (end - bytes_there), CONTROL, CONTROL],
        "tokenizer.ggml.merges": [f"{a} {b}" for a, b in pairs],
        "tokenizer.ggml.bos_token_id": end,
        "tokenizer.ggml.eos_token_id": end + 1,
    }


def load(name: str, seed: int, folder: Path, library: Library) -> Vocabulary:
    """llama.cpp's tokenizer."""
    file, path = GgufFile("llama", SEED), folder / f"{name}.gguf"
    file.metadata = list(vocabulary(name, seed).items())
    file.add("llama.vocab_size", len(vocabulary(name, seed)["tokenizer.ggml.tokens"]))  # type: ignore[arg-type]
    file.constant("token_embd.weight", [[0.0, 0.0]])
    file.write(path, "F32", Layout(), library)
    return Vocabulary(library, path)


def random_texts(name: str, seed: int, count: int, oracle: Vocabulary) -> list[str]:
    """Texts of all sorts. Every second one has only characters of the vocabulary's tokens."""
    rng, out = random.Random(seed), list[str]()
    for i in range(count):
        text = random_text(rng, oracle)
        if name == "hybriddna":
            text = "".join(rng.choice([text[:5], *DNA]) for _ in range(rng.randint(1, 9)))
        elif i % 2:
            parts = [*VISIBLE, *SPACES * 3, "  ", "'s", "12", "345", "camelCase", "a1"]
            text = "".join(rng.choice(parts) for _ in range(rng.randint(1, 25)))
        elif i % 8 == 0:
            text = oracle.piece(rng.randrange(oracle.n_vocab)).decode(errors="ignore")
        out.append(text)
    return out


def differing(name: str, seed: int, count: int, folder: Path) -> list[str]:
    """The texts that llama.cpp and Wisp encode or decode differently."""
    oracle, wisp = load(name, seed, folder, library()), load_tokenizer(dict(vocabulary(name, seed)))
    out = []
    for text in random_texts(name, seed, count, oracle):
        ids = oracle.encode(text, add_special=True, parse_special=True)
        decoded = oracle.decode(ids).decode(errors="replace")
        if wisp.encode(text, True, True) != ids or wisp.decode(ids) != decoded:
            out.append(text)
    return out


def make(out: Path, library: Library) -> None:
    """Write the golden."""
    groups: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in (*NAMES, *KINDS):
            oracle = load(name, SEED, Path(folder), library)
            cases = [[text, oracle.encode(text)] for text in random_texts(name, SEED, WRITTEN, oracle)]
            groups.setdefault(json.dumps(cases), []).append(name)
    lines = [f'{{"names": {json.dumps(names)}, "cases": {cases}}}' for cases, names in groups.items()]
    out.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make.pretokenizers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=300, help="of texts for each name")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.names or (*NAMES, *KINDS):
            texts = differing(name, arguments.seed, arguments.count, Path(folder))
            print(f"{name}: {len(texts)} of {arguments.count} differ", *map(repr, texts[:3]), flush=True)


if __name__ == "__main__":
    main()
