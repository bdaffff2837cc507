"""Drafts by Gemma 4's assistants: what they compute, and that the text stays the same."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from py_engine.errors import WispError
from py_engine.files.draft_header import check_draft
from py_engine.load_plan import CPU
from py_engine.models.families import family
from py_engine.plan.lists import DECODE, DRAFT_BEGIN, MTP, MTP_NEXT, PREFILL, SMALL_BATCH
from py_engine.plan.sampling import Sampling
from py_engine.planner import PlanOptions, make_plan
from tests.support import assistant_models, mtp_models
from tests.support.cpu_models import load
from tests.support.draft_checks import SAMPLINGS, check_cpu_engine, check_side_by_side, check_text
from tests.support.model_files import ModelFiles

SIZES = PlanOptions(64, 16, "f32")
EDITS: list[tuple[str, object, str]] = [
    ("embedding_length_out", 96, "it reads 96 values of a token, the model has 64"),
    ("attention.head_count_kv", [4, 4, 4], "its layer 0 cannot read the cache of the model's layer"),
    ("attention.sliding_window", 12, "its layer 0 cannot read the cache of the model's layer"),
]
IDS = [(37 * i + 11) % 300 for i in range(40)]


class Files(NamedTuple):
    model: Path
    assistant: Path


@pytest.fixture(scope="module", params=assistant_models.BASES, ids=lambda base: base.split("/")[1])
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("assistant")
    made = Files(folder / "model.gguf", folder / "assistant.gguf")
    assistant_models.write(request.param, *made)
    return made


def test_it_computes_what_the_reference_does(files: Files) -> None:
    """After a prompt in batches, a token alone and a small batch. All tokens of a draft stand at its first position."""
    cpu, reference = load(files.model, 64, draft=files.assistant), assistant_models.AssistantReference(*files)
    for at, end, name in ((0, 16, PREFILL), (16, 31, PREFILL), (31, 32, DECODE), (32, 39, SMALL_BATCH)):
        states = cpu.buffers["state"][:32].reshape(8, 4)
        states[:, 0] = np.arange(at, at + 8)
        cpu.feed(at, IDS[at:end], [name], 0)
    drafted = [5, 9]
    want = reference.drafts(IDS, drafted)
    for i, token in enumerate([IDS[-1], *drafted]):
        cpu.feed(39 + i, [token], [MTP_NEXT] if i else [DRAFT_BEGIN, MTP], 0)
        np.testing.assert_allclose(cpu.buffers["logits"][:304], want[i], atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
async def test_the_text_is_the_one_without_drafts(files: Files, sampling: Sampling) -> None:
    await check_text(files, sampling)


@pytest.mark.slow
async def test_requests_draft_side_by_side(files: Files) -> None:
    await check_side_by_side(files)


@pytest.mark.slow
async def test_the_cpu_engine_drafts_the_same(files: Files) -> None:
    await check_cpu_engine(files)


def test_it_adds_weights_and_no_cache(files: Files) -> None:
    without, beside = load(files.model, 64).plan, load(files.model, 64, draft=files.assistant).plan
    assert beside.memory()["weights"] > without.memory()["weights"]
    assert beside.memory()["kv"] == without.memory()["kv"]
    assert beside.draft is not None
    assert 0 < beside.draft.cost < 1


@pytest.mark.parametrize(("key", "value", "why"), EDITS, ids=[key for key, *_ in EDITS])
def test_an_assistant_of_another_model_is_refused(files: Files, key: str, value: object, why: str) -> None:
    parts = ModelFiles.read(files.model, draft=files.assistant).parts
    assert parts.draft is not None
    edited = replace(parts.draft, metadata=parts.draft.metadata | {f"gemma4-assistant.{key}": value})
    with pytest.raises(WispError, match=why) as error:
        make_plan(parts.header, CPU, replace(SIZES, draft=edited))
    assert (error.value.code, error.value.param) == ("draft_mismatch", "draft")


def test_an_assistant_has_as_many_tokens_as_its_model(files: Files) -> None:
    parts = ModelFiles.read(files.model, draft=files.assistant).parts
    assert parts.draft is not None
    table = parts.draft.tensors["token_embd.weight"]
    fewer = parts.draft.tensors | {"token_embd.weight": replace(table, shape=(table.shape[0], 300))}
    with pytest.raises(WispError, match="it has 300 tokens, the model has 304"):
        make_plan(parts.header, CPU, replace(SIZES, draft=replace(parts.draft, tensors=fewer)))


def test_a_model_of_another_architecture_is_refused(files: Files, tmp_path: Path) -> None:
    mtp_models.write("qwen35/qwen35", tmp_path / "model.gguf")
    parts = ModelFiles.read(tmp_path / "model.gguf", draft=files.assistant).parts
    assert parts.draft is not None
    with pytest.raises(WispError, match="it drafts for gemma4, the model is qwen35"):
        check_draft(parts.header, parts.draft)


def test_an_assistant_of_another_vocabulary_is_refused_as_an_assistant(files: Files) -> None:
    """No smaller model of the family would do: only the model's own assistant reads its hidden states."""
    parts = ModelFiles.read(files.model, draft=files.assistant).parts
    assert parts.draft is not None
    tokens = parts.draft.metadata["tokenizer.ggml.tokens"]
    for key, value, why in (
        ("tokenizer.ggml.tokens", [*tokens[:7], "other", *tokens[8:]], "its token 7 is 'other'"),
        ("tokenizer.ggml.tokens", [*tokens, "more"], "it has 305 tokens, the model has 304"),
        ("tokenizer.ggml.tokens", 5, "its tokens are no list"),
        ("tokenizer.ggml.model", "other", "its tokenizer.ggml.model is 'other'"),
    ):
        edited = replace(parts.draft, metadata=parts.draft.metadata | {key: value})
        with pytest.raises(WispError, match=f"This assistant does not fit the model: {why}") as error:
            check_draft(parts.header, edited)
        assert "Give the assistant of this model" in str(error.value)
        assert (error.value.code, error.value.param) == ("draft_mismatch", "draft")


def test_alone_it_says_what_it_needs(files: Files) -> None:
    with pytest.raises(WispError, match="load a Gemma 4 model, with this file as its draft model"):
        family(ModelFiles.read(files.assistant).parts.header)
