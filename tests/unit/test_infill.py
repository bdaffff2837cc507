"""Prompts that fill gaps: their layout beside llama.cpp's server, and the endpoints that take them."""

import json
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.answers import infill
from app.compatible import llama_server as requests
from app.models.loaded import Loaded
from app.models.loading import vocabulary
from app.openai.messages import Infill
from py_engine.errors import WispError
from py_engine.files.gguf_header import parse
from tests.support.gguf_bytes import BOOL, key, with_numbers
from tests.support.llama_server import llama_server
from tests.support.worker_page import HELLO, Page
from tools.paths import STATIC

MINI = STATIC / "models" / "wisp-mini-q4_0.gguf"
KEY = "sk-of-the-test"
PRE, SUF, MID, REP, SEP = 4001, 4002, 4003, 4004, 4005  # any tokens that no text here has
MARKS = {"fim_pre": PRE, "fim_suf": SUF, "fim_mid": MID}
FILES = {"fim_rep": REP, "fim_sep": SEP}
GAP = {"input_prefix": "Once upon a ", "input_suffix": ", there was", "prompt": "ti"}
EXTRA = [{"filename": "a.txt", "text": "The end."}, {"text": "Hello"}]


def keys(marks: dict[str, int]) -> dict[str, int]:
    return {f"tokenizer.ggml.{name}_token_id": token for name, token in marks.items()}


def model(marks: dict[str, int], **metadata: Any) -> Loaded:
    """The vocabulary of Wisp Mini with marks."""
    data = MINI.read_bytes()
    header = parse(data, len(data))
    return vocabulary("mini", replace(header, metadata=header.metadata | keys(marks) | metadata), {})


def ids_of(loaded: Loaded, most: int | None = None, **body: Any) -> list[int]:
    (gap,) = requests.infill(GAP | body).request.prompts  # type: ignore[union-attr]
    assert isinstance(gap, Infill)
    return infill.encode(loaded, gap, most)[0]


def test_the_text_around_the_gap() -> None:
    loaded = model(MARKS)
    text = loaded.tokenizer.encode
    gap = [PRE, *text("Once upon a "), *text("ti"), SUF, *text(", there was"), MID]
    assert ids_of(loaded) == gap
    bos = model(MARKS, **{"tokenizer.ggml.add_bos_token": True})
    with_bos = [bos.tokenizer.bos_id, *gap]
    assert ids_of(bos) == with_bos
    files = [*text("\n\n--- snippet ---\n\n"), *text("The end."), *text("\n\n--- snippet ---\n\n"), *text("Hello")]
    assert ids_of(loaded, input_extra=EXTRA) == [*files, *gap]
    assert ids_of(bos, input_extra=EXTRA) == [*files, *with_bos]
    assert ids_of(loaded, input_prefix="<|im_end|>")[1] != loaded.tokenizer.vocab.ids["<|im_end|>"]  # it is text


def test_the_files_of_a_repository() -> None:
    loaded = model(MARKS | FILES)
    text = loaded.tokenizer.encode
    gap = ids_of(model(MARKS))
    own = [SEP, *text("filename\n")]
    assert ids_of(loaded) == [REP, *text("myproject\n"), *own, *gap]
    files = [SEP, *text("a.txt\n"), *text("The end."), SEP, *text("tmp\n"), *text("Hello")]
    assert ids_of(loaded, input_extra=EXTRA) == [REP, *text("myproject\n"), *files, *own, *gap]


@pytest.mark.parametrize(
    ("before", "after", "most", "lengths"),
    [(9, 9, 21, (9, 9)), (9, 9, 20, (9, 8)), (30, 30, 43, (30, 10)), (30, 3, 23, (17, 3)), (3, 30, 23, (3, 17))],
)
def test_what_is_far_from_the_gap_is_left_out(
    monkeypatch: pytest.MonkeyPatch, before: int, after: int, most: int, lengths: tuple[int, int]
) -> None:
    """Three of four tokens for what is before the gap, where both are too long."""
    loaded = model(MARKS)
    monkeypatch.setattr(loaded.tokenizer, "encode", lambda text: [int(one) for one in text.split() if one.isdigit()])
    prefix, suffix = (" ".join(map(str, range(100, 100 + n))) for n in (before, after))
    ids, dropped = infill.encode(loaded, Infill(prefix, suffix, "model"), most)
    n_before, n_after = lengths
    assert ids == [PRE, *range(100 + before - n_before, 100 + before), SUF, *range(100, 100 + n_after), MID]
    assert dropped == before + after - n_before - n_after
    files = infill.encode(loaded, Infill("1", "2", "model", files=(("x", "7 8 9"),)), 7)
    assert files == ([8, 9, PRE, 1, SUF, 2, MID], 1)
    assert infill.encode(loaded, Infill(prefix, suffix, "model"), 0) == ([PRE, SUF, MID], before + after)


@pytest.mark.parametrize(
    ("marks", "said"),
    [({}, "fim_pre"), ({"fim_pre": PRE}, "fim_suf"), ({"fim_pre": PRE, "fim_suf": SUF}, "fim_mid")],
)
def test_a_model_without_fim_tokens_says_so(marks: dict[str, int], said: str) -> None:
    with pytest.raises(WispError, match=said) as error:
        ids_of(model(marks))
    assert (error.value.code, error.value.param) == ("unsupported_parameter", "model")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input_suffix": "a"}, "input_prefix"),
        ({"input_prefix": "a"}, "input_suffix"),
        (GAP | {"prompt": ["a"]}, "prompt"),
        (GAP | {"input_prefix": 5}, "input_prefix"),
        (GAP | {"input_extra": {}}, "input_extra"),
        (GAP | {"input_extra": [{"filename": "a"}]}, "input_extra[0].text"),
        (GAP | {"input_extra": ["a"]}, "input_extra[0].text"),
        (GAP | {"input_extra": [{"text": "a", "filename": 1}]}, "input_extra[0].filename"),
        (GAP | {"n_predict": "x"}, "n_predict"),
        (GAP | {"nothing": 1}, "nothing"),
        (5, None),
    ],
)
def test_a_wrong_request(body: Any, param: str | None) -> None:
    with pytest.raises(WispError) as error:
        requests.infill(body)
    assert error.value.param == param


