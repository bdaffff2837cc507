"""Drafts by EAGLE-3 heads: what they compute, and that the text stays the same."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from py_engine.errors import WispError
from py_engine.files.draft_header import DRAFT, EAGLE_TARGETS, check_draft, has_tokens, prefixed
from py_engine.files.gguf_header import Header, TensorInfo
from py_engine.files.parts import Parts
from py_engine.files.tensor_types import TensorType as Q
from py_engine.generate.prefix_store import layout_of
from py_engine.load_plan import CPU
from py_engine.models.families import family
from py_engine.plan.cache import make_cache, page_group
from py_engine.plan.draft import MAX_DRAFT
from py_engine.plan.lists import DECODE, DRAFT_BEGIN, MTP, MTP_NEXT, PREFILL, SMALL_BATCH
from py_engine.plan.mtp import InputNorms, Residual, mtp_input
from py_engine.plan.ops import AttentionOptions, Ops
from py_engine.plan.plan import Plan, Weight
from py_engine.plan.sampling import Sampling
from py_engine.planner import PlanOptions, make_plan
from tests.support import eagle_models
from tests.support.cpu_models import header, load
from tests.support.draft_checks import SAMPLINGS, check_cpu_engine, check_side_by_side, check_text
from tests.support.model_files import ModelFiles

SIZES = PlanOptions(64, 16, "f32")
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


PARTS = [(0, 16, PREFILL), (16, 31, PREFILL), (31, 32, DECODE), (32, 39, SMALL_BATCH)]  # of IDS


def compare(files: Files, parts: Sequence[tuple[int, int, str]] = PARTS) -> None:
    """Compare the logits of drafts after these parts of IDS, and the token that follows them."""
    cpu, reference = load(files.model, 64, draft=files.head), eagle_models.EagleReference(*files)
    for at, end, name in parts:
        states = cpu.buffers["state"][:32].reshape(8, 4)
        states[:, 0] = np.arange(at, at + 8)
        cpu.feed(at, IDS[at:end], [name], 0)
    n, drafted = parts[-1][1], [5, 9]
    want = reference.drafts(IDS[: n + 1], drafted)
    for i, token in enumerate([IDS[n], *drafted]):
        cpu.feed(n + i, [token], [MTP_NEXT] if i else [DRAFT_BEGIN, MTP], 0)
        known = np.isfinite(want[i])
        np.testing.assert_allclose(cpu.buffers["logits"][:304][known], want[i][known], atol=1e-4)
        assert (cpu.buffers["logits"][:304][~known] < -1e29).all()


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


def test_a_prompt_of_one_token_has_no_state_before_it(files: Files) -> None:
    """The first draft attends to itself alone: the prompt's token has no keys that count."""
    compare(files, [(0, 1, PREFILL)])


def test_it_adds_weights_and_a_cache(files: Files) -> None:
    without, beside = load(files.model, 64).plan, load(files.model, 64, draft=files.head).plan
    assert all(beside.memory()[pool] > without.memory()[pool] for pool in ("weights", "kv"))
    assert beside.draft is not None
    assert 0 < beside.draft.cost < 1
    assert beside.draft.most == (1 if beside.recurrent else MAX_DRAFT)
    assert beside.draft.computed_by_model


# -- what kernels do not compute


@pytest.fixture
def ops() -> Ops:
    """The ops of prompts."""
    return Ops(Plan(16, 64, 304), PREFILL, 16, CPU)


def test_no_kernel_has_a_window_and_a_first_position() -> None:
    with pytest.raises(AssertionError, match="differ in what a window leaves"):
        AttentionOptions(1.0, window=8, first=1)


def test_prompts_see_the_first_position(ops: Ops) -> None:
    cache = make_cache(ops.plan, 0, 64, "f32", page_group(ops.plan, 0))
    q = ops.rows("q", 64)
    ops.attention(q, cache, (4, 4, 16), AttentionOptions(1.0))
    with pytest.raises(AssertionError, match="see all positions"):
        ops.attention(q, cache, (4, 4, 16), AttentionOptions(1.0, first=1))


def test_a_layers_input_has_the_sources_that_its_kernel_knows(ops: Ops) -> None:
    e, x, other = (ops.rows(name, 64) for name in ("e", "x", "other"))
    norms = InputNorms(Weight("norms", Q.F32, 1, 128, ()), 1e-5)
    mtp_input(ops, e, x, 64, norms, from_layer=True, residual=Residual(x, normed=False))
    with pytest.raises(AssertionError, match="read where x is written"):
        mtp_input(ops, e, other, 64, norms, from_layer=True, residual=Residual(x, normed=False))
    with pytest.raises(AssertionError, match="writes x where it normalises"):
        mtp_input(ops, e, None, 64, residual=Residual(x, normed=False))
    with pytest.raises(AssertionError, match="has its own states"):
        mtp_input(ops, e, None, 64, norms, from_layer=True)


# -- heads that do not fit


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    folder = tmp_path_factory.mktemp("reduced")
    made = folder / "model.gguf", folder / "head.gguf"
    eagle_models.write(eagle_models.KINDS["reduced"], *made)
    return ModelFiles.read(made[0], draft=made[1])


