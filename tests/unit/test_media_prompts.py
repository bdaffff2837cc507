"""Prompts with pictures: the goldens' embeddings in place of tokens, on the numpy executor."""

import asyncio
from itertools import count

import numpy as np
import pytest

from py_engine.cpu.runner import CpuRunner
from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.generate.answer import AnswerLimits, GenerationRequest
from py_engine.generate.media import Media, PromptMedia, media_ids
from py_engine.models.common import dimension
from py_engine.plan.lists import PREFILL, TOKEN_ROWS
from py_engine.plan.pages import RECORD_WORDS
from py_engine.plan.sampling import Sampling
from py_engine.plan.shared_constants import FIRST_MEDIA_ID
from tests.support.cpu_models import header, load
from tests.support.media_cases import CASES, VISION, Case, case
from tests.support.tolerances import distance, same_ids
from tools.goldens import GOLDEN

GREEDY = Sampling(temperature=0)


def engine(wanted: Case, batch: int = 16, page: int = 64, parallel: int = 4) -> Engine:
    cpu = load(VISION / wanted.text, 256, batch, page=page, media_width=wanted.width, whole_media=wanted.whole)
    runner = CpuRunner(cpu.plan)
    runner._cpu = cpu
    return Engine(cpu.plan, runner, "cpu", parallel)


async def answer(used: Engine, ids: list[int], media: list[Media], sampling: Sampling = GREEDY) -> list[int]:
    stream = used.generate(GenerationRequest(ids, sampling, AnswerLimits(16), media=PromptMedia(media)))
    return [token async for batch in stream for token in batch.ids]


@pytest.mark.parametrize(("golden", "name"), CASES)
async def test_logits_and_greedy_ids(golden: str, name: str) -> None:
    wanted = case(golden, name)
    used = engine(wanted)
    logits, shape = await used.evaluate(wanted.ids + wanted.forced, PromptMedia(wanted.media))
    assert shape == logits.shape
    got = logits[-len(wanted.logits) :]
    assert len(wanted.logits) == wanted.tail + len(wanted.forced)
    difference, kl = distance(wanted.logits, got)
    assert difference <= (0.03 if "gemma" in golden else 5e-3)  # llama.cpp looks GELU up in a table of float16
    assert kl <= 1e-5
    same_ids(wanted.greedy, await answer(used, wanted.ids, wanted.media), wanted.margin, 5e-3)


@pytest.mark.parametrize(
    ("model", "row"),
    [
        ("gemma/gemma2.F16", "scaled"), ("vision/pictures.gemma", "scaled"), ("vision/gemma3", "given"),
        ("latent/minicpm3.F16", "scaled"), ("experts/grok.F16", "scaled"), ("experts/afmoe.F16", "scaled"),
        ("dense/hrm_text.F16", "scaled"), ("granite/granite.F16", "scaled"),
    ],
)  # fmt: skip
def test_where_embeddings_of_media_are_scaled_as_those_of_tokens(model: str, row: str) -> None:
    """As llama.cpp has it, found with random models: `kimik25` beside each."""
    width = dimension(header(model), "embedding_length")
    plan = load(GOLDEN / f"{model}.gguf", 64, media_width=width).plan
    assert plan.lists[TOKEN_ROWS][0].params["MEDIA_ROW"] == row


@pytest.mark.parametrize(
    ("model", "layers"),
    [
        ("llama/llama.F16", "all"), ("latent/deepseek2.F16", "all"), ("granite/graniteswitch.F16", "all"),
        ("experts/llama4.F16", "all"), ("gpt_oss/gpt-oss.F16", "all"), ("vision/gemma3", "all"),
        ("gemma4/gemma4.F16", "windowed"),
    ],
)  # fmt: skip
def test_which_layers_read_a_picture_whole(model: str, layers: str) -> None:
    """The projector decides whether a picture is read whole; the text model in which layers, all but in Gemma 4."""
    width = dimension(header(model), "embedding_length")
    for whole in (False, True):
        plan = load(GOLDEN / f"{model}.gguf", 64, media_width=width, whole_media=whole).plan
        attention = [op.params for op in plan.lists[PREFILL] if "WHOLE_MEDIA" in op.params]
        assert attention
        for params in attention:
            assert params["WHOLE_MEDIA"] == (whole and (layers == "all" or int(params["WINDOW"]) > 0))


