"""The tokens that a text begins with: compared with a search through all tokens, and the steps that it takes."""

from random import Random

import pytest

from py_engine.text.tokenizer import load_tokenizer
from py_engine.text.tokenizers.prefix_index import PrefixIndex
from py_engine.text.tokenizers.vocab import BYTE, NORMAL

ALPHABETS = ("ab", "a b", "aé", "a中\U0001d4b3", "abcdefgh")


def drawn(random: Random, alphabet: str) -> list[str]:
    """Random tokens; many are prefixes of others."""
    tokens = ["".join(random.choices(alphabet, k=random.randint(1, 12))) for _ in range(random.choice((1, 9, 200)))]
    tokens += [token[: random.randint(1, len(token))] for token in tokens]
    tokens += [alphabet[0] * length for length in range(1, random.choice((2, 40)))]
    return list(dict.fromkeys(tokens))


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_the_tokens_at_a_place(alphabet: str) -> None:
    random = Random(alphabet)
    for _ in range(20):
        tokens = drawn(random, alphabet)
        index, of_bytes = PrefixIndex(tokens), PrefixIndex(token.encode() for token in tokens)
        text = "".join(random.choice([*alphabet, "?", *tokens]) for _ in range(30))
        for at in range(len(text)):
            found, chain = index.longest(text, at), []
            while found >= 0:
                chain.append(index.tokens[found])
                found = index.shorter[found]
            want = sorted((token for token in tokens if text.startswith(token, at)), key=len, reverse=True)
            assert chain == want
            longest = of_bytes.longest(text[at:].encode(), 0)
            assert [of_bytes.tokens[longest].decode()] * (longest >= 0) == want[:1]


class Counted(str):
    """A text that counts the comparisons with tokens."""

    compared = 0

    def startswith(self, *given: object) -> bool:
        self.compared += 1
        return str.startswith(self, *given)  # type: ignore[arg-type]


@pytest.mark.parametrize("fits", [0, 1, 2, 500, 999])
def test_the_longest_of_1000_nested_tokens_takes_50_steps(fits: int) -> None:
    index = PrefixIndex("a" + "b" * length for length in range(1000))
    text = Counted("x" + "a" * (fits > 0) + "b" * (fits - 1) + "c")
    found = index.longest(text, 1)
    assert [index.tokens[found]] == [text[1 : 1 + fits]] if fits else found == -1
    assert text.compared <= 50


def plamo_metadata(scores: dict[str, float]) -> dict[str, object]:
    texts = [*scores, *(f"<0x{byte:02X}>" for byte in range(256))]
    return {
        "tokenizer.ggml.model": "plamo2", "tokenizer.ggml.tokens": texts, "tokenizer.ggml.merges": [],
        "tokenizer.ggml.token_type": [NORMAL] * len(scores) + [BYTE] * 256,
        "tokenizer.ggml.scores": [*scores.values(), *[0.0] * 256],
    }  # fmt: skip


def best_score(scores: dict[str, float], text: str) -> float:
    """The largest sum of the scores of a split."""
    best = [0.0] * (len(text) + 1)
    for at in reversed(range(len(text))):
        ends = [(at + len(token), score) for token, score in scores.items() if text.startswith(token, at)]
        best[at] = max([best[end] + score for end, score in ends] + [best[at + 1] - 1000.0])
    return best[0]


def test_the_best_split_where_many_tokens_are_prefixes_of_each_other() -> None:
    """The longer of equal ones wins."""
    random = Random(1)
    for kind in range(12):
        rounded, size = kind % 2, random.choice((2, 20, 60))
        tokens = ["a" * length for length in range(1, size)] + ["b", "ab", "ba", "a" * 20 + "b"]
        scores = {t: -float(random.randint(1, 3)) if rounded else -len(t) * random.uniform(1, 1.1) for t in tokens}
        model = load_tokenizer(plamo_metadata(scores))
        for _ in range(10):
            text = "".join(random.choice(("a" * 30, "a", "b", "é", "a" * 70)) for _ in range(6))
            pieces = [model.text_of(token) for token in model.encode(text) if token < len(scores)]
            lost = sum(c == "é" for c in text)
            assert sum(map(len, pieces)) == len(text) - lost
            want = best_score(scores, text)
            assert sum(scores[piece] for piece in pieces) - 1000.0 * lost == pytest.approx(want, abs=0.005 * len(text))
    model = load_tokenizer(plamo_metadata({"a" * length: -float(length) for length in range(1, 40)}))
    assert [len(model.text_of(token)) for token in model.encode("a" * 50)] == [39, 11], "the longer of equal ones"
