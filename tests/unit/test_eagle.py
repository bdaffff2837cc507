"""Drafts by EAGLE-3 heads: what they compute, and that the text stays the same."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.files.draft_header import DRAFT, EAGLE_TARGETS, check_draft, has_tokens, prefixed
from py_engine.files.gguf_header import Header, TensorInfo
from py_engine.files.tensor_types import TensorType as Q
from py_engine.load_plan import CPU
from py_engine.models.families import family
from py_engine.plan.draft import MAX_DRAFT
from py_engine.plan.lists import DECODE, DRAFT_BEGIN, MTP, MTP_NEXT, PREFILL, SMALL_BATCH
from py_engine.plan.sampling import Sampling
from py_engine.planner import PlanOptions, make_plan
from tests.support import eagle_models, wasm_engines
from tests.support.cpu_engines import PROMPT, PROMPTS, SHAPED, WARM, Counting, collect, draft_counts, let_drafts_pay
from tests.support.cpu_models import header, load
from tests.support.model_files import ModelFiles

SIZES = PlanOptions(64, 16, "f32")
GREEDY = Sampling(temperature=0)
IDS = [(37 * i + 11) % 300 for i in range(40)]


class Files(NamedTuple):
    model: Path
    head: Path


@pytest.fixture(scope="module", params=eagle_models.KINDS)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("eagle")
    made = Files(folder / "model.gguf", folder / "head.gguf")
    eagle_models.write(eagle_models.KINDS[request.param], *made)
    return made


def test_it_computes_what_the_reference_does(files: Files) -> None:
    """After a prompt in batches, a token alone and a small batch: its cache has the keys and values of all."""
    compare(files)


@pytest.mark.parametrize("kind", eagle_models.OTHERS)
def test_it_reads_the_layers_of_other_architectures(kind: str, tmp_path: Path) -> None:
    files = Files(tmp_path / "model.gguf", tmp_path / "head.gguf")
    eagle_models.write(eagle_models.OTHERS[kind], *files)
    compare(files)


def test_heads_of_all_targets_are_compared() -> None:
    kinds = {**eagle_models.KINDS, **eagle_models.OTHERS}.values()
    assert {header(f"{kind.base}.F16").architecture for kind in kinds} == set(EAGLE_TARGETS)


def compare(files: Files) -> None:
    cpu, reference = load(files.model, 64, draft=files.head), eagle_models.EagleReference(*files)
    for at, end, name in ((0, 16, PREFILL), (16, 31, PREFILL), (31, 32, DECODE), (32, 39, SMALL_BATCH)):
        states = cpu.buffers["state"][:32].reshape(8, 4)
        states[:, 0] = np.arange(at, at + 8)
        cpu.feed(at, IDS[at:end], [name], 0)
    drafted = [5, 9]
    want = reference.drafts(IDS, drafted)
    for i, token in enumerate([IDS[-1], *drafted]):
        cpu.feed(39 + i, [token], [MTP_NEXT] if i else [DRAFT_BEGIN, MTP], 0)
        known = np.isfinite(want[i])
        np.testing.assert_allclose(cpu.buffers["logits"][:304][known], want[i][known], atol=1e-4)
        assert (cpu.buffers["logits"][:304][~known] < -1e29).all()


def engine(files: Files, *, drafts: bool = True) -> Engine:
    cpu = load(files.model, 256, draft=files.head if drafts else None)
    runner = Counting(cpu.plan)
    runner._cpu = cpu
    let_drafts_pay(runner)
    return Engine(cpu.plan, runner, "cpu", 4, speculation=drafts)


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [GREEDY, WARM, SHAPED], ids=["greedy", "seed", "shaped"])
async def test_the_text_is_the_one_without_drafts(files: Files, sampling: Sampling) -> None:
    used = engine(files)
    want = await collect(engine(files, drafts=False), PROMPT, sampling, 60)
    assert await collect(used, PROMPT, sampling, 60) == want
    totals = used._generation.totals
    assert 0 < totals.model_accepted < totals.model_drafted, "some are rejected"


@pytest.mark.slow
async def test_requests_draft_side_by_side(files: Files) -> None:
    used, plain = engine(files), engine(files, drafts=False)
    requests = list(zip(PROMPTS, [GREEDY, WARM, SHAPED, GREEDY], [40, 40, 60, 30], strict=False))
    want = [await collect(plain, *request) for request in requests]
    assert await asyncio.gather(*(collect(used, *request) for request in requests)) == want
    totals = used._generation.totals
    assert 0 < totals.model_accepted < totals.model_drafted


@pytest.mark.slow
async def test_the_cpu_engine_drafts_the_same(files: Files) -> None:
    on_numpy, on_wasm = engine(files), await wasm_engines.load(files.model, 256, draft=files.head)
    let_drafts_pay(on_wasm.runner)
    assert await collect(on_numpy, PROMPT, GREEDY, 40) == await collect(on_wasm, PROMPT, GREEDY, 40)
    assert draft_counts(on_numpy) == draft_counts(on_wasm)
    assert draft_counts(on_numpy)[2] > 0


async def test_a_prompt_of_one_token_has_no_state_before_it(files: Files) -> None:
    assert await collect(engine(files), [7], GREEDY, 30) == await collect(engine(files, drafts=False), [7], GREEDY, 30)


def test_it_adds_weights_and_a_cache(files: Files) -> None:
    without, beside = load(files.model, 64).plan, load(files.model, 64, draft=files.head).plan
    assert all(beside.memory()[pool] > without.memory()[pool] for pool in ("weights", "kv"))
    assert beside.draft is not None
    assert 0 < beside.draft.cost < 1
    assert beside.draft.most == (1 if beside.recurrent else MAX_DRAFT)


# -- heads that do not fit


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    folder = tmp_path_factory.mktemp("reduced")
    made = folder / "model.gguf", folder / "head.gguf"
    eagle_models.write(eagle_models.KINDS["reduced"], *made)
    return ModelFiles.read(made[0], draft=made[1])


def plan(found: ModelFiles, head: Header, tokens: list[int] | None = None) -> None:
    """Plan a model with another head than its own. `tokens`: that the head knows, if not its own."""
    own = {name: info for name, info in found.parts.header.tensors.items() if not name.startswith(DRAFT)}
    model = replace(found.parts.header, tensors=own | prefixed(head).tensors)
    make_plan(model, CPU, replace(SIZES, draft=head, draft_tokens=tokens or found.draft_tokens()))


def without(head: Header, tensor: str) -> Header:
    return replace(head, tensors={name: info for name, info in head.tensors.items() if name != tensor})


def head_of(found: ModelFiles) -> Header:
    assert found.parts.draft is not None
    return found.parts.draft


EDITS: list[tuple[str, object, str]] = [
    ("target_hidden_size", 96, "it reads 96 values of a token's state, the model has 64"),
    ("target_layers", [1, 2, 4], r"it reads the inputs of the layers \[1, 2, 4\], Wisp has those of the layers 1 to 3"),
    ("target_layers", [0, 2, 3], "it reads the inputs of the layers"),
    ("target_layers", [1, 2], "not the numbers of 3 layers"),
    ("target_layers", [1, 2, True], "not the numbers of 3 layers"),
]


@pytest.mark.parametrize(("key", "value", "why"), EDITS)
def test_a_head_of_another_model_is_refused(reduced: ModelFiles, key: str, value: object, why: str) -> None:
    head = head_of(reduced)
    edited = replace(head, metadata=head.metadata | {f"eagle3.{key}": value})
    with pytest.raises(WispError, match=why) as error:
        plan(reduced, edited)
    assert (error.value.code, error.value.param) == ("draft_mismatch", "draft")


def test_a_head_of_several_layers_is_refused(reduced: ModelFiles) -> None:
    head = head_of(reduced)
    second = {name.replace("blk.0.", "blk.1."): info for name, info in head.tensors.items()}
    edited = replace(head, metadata=head.metadata | {"eagle3.block_count": 2}, tensors=head.tensors | second)
    with pytest.raises(WispError, match="it has 2 layers, not one"):
        plan(reduced, edited)


@pytest.mark.parametrize(
    ("lacks", "why"),
    [
        ("token_embd.weight", "it has no token_embd.weight, and the model's is 64 wide, not 32"),
        ("output.weight", "it has no output.weight, and the model's is 64 wide, not 32"),
    ],
)
def test_a_head_that_reads_the_models_matrices_is_as_wide(reduced: ModelFiles, lacks: str, why: str) -> None:
    head = head_of(reduced)
    with pytest.raises(WispError, match=why):
        plan(reduced, without(head, lacks))


def test_a_head_embeds_the_tokens_of_its_model(reduced: ModelFiles) -> None:
    head = head_of(reduced)
    table: TensorInfo = head.tensors["token_embd.weight"]
    fewer = head.tensors | {"token_embd.weight": replace(table, shape=(table.shape[0], 300))}
    with pytest.raises(WispError, match="it embeds 300 tokens, the model has 304"):
        plan(reduced, replace(head, tensors=fewer))


def test_an_error_names_the_tensor_and_the_draft_models_file(reduced: ModelFiles) -> None:
    head = head_of(reduced)
    with pytest.raises(WispError, match=r"^The draft model's file has no tensor fc.weight, which it needs\.") as error:
        plan(reduced, without(head, "fc.weight"))
    assert (error.value.code, error.value.param) == ("missing_tensor", "draft")
    fewer = head.tensors | {"output.weight": replace(head.tensors["output.weight"], shape=(32, 100))}
    with pytest.raises(WispError, match=r"^Tensor output.weight of the draft model's file is 100 x 32; .* 200 x 32"):
        plan(reduced, replace(head, tensors=fewer))
    other = head.tensors | {"fc.weight": replace(head.tensors["fc.weight"], type=Q.I32)}
    with pytest.raises(WispError, match=r"^Tensor fc.weight of the draft model's file is stored as I32"):
        plan(reduced, replace(head, tensors=other))


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        ([*range(199), 304], "its d2t has tokens that are none of the model's 304"),
        ([*range(199), -1], "its d2t has tokens that are none of the model's 304"),
        ([*range(199), 7], "its d2t has a token twice"),
    ],
)
def test_a_head_knows_tokens_of_its_model(reduced: ModelFiles, tokens: list[int], why: str) -> None:
    with pytest.raises(WispError, match=why):
        plan(reduced, head_of(reduced), tokens)


@pytest.mark.parametrize("change", [{"type": Q.I32}, {"shape": (100, 2)}, {"shape": (1 << 21,)}], ids=str)
def test_its_tokens_are_a_list(reduced: ModelFiles, change: dict[str, object]) -> None:
    head = head_of(reduced)
    assert has_tokens(head)
    edited = replace(head, tensors=head.tensors | {"d2t": replace(head.tensors["d2t"], **change)})  # type: ignore[arg-type]
    with pytest.raises(
        WispError, match=r"Tensor d2t is .* It must be a list of at most 1,048,576 tokens, as I64"
    ) as error:
        has_tokens(edited)
    assert error.value.code == "corrupt_header"


def test_a_model_of_another_architecture_is_refused(reduced: ModelFiles) -> None:
    model = reduced.parts.header
    check_draft(model, head_of(reduced))
    other = replace(model, metadata=model.metadata | {"general.architecture": "gpt2"})
    with pytest.raises(WispError, match=r"it drafts for gemma4, .*; the model is gpt2"):
        check_draft(other, head_of(reduced))


def test_alone_it_says_what_it_needs(reduced: ModelFiles) -> None:
    with pytest.raises(WispError, match="load that model, with this file as its draft model"):
        family(head_of(reduced))
