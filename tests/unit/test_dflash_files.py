"""Files of DFlash models that do not fit, are damaged, or draft in other ways."""

from dataclasses import replace
from typing import Any

import pytest

from py_engine.errors import WispError
from py_engine.files.draft_header import DRAFT, check_draft, has_tokens, prefixed, read_tokens
from py_engine.files.gguf_header import Header, TensorInfo
from py_engine.files.parts import Parts
from py_engine.files.tensor_types import TensorType as Q
from py_engine.generate.prefix_store import layout_of
from py_engine.load_plan import CPU
from py_engine.models.families import family
from py_engine.plan.plan import Plan
from py_engine.planner import PlanOptions, make_plan
from tests.support import dflash_models
from tests.support.model_files import ModelFiles

SIZES = PlanOptions(64, 16, "f32")
ABSENT = "absent"


@pytest.fixture(scope="module", params=["plain", "owned"])
def any_files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    return files_of(request.param, tmp_path_factory)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    return files_of("plain", tmp_path_factory)


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    return files_of("owned", tmp_path_factory)


def files_of(kind: str, folders: pytest.TempPathFactory) -> ModelFiles:
    folder = folders.mktemp(kind)
    made = folder / "model.gguf", folder / "draft.gguf"
    dflash_models.write(dflash_models.KINDS[kind], *made)
    return ModelFiles.read(made[0], draft=made[1])


def plan(found: ModelFiles, draft: Header, tokens: list[int] | None = None) -> Plan:
    """Plan a model with another DFlash model than its own. `tokens`: that it knows, if not its own."""
    own = {name: info for name, info in found.parts.header.tensors.items() if not name.startswith(DRAFT)}
    model = replace(found.parts.header, tensors=own | prefixed(draft).tensors)
    return make_plan(model, CPU, replace(SIZES, draft=draft, draft_tokens=tokens or found.draft_tokens()))


def draft_of(found: ModelFiles) -> Header:
    assert found.parts.draft is not None
    return found.parts.draft


def edited(draft: Header, key: str, value: object) -> Header:
    """A header with another value, or without one. `key`: of the architecture, or of the tokenizer."""
    name = key if key.startswith("tokenizer.") else f"dflash.{key}"
    metadata = {other: old for other, old in draft.metadata.items() if other != name}
    return replace(draft, metadata=metadata | ({} if value == ABSENT else {name: value}))


def without(draft: Header, tensor: str) -> Header:
    return replace(draft, tensors={name: info for name, info in draft.tensors.items() if name != tensor})


def test_its_own_model_takes_it(any_files: ModelFiles) -> None:
    draft = draft_of(any_files)
    check_draft(any_files.parts.header, draft)
    assert plan(any_files, draft).draft is not None


MISFITS: list[tuple[str, object, str]] = [
    ("embedding_length", 96, "its rows are 96 wide, the model's 64"),
    ("target_layers", [1, 2, 4], r"it reads the inputs of the layers \[1, 2, 4\], Wisp has those of the layers 1 to 3"),
    ("target_layers", [1, 2, 3, 1, 2], "it reads 5 layers, the model has 4"),
    ("tokenizer.ggml.mask_token_id", 304, "its masked token is 304, the model has 304 tokens"),
]


@pytest.mark.parametrize(("key", "value", "why"), MISFITS)
def test_one_of_another_model_is_refused(plain: ModelFiles, key: str, value: object, why: str) -> None:
    with pytest.raises(WispError, match=rf"^This DFlash model does not fit the model: {why}") as error:
        plan(plain, edited(draft_of(plain), key, value))
    assert (error.value.code, error.value.param) == ("draft_mismatch", "draft")