@pytest.mark.parametrize("golden", ["gemma3", "qwen2vl", "qwen3vl"])
async def test_parts_of_a_prompt_and_a_second_question(golden: str) -> None:
    """Small batches and pages cut the prompt elsewhere. What the caches hold of a picture is not computed again."""
    wanted = case(golden, "pair")
    used = engine(wanted, batch=10, page=4)
    first = await answer(used, wanted.ids, wanted.media)
    same_ids(wanted.greedy, first, wanted.margin, 5e-3)
    more = [*wanted.ids, *first[:3], *wanted.forced]
    again = await answer(used, more, wanted.media)
    assert used.last.cached_tokens >= len(wanted.ids) - 4
    assert again == await answer(engine(wanted), more, wanted.media)


async def test_a_picture_that_the_caches_know_is_not_encoded() -> None:
    """Its embeddings are computed for the first question only, and both pictures at once."""
    wanted = case("qwen2vl", "pair")
    used, rows = engine(wanted), [media.rows for media in wanted.media]
    encoded: list[int] = []

    async def encode(media: list[Media]) -> None:
        encoded.append(len(media))
        for one in media:
            one.rows = rows[wanted.media.index(one)]

    async def ask(ids: list[int]) -> list[int]:
        for one in wanted.media:
            one.rows = None
        stream = used.generate(
            GenerationRequest(ids, GREEDY, AnswerLimits(16), media=PromptMedia(wanted.media, encode))
        )
        return [token async for batch in stream for token in batch.ids]

    first = await ask(wanted.ids)
    same_ids(wanted.greedy, first, wanted.margin, 5e-3)
    await ask([*wanted.ids, *first, 1, 2, 3])
    assert encoded == [2]
    used.forget()
    assert await ask(wanted.ids) == first
    assert encoded == [2, 2]


async def test_another_picture_is_another_prompt() -> None:
    wanted, other = case("qwen2vl", "square"), case("qwen2vl", "alpha")
    swapped = Media(other.media[0].ids[:9], other.media[0].rows, wanted.media[0].grid)
    at = len(wanted.ids) - len(wanted.ids[16:])
    assert wanted.ids[7:at] == wanted.media[0].ids
    used = engine(wanted)
    plain = await answer(used, wanted.ids, wanted.media)
    changed = [*wanted.ids[:7], *swapped.ids, *wanted.ids[16:]]
    assert await answer(used, changed, [swapped]) != plain
    assert used.last.cached_tokens <= 7
    assert await answer(used, wanted.ids, wanted.media) == plain


async def test_requests_with_and_without_pictures_side_by_side() -> None:
    wanted = case("qwen2vl", "pair")
    used, text = engine(wanted), [t for t in wanted.ids if t < FIRST_MEDIA_ID]
    alone = [await answer(engine(wanted), ids, m) for ids, m in ((wanted.ids, wanted.media), (text, []))]
    both = await asyncio.gather(answer(used, wanted.ids, wanted.media), answer(used, text, []))
    assert list(both) == alone


@pytest.mark.parametrize("golden", ["gemma3", "qwen2vl"])
async def test_a_seeded_answer_does_not_depend_on_the_caches(golden: str) -> None:
    wanted = case(golden, "pair")
    seeded = Sampling(1.0, seed=5, presence_penalty=0.5, repeat_penalty=1.2, dry_multiplier=0.8)
    used = engine(wanted, page=4)
    first = await answer(used, wanted.ids, wanted.media, seeded)
    assert first == await answer(used, wanted.ids, wanted.media, seeded)
    assert first == await answer(engine(wanted, page=4), wanted.ids, wanted.media, seeded)


async def test_a_full_context_drops_a_part_of_a_picture() -> None:
    """The answer goes on; what is left of a picture has positions again."""
    wanted = case("qwen2vl", "pair")
    cpu = load(VISION / "qwen2vl.gguf", 40, 16, page=4, media_width=wanted.width)
    runner = CpuRunner(cpu.plan)
    runner._cpu = cpu
    used = Engine(cpu.plan, runner, "cpu")
    stream = used.generate(
        GenerationRequest(
            wanted.ids, Sampling(temperature=0), AnswerLimits(40, keep=2), media=PromptMedia(wanted.media)
        )
    )
    assert len([token async for batch in stream for token in batch.ids]) == 40
    assert used.last.shifted_tokens


