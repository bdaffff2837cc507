"""The proof's cases of every architecture, the comparison with numpy's results, and what replaces wrong kernels."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench import shapes
from bench.adapters import write_adapters
from py_engine import planner
from py_engine.cpu import sampling
from py_engine.cpu.sampling import filtered, settings_of
from py_engine.gpu import repack
from py_engine.plan import tiles
from py_engine.plan.cache import page_group
from py_engine.plan.kernels import Device
from py_engine.plan.latent_attention import LatentShape, make_latent_cache
from py_engine.plan.lists import SMALL_BATCH, adapted
from py_engine.plan.ops import AttentionOptions, Ops
from py_engine.plan.plan import Plan
from py_engine.plan.sampler_ops import BLOCK
from py_engine.plan.sampling import FIELDS
from py_engine.proof import comparison
from py_engine.proof.case import Case
from py_engine.proof.cases import cases
from py_engine.proof.upload_cases import upload_cases
from py_engine.proof.variants import WrongKernels, blamed, check, shaders_of, variants
from tests.support import cpu_models
from tests.support.cpu_models import GOLDEN, ONE_OF_EACH, header, with_vocab
from tests.support.devices import GPU
from tests.support.golden_adapters import files

SOFTWARE = Device(subgroup=4, software=True)
WITH_MEDIA = {"vision/gemma3": 64, "vision/qwen3vl": 192}  # width of an embedding
MODELS = [
    *ONE_OF_EACH,
    "llama/llama-scales.NVFP4",
    "latent/glm-dsa-top9.F16",
    "latent/deepseek4-top3.F16",
    "latent/glm5-next-top8.F16",
    "qwen35/qwen4exp-top8.F16",
    "embedding/lfm2-embedding.F16",
    "embedding/modern-bert-rank.F16",
    "gemma/gemma3n.F16",
    "llama/mixtral.Q4_K_M",
    "llama/llama.Q4_K_M",
    "llama/llama.IQ1_M",
]
PROJECTORS = (
    "adapter",
    "deepseekocr2",
    "dots3note.media",
    "exaone4_5",
    "gemma3",
    "gemma3nv",
    "gemma4",
    "glm5v",
    "granite_speech",
    "internvl",
    "ldp",
    "ldpv2",
    "llama4",
    "meralion",
    "mimo",
    "mimovl",
    "minicpmv",
    "minimax_m3",
    "mlp.norm",
    "muse-glimmer",
    "nemotron_omni",
    "pixtral.merge",
    "qwen2.5vl",
    "qwen3a",
    "qwen3vl",
    "step3vl",
    "ultravox",
    "yasa2",
    "youtuvl",
)
MODELS += [f"vision/{name}.mmproj" for name in PROJECTORS]


def numpys(case: Case) -> dict[str, np.ndarray]:
    """Numpy's results, with the bounds of the filters, which its sampler does not need."""
    found = dict(case.want)
    names = {name: b.name for op in case.ops for name, b in op.bindings.items()}
    if "bounds" in names:
        op = next(op for op in case.ops if op.kernel == "sample_draw")
        logits = op.bindings["logits"].name
        values = case.want.get(logits, case.data[logits]).reshape(-1, int(op.consts["stride"]))
        for m, (wanted, seq, at, _) in enumerate(found[names["rows"]][: len(values)]):
            if wanted != 1:
                continue
            row, parameters = values[m, : int(op.consts["vocab"])], settings_of(case.data["sampling"][seq])
            keep = np.sort(row[filtered(row, parameters, int(at) + int(parameters["shifted"]))])[[0, -1]]
            found[names["bounds"]][m, :2] = comparison.keys_of(keep)
    return found


def wrong(case: Case, name: str, values: np.ndarray) -> str | None:
    return comparison.fault(case, numpys(case) | {name: values})