FAULTS: list[tuple[str, object, str, str]] = [
    (
        "target_layers",
        ABSENT,
        "^The draft model's file lacks the metadata key dflash.target_layers",
        "missing_metadata",
    ),
    (
        "target_layers",
        3,
        "^The draft model's file: dflash.target_layers is 3; it must be a list of numbers",
        "corrupt_header",
    ),
    ("target_layers", [1, True], "it must be a list of numbers", "corrupt_header"),
    ("target_layers", [], "it must be a list of numbers", "corrupt_header"),
    ("target_layers", [0, 1, 2], r"DFlash model reads .* layers \[0, 1, 2\]", "unsupported_architecture"),
    ("target_layers", [1, -1, 2], r"Wisp has those of layer 1 and later ones", "unsupported_architecture"),
    ("tokenizer.ggml.mask_token_id", ABSENT, "^The draft model's file lacks the metadata key", "missing_metadata"),
    ("tokenizer.ggml.mask_token_id", -1, "mask_token_id is -1; it must be a token's number", "corrupt_header"),
    ("tokenizer.ggml.mask_token_id", "x", "it must be a token's number", "corrupt_header"),
    ("context_length", 0, "^The draft model's file: dflash.context_length is 0", "corrupt_header"),
    ("rope.scaling.type", "zig", "^The draft model's file: RoPE scaling of type 'zig'", "unsupported_architecture"),
    ("block_size", 1, "DFlash model has blocks of 1 tokens", "unsupported_architecture"),
    ("hidden_activation", "relu", "DFlash model has the activation 'relu'", "unsupported_architecture"),
    ("hyper_connection_count", 4, "DFlash model has the layers of DeepSeek V4", "unsupported_architecture"),
    ("attention.sliding_window", 8, "lacks the metadata key dflash.attention.sliding_window_p", "missing_metadata"),
]


@pytest.mark.parametrize(("key", "value", "why", "code"), FAULTS)
def test_what_fits_no_model_is_no_mismatch(plain: ModelFiles, key: str, value: object, why: str, code: str) -> None:
    with pytest.raises(WispError, match=why) as error:
        plan(plain, edited(draft_of(plain), key, value))
    assert (error.value.code, error.value.param) == (code, "draft")


def test_a_layer_that_the_metadata_do_not_count_is_an_error(plain: ModelFiles) -> None:
    with pytest.raises(WispError, match=r"dflash\.block_count is 1, but the file has the tensor blk\.1\.") as error:
        plan(plain, edited(draft_of(plain), "block_count", 1))
    assert (error.value.code, error.value.param) == ("corrupt_header", "draft")


@pytest.mark.parametrize(("pattern", "why"), [(4, "is 4; it must be a list of truth values"), ([True], "as long as")])
def test_each_layer_says_whether_it_has_a_window(plain: ModelFiles, pattern: object, why: str) -> None:
    draft = edited(draft_of(plain), "attention.sliding_window", 8)
    with pytest.raises(WispError, match=why) as error:
        plan(plain, edited(draft, "attention.sliding_window_pattern", pattern))
    assert error.value.code == "corrupt_header"


@pytest.mark.parametrize(
    ("tensor", "why"),
    [("markov_w1.weight", r"has a Markov head \(DSpark\)"), ("selector_hidden.weight", r"drafts \(DFlash 2\)")],
)
def test_relatives_that_draft_in_other_ways_are_refused(plain: ModelFiles, tensor: str, why: str) -> None:
    draft = draft_of(plain)
    more = draft.tensors | {tensor: replace(draft.tensors["fc.weight"], name=tensor)}
    with pytest.raises(
        WispError, match=rf"^This DFlash model .*{why}.* Use another one, or load without draft"
    ) as error:
        plan(plain, replace(draft, tensors=more))
    assert (error.value.code, error.value.param) == ("unsupported_architecture", "draft")


@pytest.mark.parametrize(
    "tensor",
    ["fc", "enc.output_norm", "output_norm", "blk.1.attn_q", "blk.1.attn_k", "blk.0.attn_q_norm", "blk.1.ffn_gate",
     "blk.1.ffn_up", "blk.0.ffn_down", "blk.0.ffn_norm", "blk.1.attn_norm", "blk.1.attn_k_norm"],
)  # fmt: skip
def test_an_error_names_the_tensor_and_the_draft_models_file(plain: ModelFiles, tensor: str) -> None:
    with pytest.raises(WispError, match=rf"^The draft model's file has no tensor {tensor}\.weight") as error:
        plan(plain, without(draft_of(plain), f"{tensor}.weight"))
    assert (error.value.code, error.value.param) == ("missing_tensor", "draft")