def plan(found: ModelFiles, head: Header, tokens: list[int] | None = None) -> Plan:
    """Plan a model with another head than its own. `tokens`: that the head knows, if not its own."""
    own = {name: info for name, info in found.parts.header.tensors.items() if not name.startswith(DRAFT)}
    model = replace(found.parts.header, tensors=own | prefixed(head).tensors)
    return make_plan(model, CPU, replace(SIZES, draft=head, draft_tokens=tokens or found.draft_tokens()))


def without(head: Header, tensor: str) -> Header:
    return replace(head, tensors={name: info for name, info in head.tensors.items() if name != tensor})


def head_of(found: ModelFiles) -> Header:
    assert found.parts.draft is not None
    return found.parts.draft


EDITS: list[tuple[str, object, str]] = [
    ("target_hidden_size", 96, "it reads 96 values of a token's state, the model has 64"),
    ("target_layers", [1, 2, 4], r"it reads the inputs of the layers \[1, 2, 4\], Wisp has those of the layers 1 to 3"),
]


@pytest.mark.parametrize(("key", "value", "why"), EDITS)
def test_a_head_of_another_model_is_refused(reduced: ModelFiles, key: str, value: object, why: str) -> None:
    head = head_of(reduced)
    edited = replace(head, metadata=head.metadata | {f"eagle3.{key}": value})
    with pytest.raises(WispError, match=why) as error:
        plan(reduced, edited)
    assert (error.value.code, error.value.param) == ("draft_mismatch", "draft")


ABSENT = "absent"
FAULTS: list[tuple[str, object, str, str]] = [
    ("target_layers", ABSENT, "lacks the metadata key eagle3.target_layers", "missing_metadata"),
    ("target_layers", 3, "eagle3.target_layers is 3; it must be a list of numbers", "corrupt_header"),
    ("target_layers", [1, 2, True], "it must be a list of numbers", "corrupt_header"),
    ("target_layers", [1, 2], "head reads 2 layers of its model; .* that read 3", "unsupported_architecture"),
    ("target_layers", [0, 2, 3], "Wisp has those of layer 1 and later ones", "unsupported_architecture"),
    ("target_hidden_size", ABSENT, "lacks the metadata key eagle3.target_hidden_size", "missing_metadata"),
    ("target_hidden_size", 0, "it must be a positive whole number", "corrupt_header"),
]


@pytest.mark.parametrize(("key", "value", "why", "code"), FAULTS)
def test_what_fits_no_model_is_no_mismatch(reduced: ModelFiles, key: str, value: object, why: str, code: str) -> None:
    head = head_of(reduced)
    metadata = {name: old for name, old in head.metadata.items() if name != f"eagle3.{key}"}
    edited = replace(head, metadata=metadata | ({} if value == ABSENT else {f"eagle3.{key}": value}))
    with pytest.raises(WispError, match=why) as error:
        plan(reduced, edited)
    assert error.value.code == code


@pytest.mark.parametrize("name", ["gate", "up", "down"])
def test_its_feed_forward_network_is_gated(reduced: ModelFiles, name: str) -> None:
    with pytest.raises(WispError, match=rf"^The draft model's file has no tensor blk\.0\.ffn_{name}\.weight"):
        plan(reduced, without(head_of(reduced), f"blk.0.ffn_{name}.weight"))


@pytest.mark.parametrize(("trained", "used"), [(32, 32), (4096, SIZES.n_ctx)])
def test_it_drafts_where_it_was_trained(reduced: ModelFiles, trained: int, used: int) -> None:
    head = head_of(reduced)
    draft = plan(reduced, replace(head, metadata=head.metadata | {"eagle3.context_length": trained})).draft
    assert draft is not None
    assert draft.n_ctx == used


class Named:
    """A source whose content is known."""

    size = 0

    def __init__(self, name: str) -> None:
        self.name = name

    async def content(self) -> str:
        return self.name


async def test_prompts_that_another_head_has_read_are_not_read(reduced: ModelFiles) -> None:
    async def layout(head: str) -> str:
        sources: list[Any] = [Named("model"), Named(head)]
        model = reduced.parts.headers[0]
        content = await Parts.of(sources, [model, head_of(reduced)], 1).content()
        assert content is not None
        return layout_of(content, planned, "")

    planned = plan(reduced, head_of(reduced))
    assert await layout("one") == await layout("one") != await layout("another")


def test_a_head_of_several_layers_is_refused(reduced: ModelFiles) -> None:
    head = head_of(reduced)
    second = {name.replace("blk.0.", "blk.1."): info for name, info in head.tensors.items()}
    edited = replace(head, metadata=head.metadata | {"eagle3.block_count": 2}, tensors=head.tensors | second)
    with pytest.raises(WispError, match=r"head has 2 layers; .* heads of one layer") as error:
        plan(reduced, edited)
    assert error.value.code == "unsupported_architecture"


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
        WispError,
        match=r"^Tensor d2t of the draft model's file is .* It must be a list of at most 1,048,576 tokens, as I64",
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
