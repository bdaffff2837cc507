"""Logits and greedy tokens in the browser: every architecture on lavapipe, some llamas on SwiftShader and on the CPU
(tests/unit/test_goldens.py runs every model with numpy).
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from py_engine.plan.pooling import NAMES
from tests.support.diffusion_cases import N_CTX
from tests.support.diffusion_cases import runs as diffusion_runs
from tests.support.engine_driver import floats, logits_of, run
from tests.support.golden_ops import representatives
from tests.support.tolerances import assert_close, assert_same_direction, same_ids
from tools.goldens import GOLDEN, golden_models
from tools.selection import everything

FILES = [f"{p.parent.name}/{p.stem}" for p in golden_models()]
EMBEDDING = [name for name in FILES if name.startswith("embedding/")]
DIFFUSION = [name for name in FILES if name.startswith("diffusion/")]
ANSWERS = [name for name in FILES if name.startswith("encoder_decoder/")]
MODELS = [name for name in FILES if name not in (*EMBEDDING, *DIFFUSION, *ANSWERS)]
WAYS = {  # name -> (adapter, backend, KV cache, precision)
    "swiftshader": ("swiftshader", "webgpu", "f32", "f32"),
    "lavapipe": ("lavapipe", "webgpu", "f16", "f16"),
    "lavapipe-wide": ("lavapipe-wide", "webgpu", "f16", "f16"),
    "lavapipe-f32": ("lavapipe", "webgpu", "f32", "f32"),
    "cpu": ("cpu", "cpu", "f32", "f32"),
}


# SwiftShader compiles the kernels of every load again (Mesa's cache is lavapipe's), and numpy computes the same inside
# and outside a browser. tests/kernels runs every kernel and every type on SwiftShader, too.
SOME = {"swiftshader": {"llama.Q4_K"}, "cpu": {"llama.F16", "llama.Q4_K", "mixtral.F16"}}
# In subgroups of 8, kernels whose threads add by shuffles: products, scans, residual streams and experts.
WIDE = {"llama/llama.Q4_K_M", "gemma/gemma3n.F16", "qwen35/qwen35moe.F16", "rwkv/rwkv7.F16", "mamba/mamba2.F16"}
# On lavapipe, a selection of models that covers every pair of a kernel's switches (golden_ops.py), and llama with one
# type of each kind; Q4_K_M has Q4_K and Q6_K. tests/unit runs all models on the CPU engines. WISP_ALL=1
# runs them here, too.
KINDS = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_1", "Q4_K_M", "IQ4_XS", "IQ2_XXS", "TQ1_0", "MXFP4"}
# An index that chooses a small part of the positions has near ties, which f16's roundings would decide otherwise.
SMALL_TOP_K = {"qwen35/qwen4exp-top8.F16"} | {
    f"latent/{name}.F16"
    for name in ("deepseek32-top6", "deepseek4-top3", "dots3note-top8", "glm-dsa-top9", "glm5-next-top8", "hy_v4-top5")
}
# llama.cpp's own roundings move the first model's logits four times as far as deepseek2.F16's, which has the same ops:
# f16's roundings would move them by more than the tolerance.
SENSITIVE = {"latent/deepseek2-joined.F16", *SMALL_TOP_K}
EVERY_PAIR = {
    f"{path.parent.name}/{path.stem}"
    for models in (MODELS, EMBEDDING)
    for path in representatives(tuple(GOLDEN / f"{model}.gguf" for model in models if model not in SENSITIVE))
} | {"diffusion/dream-tied.F16", "diffusion/llada-moe.F16", *ANSWERS}


def runs(model: str, way: str) -> bool:
    """Whether a golden runs in one of WAYS."""
    name, _, kind = model.removeprefix("llama/").partition(".")
    if way == "lavapipe-wide":
        return model in WIDE
    if way == "lavapipe-f32":
        return model in SMALL_TOP_K
    if way == "lavapipe":
        every = everything() and model not in SENSITIVE
        return every or (model not in WIDE and (model in EVERY_PAIR or (name == "llama" and kind in KINDS)))
    return model.removeprefix("llama/") in SOME[way]


CASES = [(model, way) for way in WAYS for model in MODELS if runs(model, way)]


def assert_proven(proof: dict[str, Any]) -> None:
    """The proof has run every kernel, and no alarm is false."""
    assert not proof["wrong"]
    assert not proof["skipped"]
    assert proof["checked"] + proof["known"] > 5


@pytest.mark.parametrize(("model", "way"), CASES)
def test_logits_and_greedy_ids(engine_pages: Callable[[str | None], Page], model: str, way: str) -> None:
    adapter, backend, kv_type, precision = WAYS[way]
    golden = np.load(GOLDEN / f"{model}.npz")
    about = json.loads((GOLDEN / f"{model}.json").read_text())
    args = {"prompt": golden["prompt"].tolist(), "count": len(golden["greedy"])}
    long = golden["long_prompt"].tolist() if "long_prompt" in golden else []
    out = run(
        engine_pages(adapter),
        f"/repo/tests/golden/{model}.gguf",
        "engines.evaluate_long_too",
        args | {"long": long},
        backend=backend,
        kv_type=kv_type,
        variant={"f16": False} if way == "lavapipe-f32" else {},
        context_length=about["settings"]["n_ctx"],
        prove=True,
    )
    assert out["backend"] == backend
    if backend == "webgpu":
        assert_proven(out["proof"])
    assert_close(golden["logits_ref"], logits_of(out), precision)
    noise = about["llama_cpp_vs_reference"]["max_abs"] + (2e-3 if precision == "f32" else 0.15)
    same_ids(golden["greedy"], out["ids"], about["greedy_margin"], noise)
    if long:
        want = golden["long_logits_ref"] if "long_logits_ref" in golden else golden["long_logits"]
        assert_close(want, logits_of(out["long"])[-len(want) :], precision)


@pytest.mark.lavapipe
@pytest.mark.parametrize("model", [model for model in EMBEDDING if runs(model, "lavapipe")])
def test_embeddings(engine_pages: Callable[[str | None], Page], model: str) -> None:
    """Every pooling. The default is the model's own; an encoder rejects generation."""
    golden = np.load(GOLDEN / f"{model}.npz")
    about = json.loads((GOLDEN / f"{model}.json").read_text())
    out = run(
        engine_pages("lavapipe"),
        f"/repo/tests/golden/{model}.gguf",
        "engines.embed_with_each",
        {"prompt": golden["prompt"].tolist(), "kinds": [name for name in NAMES if f"embd_{name}" in golden]},
        backend="webgpu",
        context_length=about["settings"]["n_ctx"],
        prove=True,
    )
    assert_proven(out.pop("proof"))
    assert out.pop("code", "unsupported_parameter") == "unsupported_parameter"
    for kind, (data, shape) in out.items():
        name = about["default_pooling"] if kind == "None" else kind
        want = golden[f"embd_{name}_ref"]
        assert_same_direction(want, floats(data, shape), "f16")
        length, right = (np.linalg.norm(x, axis=-1) for x in (floats(data, shape), want))
        np.testing.assert_allclose(length, right, rtol=0.02)