@pytest.mark.slow
@pytest.mark.parametrize("device", [GPU, SOFTWARE], ids=["gpu", "software"])
@pytest.mark.parametrize("model", [*MODELS, *WITH_MEDIA])
def test_every_kernel_of_every_architecture_has_a_case(model: str, device: Device) -> None:
    """A case passes with numpy's own results. A single other value in any of its outputs is a fault."""
    width, whole = WITH_MEDIA.get(model, 0), model in WITH_MEDIA
    options = planner.PlanOptions(512, 128, "f16", media_width=width, whole_media=whole)
    plan = planner.make_plan(header(model), device, options)
    made = [*cases(plan, device, plan.lists, lambda shader: False), *upload_cases(plan, device, lambda shader: False)]
    found = {shader.label for case in made for shader in case.shaders}
    assert found == {s.label for s in [*shaders_of(plan, device, plan.lists), *repack.shaders(plan, device)]}
    for case in made:
        assert comparison.fault(case, numpys(case)) is None
        for name, (op, binding) in case.written().items():
            values = case.want[name].copy()
            if binding in comparison.PASSED_ON or values.dtype == np.uint32:
                continue
            at = np.flatnonzero(~np.isnan(values.reshape(-1)))
            if not len(at):  # nothing is written, such as keys of a layer that shares another's cache
                continue
            usual = np.sqrt(np.mean(values.reshape(-1)[at].astype(np.float64) ** 2))
            values.reshape(-1)[at[-1]] += usual or 1.0  # of rows that are set to zero
            assert wrong(case, name, values), f"{op.kernel} {binding}"


def test_a_case_of_pinned_loads_has_inputs_and_results() -> None:
    """Inputs that are bound as read_write are not poisoned as results are: no fault would be seen among NaNs."""
    plan = planner.make_plan(header("vision/gemma3.mmproj"), GPU, planner.PlanOptions(512, 128, "f16"))
    made = [
        case for case in cases(plan, GPU, plan.lists, lambda s: s.kernel != "matmul_matrix") if case.shaders[0].pinned
    ]
    assert {case.ops[0].params["EPILOGUE"] for case in made} == {"store", "split", "accumulate", "activate"}
    for case in made:
        bound = {name: b.name for name, b in case.ops[0].bindings.items()}
        assert bound["x"] not in case.want
        assert np.isfinite(case.data[bound["x"]][: case.batch.n]).all()
        assert np.isfinite(case.want[bound["y"]][: case.batch.n]).any(axis=1).all()


def test_a_batch_norm_in_a_case_has_a_positive_variance() -> None:
    """Of random numbers, half would have no root."""
    plan = planner.make_plan(header("vision/nemotron_omni.mmproj"), GPU, planner.PlanOptions(512, 128, "f16"))
    made = cases(plan, GPU, plan.lists, lambda shader: shader.kernel != "depthwise")
    found = [(case, name, op) for case in made for name, (op, _) in case.written().items() if op.params["TERMS"] == 4]
    assert found
    for case, name, op in found:
        assert np.isfinite(case.want[name][: case.batch.n, : op.params["CHANNELS"]]).all()


@pytest.mark.slow
@pytest.mark.parametrize("device", [GPU, SOFTWARE], ids=["gpu", "software"])
def test_every_kernel_of_adapters_has_a_case(device: Device) -> None:
    found = [GOLDEN / "lora" / f"lora-llama.Q4_K_M.{part}.gguf" for part in "abc"]
    adapters = cpu_models.load(GOLDEN / "llama" / "llama.Q4_K_M.gguf", 64, adapters=found).plan.adapters
    plan = planner.make_plan(
        header("llama/llama.Q4_K_M"), device, planner.PlanOptions(64, 16, "f16", adapters=adapters)
    )
    made = list(cases(plan, device, plan.lists, lambda shader: shader.kernel not in ("add_low_rank", "add_direction")))
    names = {s.label for s in shaders_of(plan, device, plan.lists) if s.kernel in ("add_low_rank", "add_direction")}
    assert names
    assert names <= {shader.label for case in made for shader in case.shaders}
    assert all(comparison.fault(case, numpys(case)) is None for case in made)