async def test_ids_of_media_that_the_request_lacks() -> None:
    wanted = case("mlp", "pair")
    with pytest.raises(WispError, match="outside the vocabulary"):
        await answer(engine(wanted), wanted.ids, wanted.media[:1])


def test_a_projector_of_another_width() -> None:
    with pytest.raises(WispError, match="Load the projector that belongs to the model") as error:
        load(VISION / "qwen3vl.gguf", 64, media_width=64)
    assert error.value.code == "projector_mismatch"


def test_places_of_several_pictures() -> None:
    """Rotary positions of text, a wide picture, text, a tall one cut at the end of the part, as in llama.cpp."""
    numbers = count()
    wide, tall = (Media(media_ids(str(next(numbers)), 6), None, grid) for grid in ((3, 2), (2, 3)))
    ids = [1, 2, *wide.ids, 3, *tall.ids, 4]
    given = PromptMedia([wide, tall])
    batch, shift = given.batch(ids, 1, 10)
    assert batch is not None
    assert shift == -3
    places = np.array(batch.records).reshape(-1, RECORD_WORDS)
    assert places[:, 0].tolist() == list(range(2, 12)), "causal"
    assert places[:, 1:4].tolist() == [
        [1, 1, 1], [2, 2, 2], [2, 2, 3], [2, 2, 4], [2, 3, 2], [2, 3, 3], [2, 3, 4], [5, 5, 5], [6, 6, 6], [6, 6, 7],
    ]  # fmt: skip
    assert [(r.token, r.first, r.count) for r in batch.rows] == [(1, 0, 6), (8, 0, 2)]
    assert given.batch(ids, 15, 1) == (None, -6)


def test_places_of_numbered_pictures() -> None:
    """HunyuanOCR: lines of two tokens with one after each, between two tokens; the second picture after one of text."""
    first, second = (Media(media_ids(name, 8), None, (2, 2), number=number) for number, name in enumerate("ab"))
    ids = [*first.ids, 3, *second.ids, 4]
    batch, shift = PromptMedia([first, second]).batch(ids, 8, 10)
    assert batch is not None
    assert shift == 0
    assert np.array(batch.records).reshape(-1, RECORD_WORDS)[:, 1:].tolist() == [
        [8, 8, 8, 0], [9, 9, 9, 9], [10, 0, 0, 1], [11, 1, 0, 1], [12, 2, 0, 1], [13, 0, 1, 1], [14, 1, 1, 1],
        [15, 2, 1, 1], [16, 16, 16, 16], [17, 17, 17, 0],
    ]  # fmt: skip


def test_sound_is_on_all_axes_and_rows_in_place_of_tokens_are_on_those_of_text() -> None:
    """As in llama.cpp. HunyuanOCR's text model rotates by the fourth axis, too."""
    sound, rows = Media(media_ids("a", 2)), Media(media_ids("b", 2), as_text=True)
    batch, _ = PromptMedia([sound, rows]).batch([7, *sound.ids, *rows.ids], 0, 5)
    assert batch is not None
    assert np.array(batch.records).reshape(-1, RECORD_WORDS)[:, 1:].tolist() == [
        [0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 0], [4, 4, 4, 0],
    ]  # fmt: skip


def test_equal_contents_have_equal_ids() -> None:
    assert media_ids("a", 100) == media_ids("a", 100)
    assert not set(media_ids("a", 100)) & set(media_ids("b", 100))
    assert min(media_ids("a", 100)) >= 1 << 31


def test_a_whole_picture_is_not_cut() -> None:
    media = Media(media_ids("x", 8), None, None, whole=True)
    ids = [1, 2, 3, *media.ids, 4, 5]
    given = PromptMedia([media])
    assert [given.part(ids, at, 5) for at in (0, 3, 11)] == [3, 8, 2]
    assert given.part_within(ids, 3, 5) == 0
    records = given.batch(ids, 3, 8)[0]
    assert records is not None
    assert set(records.records[::RECORD_WORDS]) == {11}