@pytest.mark.lavapipe
@pytest.mark.parametrize("model", [model for model in DIFFUSION if runs(model, "lavapipe")])
def test_diffusion(engine_pages: Callable[[str | None], Page], model: str) -> None:
    """Logits of a prompt with masks in f16 and f32; in f32, also what each schedule and algorithm fills in."""
    golden = np.load(GOLDEN / f"{model}.npz")
    wanted = diffusion_runs(GOLDEN / f"{model}.gguf")
    given = [{"prompt": one.prompt, "count": len(one.ids), "options": one.options} for one in wanted]
    for precision, requests in (("f16", given[:1]), ("f32", given)):
        out = run(
            engine_pages("lavapipe"),
            f"/repo/tests/golden/{model}.gguf",
            "engines.evaluate_and_fill_in",
            {"prompt": golden["prompt"].tolist(), "runs": requests},
            backend="webgpu",
            variant={} if precision == "f16" else {"f16": False},
            context_length=N_CTX,
            prove=True,
        )
        assert_proven(out["proof"])
        assert_close(golden["logits_ref"], logits_of(out), precision)
        if precision == "f32":
            assert out["ids"] == [one.ids for one in wanted]
        else:
            assert len(out["ids"][0]) == len(wanted[0].ids)


@pytest.mark.parametrize(("model", "way"), [*((model, "lavapipe") for model in ANSWERS), (ANSWERS[0], "cpu")])
def test_answers(engine_pages: Callable[[str | None], Page], model: str, way: str) -> None:
    """Logits of a decoder's answers to prompts that an encoder has read, and greedy ids, alone and side by side."""
    adapter, backend, kv_type, precision = WAYS[way]
    golden = np.load(GOLDEN / f"{model}.npz")
    about = json.loads((GOLDEN / f"{model}.json").read_text())
    names = ("", "long_")
    out = run(
        engine_pages(adapter),
        f"/repo/tests/golden/{model}.gguf",
        "engines.evaluate_answers",
        {
            "prompts": [golden[name + "prompt"].tolist() for name in names],
            "answers": [golden[name + "answer"].tolist() for name in names],
            "count": len(golden["greedy"]),
        },
        backend=backend,
        kv_type=kv_type,
        context_length=about["settings"]["n_ctx"],
        prove=True,
    )
    assert out["backend"] == backend
    if backend == "webgpu":
        assert_proven(out["proof"])
    for name, found in zip(names, out["evaluated"], strict=True):
        want = golden[name + "logits_ref"]
        assert_close(want, logits_of(found)[-len(want) :], precision)
    noise = about["llama_cpp_vs_reference"]["max_abs"] + (2e-3 if precision == "f32" else 0.15)
    same_ids(golden["greedy"], out["alone"][0], about["greedy_margin"], noise)
    assert out["batched"] == out["alone"]