@pytest.mark.slow
@pytest.mark.parametrize("device", [GPU, SOFTWARE], ids=["gpu", "software"])
@pytest.mark.parametrize("case", ["lora-qwen3moe.F16", "lora-gemma4-moe.F16"])
def test_every_kernel_of_experts_adapters_has_a_case(case: str, device: Device) -> None:
    """A value of each kernel's result that is another one is a fault."""
    path, adapters = files(case)
    given = cpu_models.load(path, 64, adapters=adapters).plan.adapters
    model = planner.make_plan(
        cpu_models.header(str(path.relative_to(GOLDEN)).removesuffix(".gguf")), device,
        planner.PlanOptions(64, 16, "f16", adapters=given),
    )  # fmt: skip
    kernels = ("expert_low_rank", "add_expert_low_rank")
    made = list(cases(model, device, model.lists, lambda shader: shader.kernel not in kernels))
    names = {s.label for s in shaders_of(model, device, model.lists) if s.kernel in kernels}
    assert names
    assert names == {shader.label for case in made for shader in case.shaders}
    for one in made:
        assert comparison.fault(one, numpys(one)) is None
        (name,) = one.written()
        values = one.want[name].copy()
        at = np.flatnonzero(np.isfinite(values) & (values != one.data[name]))
        values.reshape(-1)[at[-1]] += np.sqrt(np.mean(values.reshape(-1)[at].astype(np.float64) ** 2))
        assert wrong(one, name, values), name


@pytest.mark.slow
def test_what_adapters_add_beside_products_has_cases(tmp_path: Path) -> None:
    """Two adapters of all matrices, of one type and rank."""
    model = "llama/llama.Q4_K_M"
    paths = write_adapters(GOLDEN / f"{model}.gguf", tmp_path, 2, 5)
    adapters = cpu_models.load(GOLDEN / f"{model}.gguf", 64, adapters=paths).plan.adapters
    plan = planner.make_plan(header(model), GPU, planner.PlanOptions(64, 16, "f16", adapters=adapters))
    ops = plan.lists[adapted(SMALL_BATCH)]
    assert {op.kernel for op in ops if op.params.get("LOW_RANK")} == {"matvec_small_batch"}
    assert {op.kernel for op in ops if op.params.get("ADDED")} == {"rope_append", "quantize_rows"}
    assert {op.params["GATED"] for op in ops if op.kernel == "quantize_rows" and op.params.get("ADDED")} == {0, 1}
    assert not [op for op in ops if op.kernel == "add_low_rank"]
    made = list(cases(plan, GPU, [adapted(SMALL_BATCH)], lambda shader: False))
    assert {s.label for s in shaders_of(plan, GPU, [adapted(SMALL_BATCH)])} <= {
        s.label for c in made for s in c.shaders
    }
    assert all(comparison.fault(case, numpys(case)) is None for case in made)