@pytest.fixture
async def page() -> Page:
    page = Page()
    await page.call("load")
    page.engine.tokenizer.vocab._special |= {"fim_pre": 5, "fim_suf": 6, "fim_mid": 7}
    page.worker._models.loaded["mini"].tokenizer.vocab._special |= {"fim_pre": 5, "fim_suf": 6, "fim_mid": 7}
    return page


async def test_the_endpoints_that_fill_gaps(page: Page) -> None:
    encode = page.engine.tokenizer.encode
    wanted = [5, *encode("a ="), 6, *encode("+ b"), 7]
    bos = [page.engine.tokenizer.bos_id] if page.engine.tokenizer.add_bos else []
    answer = await page.call("llama.infill", request={"input_prefix": "a =", "input_suffix": "+ b", "n_predict": 3})
    assert (answer["tokens_predicted"], answer["prompt"]) == (3, "a =")
    assert page.engine.prompts[-1] == bos + wanted
    answer = await page.call("completions", request={"prompt": "a =", "suffix": "+ b", "max_tokens": 99})
    assert answer["choices"][0]["text"].strip() == HELLO
    assert page.engine.prompts[-1] == bos + wanted
    request = {"prompt": "a =", "suffix": "+ b", "stream": False}
    assert (await page.call("ollama.generate", request=request))["response"].strip() == HELLO
    assert page.engine.prompts[-1] == bos + wanted
    chunks = await page.stream("llama.infill", input_prefix="a", input_suffix="b")
    assert "".join(chunk["content"] for chunk in chunks).strip() == HELLO


async def test_long_texts_around_a_gap(page: Page) -> None:
    """Editors send whole files to /infill; a suffix of OpenAI's is an error, unless the request allows truncation."""
    long = {"prompt": "word " * 300, "suffix": "word " * 300}
    assert await page.code("completions", request=long) == "context_length_exceeded"
    for kind, request in (
        ("completions", {**long, "truncation": "auto"}),
        ("llama.infill", {"input_prefix": long["prompt"], "input_suffix": long["suffix"]}),
    ):
        answer = await page.call(kind, request=request)
        prompt = page.engine.prompts[-1]
        if kind == "completions":
            counts = answer["usage"]["prompt_tokens_details"]
            whole = sum(len(page.engine.tokenizer.encode(long[name])) for name in long)
            assert counts["truncated_tokens"] == whole + 3 + (prompt[0] != 5) - len(prompt) > 0
        assert 90 < len(prompt) < page.engine.context_length
        assert (prompt.count(5), prompt.count(6), prompt[-1]) == (1, 1, 7)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": "a", "suffix": "b", "echo": True}, "echo"),
        ({"prompt": [5], "suffix": "b"}, "suffix"),
        ({"prompt": "a", "suffix": 5}, "suffix"),
    ],
)
async def test_a_wrong_suffix(page: Page, body: dict[str, Any], param: str) -> None:
    assert (await page.call("completions", request=body))["error"]["param"] == param


def asked(url: str, endpoint: str, body: dict[str, Any]) -> Any:
    """What llama.cpp's server answers, with one token."""
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    data = json.dumps({**body, "n_predict": 1}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url.removesuffix('v1')}{endpoint}", data, headers)) as answer:
        return json.load(answer)


def with_bos(data: bytes) -> bytes:
    """Wisp Mini's file, whose prompts begin with BOS."""
    without, added = (key("tokenizer.ggml.add_bos_token", BOOL, value) for value in (False, True))
    assert data.count(without) == 1
    return data.replace(without, added)


@pytest.mark.slow
@pytest.mark.parametrize("bos", [False, True], ids=["without BOS", "with BOS"])
@pytest.mark.parametrize("marks", [MARKS, MARKS | FILES], ids=["gap", "repository"])
def test_prompts_are_those_of_llama_cpp(marks: dict[str, int], bos: bool, tmp_path: Path) -> None:
    """With a small batch: it leaves out what one batch does not hold, and files where the context is no larger.

    That server's prompt of a gap has our ids if it finds all of them in its cache afterwards, but the last,
    which it always computes.
    """
    path, loaded = tmp_path / "marked.gguf", model(marks, **{"tokenizer.ggml.add_bos_token": bos})
    data = MINI.read_bytes()
    path.write_bytes(with_numbers(with_bos(data) if bos else data, keys(marks)))
    with llama_server(path, 512, KEY, batch=128) as url:
        for body in (GAP, GAP | {"input_extra": EXTRA}, {"input_prefix": "", "input_suffix": ""}):
            theirs = asked(url, "infill", body)
            (gap,) = requests.infill(body).request.prompts  # type: ignore[union-attr]
            assert isinstance(gap, Infill)
            ids, _ = infill.encode(loaded, gap, None)
            assert (loaded.tokenizer.bos_id in ids) == bos
            assert theirs["tokens_evaluated"] == len(ids)
            assert theirs["prompt"] == loaded.tokenizer.decode(ids)
            again = asked(url, "completion", {"prompt": ids})
            assert again["timings"]["cache_n"] == len(ids) - 1