@pytest.mark.lavapipe
@pytest.mark.parametrize(
    ("model", "software"),
    [
        ("embedding/bert.F16", True),
        ("embedding/bert.F16", False),
        ("embedding/modern-bert.F16", True),
        ("llama/llama.Q4_0", True),
    ],
)
def test_packed_embeddings(engine_pages: Callable[[str | None], Page], model: str, software: bool) -> None:
    """Sequences in groups have the embeddings that each has alone. A real GPU gets the next group before the result of
    the one before is read.
    """
    about = json.loads((GOLDEN / f"{model}.json").read_text())
    prompt = np.load(GOLDEN / f"{model}.npz")["prompt"].tolist()
    groups = [[prompt, prompt[:1], prompt[3:9]], [prompt[5:]], [prompt[:7], prompt[2:]]]
    packed, alone = run(
        engine_pages("lavapipe"),
        f"/repo/tests/golden/{model}.gguf",
        "engines.embed_packed",
        {"groups": groups, "pooling": "mean"},
        backend="webgpu",
        context_length=about["settings"]["n_ctx"],
        variant={"software": software},
    )
    assert len(packed) == 6
    assert_same_direction(np.array(alone, np.float32), np.array(packed, np.float32), "f16")
    np.testing.assert_allclose(np.linalg.norm(packed, axis=1), 1, rtol=1e-4)