def test_a_draft_after_the_fewest_tokens_that_match_is_among_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that needs one token more would make fewer drafts, and no other text."""
    plan = planner.make_plan(header("llama/llama.Q4_0"), SOFTWARE, planner.PlanOptions(512, 64, "f32"))
    names = ["greedy_verify", "draw_verify", "sample_verify"]

    def drafts() -> list[list[int]]:
        made = cases(plan, SOFTWARE, names, lambda shader: False)
        several = [case for case in made if len({seq for _, seq in case.batch.places}) > 1]
        return [case.want["drafting"][:, 3].tolist() for case in several]

    right, find = drafts(), sampling._find_match
    monkeypatch.setattr(sampling, "_find_match", lambda tokens, least: find(tokens, least + 1))
    assert len(right) > 1
    assert all(a != b for a, b in zip(right, drafts(), strict=True))


def test_a_bound_among_logits_of_two_blocks_in_one_bucket_is_among_the_cases() -> None:
    """Else wrong places of a bucket's second block would not show."""
    plan = planner.make_plan(with_vocab(header("llama/llama.Q4_0")), SOFTWARE, planner.PlanOptions(512, 64, "f32"))
    found = 0
    for case in cases(plan, SOFTWARE, ["sample"], lambda shader: False):
        names = {name: b.name for op in case.ops for name, b in op.bindings.items()}
        vocab = int(case.ops[0].consts["vocab"])
        logits, bounds = case.data[names["logits"]][0, :vocab], numpys(case)[names["bounds"]][0]
        passed = (comparison.keys_of(logits) >= bounds[0]).sum()
        crowd = np.flatnonzero(logits >= logits.max() - 1 / 256)
        blocks = Counter(int(token) // BLOCK for token in crowd if token % BLOCK >= BLOCK // 2)
        found += passed < len(crowd) and len(blocks) > 1 and min(blocks.values()) > 1
    assert found


def test_a_wrong_mean_of_the_logits_lets_other_tokens_pass() -> None:
    """A kernel that finds another mean finds a larger deviation from it."""
    plan = planner.make_plan(with_vocab(header("llama/llama.Q4_0")), SOFTWARE, planner.PlanOptions(512, 64, "f32"))
    changed = []
    for case in cases(plan, SOFTWARE, ["sample"], lambda shader: False):
        names = {name: b.name for op in case.ops for name, b in op.bindings.items()}
        fields = case.data[names["sampling"]][case.batch.places[0][1]]
        sigma = float(fields.view(np.float32)[list(FIELDS).index("top_n_sigma")])
        if sigma <= 0:
            continue
        logits = case.data[names["logits"]][0, : int(case.ops[0].consts["vocab"])]
        passed = [
            int((logits >= logits.max() - sigma * np.sqrt(((logits - mean) ** 2).mean())).sum())
            for mean in (logits.mean(), logits.mean() / 8)
        ]
        changed.append(passed[1] > 2 * passed[0])
    assert len(changed) == 2
    assert all(changed)


def test_what_must_stay_untouched_is_compared() -> None:
    plan = planner.make_plan(header("llama/llama.Q4_0"), SOFTWARE, planner.PlanOptions(512, 64, "f32"))
    case = next(c for c in cases(plan, SOFTWARE, ["prefill"], lambda s: False) if c.ops[0].kernel == "matmul")
    name = next(name for name, (_, binding) in case.written().items() if binding == "y")
    values = case.want[name].copy()
    values[-1, 0] = 0
    assert wrong(case, name, values) == "matmul: values where none belong"


@pytest.mark.parametrize(("steps", "faulty"), [(1, False), (8, True)])
def test_a_cached_value_may_be_rounded_to_its_neighbour(steps: int, faulty: bool) -> None:
    plan = planner.make_plan(
        shapes.header(shapes.SHAPES["llama-3.1-8b"], shapes.MIX), GPU, planner.PlanOptions(512, 64, "f16")
    )
    case = next(
        c for c in cases(plan, GPU, ["decode"], lambda s: False) if "k_cache" in c.shaders[0].bindings and c.written()
    )
    name = next(name for name, (_, binding) in case.written().items() if binding == "k_cache")
    values = case.want[name].copy()
    at = np.nanargmax(values)
    for _ in range(steps):
        values.reshape(-1)[at] = np.nextafter(values.reshape(-1)[at], np.float16(np.inf))
    assert (wrong(case, name, values) is not None) == faulty


def test_what_is_computed_in_place_has_values() -> None:
    """Of NaNs a GPU may make any value: the case would prove nothing, or refuse a kernel that is right."""
    plan = planner.make_plan(header("rwkv/rwkv7.F16"), SOFTWARE, planner.PlanOptions(512, 64, "f32"))
    made = list(cases(plan, SOFTWARE, plan.lists, lambda shader: shader.kernel != "wkv7_inputs"))
    assert made
    for case in made:
        name = case.ops[-1].bindings["x"].name
        assert not np.isnan(case.want[name]).any()


def test_known_kernels_have_no_case() -> None:
    plan = planner.make_plan(header("llama/llama.Q4_0"), SOFTWARE, planner.PlanOptions(512, 64, "f32"))
    labels = {
        s.label for c in cases(plan, SOFTWARE, plan.lists, lambda s: not s.label.startswith("norm")) for s in c.shaders
    }
    assert labels
    assert all(label.startswith("norm") for label in labels)


def test_variants_begin_with_the_least_change() -> None:
    found = list(variants(GPU, ()))
    assert [lacks for _, lacks in found[:4]] == ["subgroup matrices", "integer dot products", "f16", "subgroups"]
    assert found[2][0] == replace(GPU, f16=False, matrix=0)
    assert found[-1][0] == replace(GPU, f16=False, matrix=0, dot8=False, subgroup=0)
    assert len({device for device, _ in found}) == len(found)
    assert all(device.subgroup == 32 for device, _ in variants(GPU, {"subgroup"}))
    assert not list(variants(Device(), ()))


def test_wrong_kernels_are_named() -> None:
    plan = planner.make_plan(header("llama/llama.Q4_0"), SOFTWARE, planner.PlanOptions(512, 64, "f32"))
    shaders = shaders_of(plan, SOFTWARE, ["decode"])

    class Known:
        def fault(self, shader: object) -> str:
            return "off by 2" if shader is shaders[1] else ""

    check(shaders[:1], Known())
    with pytest.raises(WrongKernels, match=r"The kernel \w+ does not work on this GPU \(off by 2\)\."):
        check(shaders, Known())


def test_a_wrong_case_blames_the_kernels_that_another_variant_replaces() -> None:
    plan = planner.make_plan(header("llama/llama.Q4_0"), SOFTWARE, planner.PlanOptions(512, 64, "f32"))
    shaders = shaders_of(plan, SOFTWARE, ["greedy"])
    assert {s.label.partition(" ")[0] for s in blamed(shaders)} == {"sample_best", "sample"}
    plain = shaders_of(plan, replace(SOFTWARE, subgroup=0), ["greedy"])
    assert blamed(plain) == plain


def test_heads_that_several_workgroups_share_are_all_joined() -> None:
    device = Device(f16=True, subgroup=32, max_workgroup_storage=48 << 10)
    plan = Plan(64, 512, 1)
    ops = Ops(plan, SMALL_BATCH, 8, device, state_per_token=True)
    shape = LatentShape(heads=16, rank=512, nope=128, rope=64, value=128)
    cache = make_latent_cache(plan, 0, shape, "f16", page_group(plan, 0))
    ops.attention(ops.rows("q", 16 * shape.row), cache, (16, 1, shape.row), AttentionOptions(0.1))
    made = [case.ops for case in cases(plan, device, [SMALL_BATCH], lambda shader: False)]
    assert [bool(decode.contexts.up_to) for decode, _ in made] == [True, False], "of short contexts, and of longer ones"
    for decode, combine in made:
        shared = int(decode.params["SHARE"]) * int(decode.params["G"]) * int(decode.consts["n_head_kv"])
        assert int(decode.params["SHARE"]) > 1
        assert combine.consts["n_head"] == shared


@pytest.mark.parametrize("name", ["decode", SMALL_BATCH])
def test_the_kernel_of_long_contexts_computes_all_tokens_of_its_cases(name: str) -> None:
    """Also where few splits were measured to be best, which shorter contexts would fill."""
    shape = shapes.SHAPES["llama-3.2-1b"]
    tile = tiles.attention_key(600, shape.head_dim, shape.n_head // shape.n_head_kv), (32, 2, 9)
    device = replace(GPU, matrix=0, max_binding=1 << 31, max_buffer=1 << 31, tiles=(tile,))
    plan = planner.make_plan(shapes.header(shape, shapes.MIX), device, planner.PlanOptions(600, 64, "f16"))
    made = list(cases(plan, device, [name], lambda shader: shader.kernel != "attention_decode_tiles"))
    assert made
    for case in made:
        parts = case.want[case.ops[0].bindings["parts"].name]  # (tokens, heads, splits, head_dim + 4)
        assert not np.isnan(parts[: case.batch.n, :, 0, : shape.head_dim]).any()
