"""Stop strings are never split across chunks; other text is sent without delay."""

import random

from app.answers.stream import AnswerStream, StopStrings
from py_engine.files.gguf_header import parse
from py_engine.text.tokenizer import Tokenizer, load_tokenizer
from tests.support.gguf_bytes import MINI


def run(chunks: list[str], stops: list[str]) -> tuple[list[str], str | None]:
    s = StopStrings(stops)
    out = [s.push(c) for c in chunks]
    return [*out, s.finish()], s.stopped


def test_holds_back_only_what_may_become_a_stop() -> None:
    assert run(["Hello", " END", " of"], ["END OF"]) == (["Hello", " ", "END of", ""], None)
    assert run(["a", "b", "c", "d"], ["bce"]) == (["a", "", "", "bcd", ""], None)
    assert run(["ab"], []) == (["ab", ""], None)
    assert run(["xab"], ["abc"]) == (["x", "ab"], None)


def test_stops_at_the_first_stop() -> None:
    assert run(["one\nUs", "er: two", " three"], ["User:", "two"]) == (["one\n", "", "", ""], "User:")
    assert run(["abcd"], ["cd", "bc"]) == (["a", ""], "bc")
    assert run(["aab"], ["ab", "abx"]) == (["a", ""], "ab")
    assert run(["aa", "ab"], ["aab"]) == (["", "a", ""], "aab")


def test_random_streams_equal_a_search_in_the_whole_text() -> None:
    rng = random.Random(1)
    for _ in range(3000):
        text = "".join(rng.choice("aab") for _ in range(rng.randint(0, 30)))
        stops = ["".join(rng.choice("ab") for _ in range(rng.randint(1, 5))) for _ in range(rng.randint(0, 4))]
        cuts = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randint(0, 8)))
        chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        out, stopped = run(chunks, stops)
        hits = [at for s in stops if (at := earliest(chunks, text, s)) is not None]
        assert (stopped is None) == (not hits)
        if stopped is None:
            assert "".join(out) == text
        else:
            sent = "".join(out)
            assert text.startswith(sent)
            assert not any(s in sent for s in stops)
            assert text.startswith(sent + stopped)


def earliest(chunks: list[str], text: str, stop: str) -> int | None:
    at = text.find(stop)
    return None if at < 0 else at


def mini() -> Tokenizer:
    data = MINI.read_bytes()
    return load_tokenizer(parse(data, len(data)).metadata)


def test_answer_ends_at_an_end_token_and_counts_it() -> None:
    t = mini()
    ids = t.encode("Hello there<|im_end|>ignored", parse_special=True)
    end = ids.index(2)
    answer = AnswerStream(t.stream(), [], t.eog_ids)
    out = "".join(answer.push(ids[i : i + 2]) for i in range(0, len(ids), 2)) + answer.finish()
    assert (out, answer.ended, answer.tokens) == ("Hello there", True, end + 1)


def test_answer_ends_at_a_stop_string_across_batches() -> None:
    t = mini()
    ids = t.encode("One two three four")
    answer = AnswerStream(t.stream(), ["three"], t.eog_ids)
    out = "".join(answer.push([i]) for i in ids) + answer.finish()
    assert (out, answer.ended) == ("One two ", True)
    assert answer.tokens < len(ids)


def test_a_character_that_never_ends_is_flushed() -> None:
    t = mini()
    ids = t.encode("🦩")
    assert len(ids) > 1
    answer = AnswerStream(t.stream(), ["stop"], t.eog_ids)
    assert [answer.push(ids[:1]), answer.finish()] == ["", "\ufffd"]