@pytest.mark.lavapipe
@pytest.mark.parametrize(
    ("adapter", "model", "variant"),
    [
        ("lavapipe", "llama.Q4_0", {"dot8": True}),
        ("lavapipe", "llama.Q8_0", {"subgroup": 0, "dot8": True, "software": False}),
        ("lavapipe-wide", "llama.Q4_K_M", {"software": False, "dot8": True}),  # two matrices in one dispatch
        ("lavapipe", "llama.Q4_0", {"f16": False, "software": False}),
        ("lavapipe", "llama.Q4_K_M", {"f16": False, "subgroup": 0, "dot8": True}),
    ],
    ids=str,
)
def test_every_variant_gives_llama_cpps_logits_and_ids(
    engine_pages: Callable[[str | None], Page], adapter: str, model: str, variant: dict[str, bool | int]
) -> None:
    """Variants that this GPU would not choose, every two together: activations in bytes, no f16, no subgroups, tiles of
    hardware GPUs. No software GPU has subgroup matrices; tests/kernels/test_matrices.py emulates them in plain WGSL.
    """
    golden = np.load(GOLDEN / "llama" / f"{model}.npz")
    about = json.loads((GOLDEN / "llama" / f"{model}.json").read_text())
    out = run(
        engine_pages(adapter),
        f"/repo/tests/golden/llama/{model}.gguf",
        "engines.evaluate_and_generate",
        {"prompt": golden["prompt"].tolist(), "count": len(golden["greedy"])},
        backend="webgpu",
        kv_type="f32",
        context_length=about["settings"]["n_ctx"],
        variant=variant,
        tune=False,
    )
    device = out["kernels"]["device"]
    assert all(device.get(name, value) == value for name, value in variant.items())
    precision = "int8" if variant.get("dot8") else "f32"
    assert_close(golden["logits_ref"], logits_of(out), precision)
    # llama.cpp rounds activations to bytes, too: the same error is allowed here
    noise = 2 * about["llama_cpp_vs_reference"]["max_abs"] + 0.15
    same_ids(golden["greedy"], out["ids"], about["greedy_margin"], noise)


def test_model_in_several_files(engine_pages: Callable[[str | None], Page]) -> None:
    """A set of three files, loaded together. One file alone is rejected, and the error says what to do."""
    folder = GOLDEN / "split"
    golden = np.load(folder / "llama.split.F16.npz")
    urls = [f"/repo/tests/golden/split/{p.name}" for p in sorted(folder.glob("*.gguf"))]
    out = run(
        engine_pages("swiftshader"),
        urls,
        "engines.load_a_part_alone",
        {"url": urls[0], "prompt": golden["prompt"].tolist()},
        backend="cpu",
        kv_type="f32",
    )
    assert_close(golden["logits_ref"], logits_of(out), "f32")
    assert out["code"] == "truncated_file"
    assert "3 files" in out["message"]


@pytest.mark.lavapipe
@pytest.mark.parametrize(("adapter", "quant"), [("lavapipe-optimized", "q4_0"), ("lavapipe-optimized", "q8_0")])
def test_chats_match_llama_cpp(engine_pages: Callable[[str | None], Page], adapter: str, quant: str) -> None:
    """At most one of the embedded model's greedy answers differs, or one of twenty, and only at a near tie.

    The 4-bit model answers every sixth chat, the 8-bit model every fourteenth; WISP_ALL=1: all.
    """
    step = 1 if everything() else 6 if quant == "q4_0" else 14
    chats = json.loads((GOLDEN / "wisp-mini-chat.json").read_text())["chats"][::step]
    wanted = [{"prompt": c["prompt_tokens"], "tokens": c["answers"][quant]["tokens"]} for c in chats]
    out = run(
        engine_pages(adapter),
        f"/repo/static/models/wisp-mini-{quant}.gguf",
        "engines.differing_chats",
        {"chats": wanted},
        backend="webgpu",
    )
    for one in out:
        print(f"{quant}, chat {chats[one['chat']]['id']}: token {one['at']} differs by a logit gap of {one['gap']:.4f}")
    assert len(out) <= max(1, 0.05 * len(chats))
    assert all(0 <= one["gap"] < 0.05 for one in out)