def test_an_error_names_a_tensor_of_another_shape_or_type(plain: ModelFiles) -> None:
    draft = draft_of(plain)
    fc = draft.tensors["fc.weight"]
    narrow = draft.tensors | {"fc.weight": replace(fc, shape=(128, 64))}
    with pytest.raises(
        WispError, match=r"^Tensor fc.weight of the draft model's file is 64 x 128; .* 64 x 192"
    ) as error:
        plan(plain, replace(draft, tensors=narrow))
    assert (error.value.code, error.value.param) == ("bad_tensor_shape", "draft")
    other = draft.tensors | {"fc.weight": replace(fc, type=Q.I32)}
    with pytest.raises(WispError, match=r"^Tensor fc.weight of the draft model's file is stored as I32") as error:
        plan(plain, replace(draft, tensors=other))
    assert (error.value.code, error.value.param) == ("unsupported_quantization", "draft")
    norm = draft.tensors["output_norm.weight"]
    halves = draft.tensors | {norm.name: replace(norm, type=Q.F16)}
    with pytest.raises(WispError, match=r"^Tensor output_norm.weight of the draft model's file is F16") as error:
        plan(plain, replace(draft, tensors=halves))
    assert (error.value.code, error.value.param) == ("unsupported_quantization", "draft")


def test_it_embeds_the_tokens_of_its_model(owned: ModelFiles) -> None:
    draft = draft_of(owned)
    table: TensorInfo = draft.tensors["token_embd.weight"]
    fewer = draft.tensors | {"token_embd.weight": replace(table, shape=(table.shape[0], 300))}
    with pytest.raises(WispError, match="it embeds 300 tokens, the model has 304"):
        plan(owned, replace(draft, tensors=fewer))


def test_tokens_of_its_own_need_an_output_matrix(owned: ModelFiles) -> None:
    with pytest.raises(WispError, match=r"it has 200 tokens of its own, and no output\.weight for them"):
        plan(owned, without(draft_of(owned), "output.weight"))


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        ([*range(199), 304], "its d2t has tokens that are none of the model's 304"),
        ([*range(199), 7], "its d2t has a token twice"),
    ],
)
def test_it_knows_tokens_of_its_model(owned: ModelFiles, tokens: list[int], why: str) -> None:
    with pytest.raises(WispError, match=why):
        plan(owned, draft_of(owned), tokens)


def test_its_tokens_are_a_list(owned: ModelFiles) -> None:
    draft = draft_of(owned)
    assert has_tokens(draft)
    assert read_tokens(owned.rows(f"{DRAFT}d2t", 0, 1)) == owned.draft_tokens()
    changed = replace(draft, tensors=draft.tensors | {"d2t": replace(draft.tensors["d2t"], type=Q.I32)})
    with pytest.raises(
        WispError,
        match=r"^Tensor d2t of the draft model's file is I32.* It must be a list of at most 1,048,576 tokens, as I64",
    ) as error:
        has_tokens(changed)
    assert error.value.param == "draft"


@pytest.mark.parametrize(("trained", "used"), [(32, 32), (4096, SIZES.n_ctx)])
def test_it_drafts_where_it_was_trained(plain: ModelFiles, trained: int, used: int) -> None:
    draft = plan(plain, edited(draft_of(plain), "context_length", trained)).draft
    assert draft is not None
    assert draft.n_ctx == used


@pytest.mark.parametrize(("block", "most"), [(ABSENT, 7), (2, 1), (5, 4), (16, 7)])
def test_a_draft_is_no_longer_than_its_blocks(plain: ModelFiles, block: object, most: int) -> None:
    draft = plan(plain, edited(draft_of(plain), "block_size", block)).draft
    assert draft is not None
    assert draft.most == most


def test_a_model_of_another_architecture_is_refused(plain: ModelFiles) -> None:
    model = plain.parts.header
    other = replace(model, metadata=model.metadata | {"general.architecture": "gpt2"})
    with pytest.raises(WispError, match=r"DFlash model does not fit .* it drafts for gemma4, .*; the model is gpt2"):
        check_draft(other, draft_of(plain))


def test_alone_it_says_what_it_needs(plain: ModelFiles) -> None:
    with pytest.raises(WispError, match="load that model, with this file as its draft model"):
        family(draft_of(plain))


class Named:
    """A source whose content is known."""

    size = 0

    def __init__(self, name: str) -> None:
        self.name = name

    async def content(self) -> str:
        return self.name


async def test_prompts_that_another_one_has_read_are_not_read(plain: ModelFiles) -> None:
    async def layout(name: str) -> str:
        sources: list[Any] = [Named("model"), Named(name)]
        content = await Parts.of(sources, [plain.parts.headers[0], draft_of(plain)], 1).content()
        assert content is not None
        return layout_of(content, planned, "")

    planned = plan(plain, draft_of(plain))
    assert await layout("one") == await layout("one") != await layout("another")
