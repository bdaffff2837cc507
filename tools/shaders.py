"""Validate every shader that the golden models need, and models of real sizes, with Dawn, Chromium's WebGPU.

Each model is planned for several devices that differ in features and limits, so that every kernel variant is
expanded. Dawn's null backend compiles WGSL without running it: no GPU and no browser are needed.

python3 -m tools.shaders [--quick | FILE.gguf ...]

--quick: for two of the devices, the least and one with every feature.
Each model is planned for these two and one of the others in turn, so that models of an architecture differ in it.
tools/shader_choice.py selects among shaders that differ only in numbers. WISP_ALL=1 validates all, for all devices.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from bench import encoder_shapes, shapes
from py_engine import planner
from py_engine.errors import WispError
from py_engine.files.adapter_header import prefixed
from py_engine.files.draft_header import ASSISTANT, DFLASH, EAGLE
from py_engine.files.draft_header import prefixed as prefixed_draft
from py_engine.files.gguf_header import Header, parse
from py_engine.gpu import repack
from py_engine.plan import kernels, matmul_tiles
from py_engine.plan.adapters import Adapters, read_adapters
from py_engine.plan.kernels import Device, Shader
from py_engine.plan.processors import lists_of, processor
from py_engine.tuning import read_rate
from tools.failure import Failure
from tools.goldens import GOLDEN, adapters_of, golden_models, golden_projectors, text_models_with_media
from tools.npm import node
from tools.paths import ROOT
from tools.selection import everything
from tools.shader_cache import VALIDATOR, LastRun
from tools.shader_choice import chosen

MARK = "#wgsl "  # begins each line of the validator; Dawn's own log has lines without it
DONE = "done"  # its last line
BATCH = 400  # shaders that one process of Dawn validates
WAIT_S = 120.0  # for a batch; it takes a second or two
ATTEMPTS = 4
REAL_TYPES = (shapes.MIX, "Q4_0", "Q8_0")  # file types of the models of real sizes
N_CTX = 1024  # tokens: more than attention of short contexts has
WITH_ADAPTERS = tuple(GOLDEN / name for name in ("llama/llama.Q4_K_M.gguf", "gemma4/gemma4-moe.F16.gguf"))
PLAIN = processor("fn process(token: u32, logit: f32) -> f32 { return f32(answer_count() + token_count()); }")
TABLED = processor("fn process(token: u32, logit: f32, by: f32) -> f32 { return by * table_at(token_at(token)); }")
PROCESSORS = (PLAIN, TABLED.with_values({"by": 1}, bytes(4)))
WITH_MTP = ("qwen35/qwen35", "experts/glm4moe", "latent/deepseek2")  # goldens that get a layer to predict tokens with
WITH_ASSISTANT, WITH_EAGLE, WITH_DFLASH = "gemma4/gemma4", "llama/llama", "qwen/qwen3"
READS_MEDIA = ("gemma3", "gemma4", "qwen2vl", "qwen3vl")  # the architectures with kernels of their own for media
WHOLE_MEDIA = ("gemma3", "gemma4")  # those whose projectors have tokens of a picture see all of it


class Setup(NamedTuple):
    """A device, and how a model is loaded on it."""

    device: Device
    batch: int  # tokens in one prefill step
    kv_type: str


SMALL = Device()  # the least that WebGPU guarantees: no feature, 16 KiB of workgroup memory, 256 threads
GPU = Device(
    f16=True, subgroup=32, max_workgroup_storage=49152, max_threads=1024, max_storage_buffers=16, dot8=True
)  # fmt: skip
MATRIX_GPU = replace(GPU, matrix=16)
SETUPS = (
    Setup(SMALL, 16, "f32"),
    Setup(Device(subgroup=4, software=True), 16, "q8_0"),
    Setup(Device(f16=True, subgroup=8, software=True), 16, "f16"),
    Setup(Device(f16=True, half_bits=False), 512, "q8_0"),
    Setup(GPU, 512, "f16"),
    Setup(MATRIX_GPU, 2048, "f16"),
    Setup(replace(GPU, max_workgroup_storage=32768, matrix=8), 64, "q8_0"),
)

QUICK = "--quick"
QUICK_SETUPS = (SETUPS[0], SETUPS[5])
IN_TURN = tuple(setup for setup in SETUPS if setup not in QUICK_SETUPS)


class Invalid(NamedTuple):
    """One error that Dawn found."""

    label: str  # the kernel and its parameters
    line: int  # in the expanded text, from 1
    message: str
    text: str  # of that line

    def __str__(self) -> str:
        return f"{self.label}\n    line {self.line}: {self.message}\n    {self.text.strip()}"


class Model(NamedTuple):
    """A model's header, the adapters that are loaded beside it, and the draft model."""

    header: Header
    adapters: Adapters
    draft: Header | None = None
    draft_tokens: list[int] | None = None  # that it knows; None: all


def models_of(files: Iterable[Path]) -> Iterator[Model]:
    """The named files. If none is named: the golden models, also with adapters, and bench/shapes.py's."""
    chosen = list(files)
    for path in chosen or [*golden_models(), *golden_projectors(), *text_models_with_media()]:
        yield Model(_header(path), Adapters())
    if not chosen:
        for path in WITH_ADAPTERS:
            adapters = [prefixed(_header(adapter), i) for i, adapter in enumerate(adapters_of(path))]
            yield Model(header := _header(path), read_adapters(header, adapters, ()))
        for name in WITH_MTP:
            yield Model(_with_mtp(_header(GOLDEN / f"{name}.F16.gguf")), Adapters())
        yield _with_assistant(_header(GOLDEN / f"{WITH_ASSISTANT}.F16.gguf"))
        for normed in (False, True):
            yield _with_eagle(_header(GOLDEN / f"{WITH_EAGLE}.F16.gguf"), normed=normed)
        for window in (0, 32):
            yield _with_dflash(_header(GOLDEN / f"{WITH_DFLASH}.F16.gguf"), window)
        for shape, type in itertools.product(shapes.SHAPES.values(), REAL_TYPES):
            yield Model(shapes.header(shape, type), Adapters())
        for encoder in encoder_shapes.SHAPES.values():
            yield Model(encoder_shapes.header(encoder), Adapters())


def _with_mtp(header: Header) -> Header:
    """A model's header with a layer for multi-token prediction: a copy of its last layer with attention."""
    arch, tensors = header.architecture, header.tensors
    blocks, width = header.arch("block_count"), header.arch("embedding_length")
    last = f"blk.{max(i for i in range(blocks) if f'blk.{i}.attn_output.weight' in tensors)}."
    added = {f"blk.{blocks}.{n.removeprefix(last)}": info for n, info in tensors.items() if n.startswith(last)}
    norm, table = tensors["output_norm.weight"], tensors["token_embd.weight"]
    own = dict.fromkeys(("enorm", "hnorm", "shared_head_norm"), norm)
    own |= {"eh_proj": replace(table, shape=(2 * width, width))}
    added |= {f"blk.{blocks}.nextn.{name}.weight": info for name, info in own.items()}
    metadata = header.metadata | {f"{arch}.block_count": blocks + 1, f"{arch}.nextn_predict_layers": 1}
    return replace(header, metadata=metadata, tensors=tensors | added)


def _with_assistant(header: Header) -> Model:
    """A Gemma 4 model beside an assistant: of half its width, with two layers like the model's last two."""
    blocks, wide = header.arch("block_count"), header.arch("embedding_length")
    width, heads = wide // 2, header.arch("attention.head_count")
    table, norm = header.tensors["token_embd.weight"], header.tensors["output_norm.weight"]
    shapes_of: dict[str, tuple[int, ...]] = {
        "token_embd": (width, table.shape[1]), "output_norm": (width,), "nextn.pre_projection": (2 * wide, width),
        "nextn.post_projection": (width, wide),
    }  # fmt: skip
    for i, key in enumerate(("attention.key_length_swa", "attention.key_length")):
        size = header.arch(key)
        layer: dict[str, tuple[int, ...]] = dict.fromkeys(
            ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"), (width,)
        )
        layer |= {"attn_q_norm": (size,), "layer_output_scale": (1,)}
        layer |= {"attn_q": (width, heads * size), "attn_output": (heads * size, width)}
        layer |= {"ffn_gate": (width, wide), "ffn_up": (width, wide), "ffn_down": (wide, width)}
        shapes_of |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    tensors = {
        f"{name}.weight": replace(norm if len(shape) == 1 else table, shape=shape) for name, shape in shapes_of.items()
    }
    ends = [header.arch("attention.head_count_kv")[i] for i in (blocks - 2, blocks - 1)]
    metadata = {key.replace("gemma4.", f"{ASSISTANT}."): value for key, value in header.metadata.items()}
    metadata |= {
        "general.architecture": ASSISTANT, f"{ASSISTANT}.block_count": 2, f"{ASSISTANT}.nextn_predict_layers": 2,
        f"{ASSISTANT}.embedding_length": width, f"{ASSISTANT}.embedding_length_out": wide,
        f"{ASSISTANT}.feed_forward_length": [wide, wide], f"{ASSISTANT}.attention.head_count_kv": ends,
        f"{ASSISTANT}.attention.sliding_window_pattern": [True, False],
    }  # fmt: skip
    draft = replace(header, metadata=metadata, tensors=tensors)
    return Model(replace(header, tensors=header.tensors | prefixed_draft(draft).tensors), Adapters(), draft)


def _with_eagle(header: Header, *, normed: bool) -> Model:
    """A model beside an EAGLE-3 head of half its width, with as many heads, which knows half of the tokens.

    `normed`: it normalises what it reads of the model, and its residual stream begins with a normalised state.
    """
    arch, wide, tensors = header.architecture, header.arch("embedding_length"), header.tensors
    width, table, norm = wide // 2, tensors["token_embd.weight"], tensors["output_norm.weight"]
    known = table.shape[1] // 2
    shapes_of: dict[str, tuple[int, ...]] = {
        "token_embd": (width, table.shape[1]), "output": (width, known), "output_norm": (width,),
        "fc": (3 * wide, width), "enc.output_norm": (3 * wide,), "blk.0.ffn_gate": (width, wide),
        "blk.0.ffn_up": (width, wide), "blk.0.ffn_down": (wide, width), "blk.0.attn_output": (wide, width),
    }  # fmt: skip
    shapes_of |= {f"blk.0.{name}": (width,) for name in ("attn_norm", "attn_norm_2", "ffn_norm")}
    for name in ("attn_q", "attn_k", "attn_v"):
        shapes_of[f"blk.0.{name}"] = 2 * width, tensors[f"blk.0.{name}.weight"].shape[1]
    own = {
        f"{name}.weight": replace(norm if len(shape) == 1 else table, shape=shape) for name, shape in shapes_of.items()
    }
    metadata = {key.replace(f"{arch}.", f"{EAGLE}."): value for key, value in header.metadata.items()}
    metadata |= {
        "general.architecture": EAGLE,
        f"{EAGLE}.attention.key_length": wide // header.arch("attention.head_count"),
    }
    metadata |= {f"{EAGLE}.block_count": 1, f"{EAGLE}.embedding_length": width, f"{EAGLE}.feed_forward_length": wide}
    metadata |= {f"{EAGLE}.target_layers": [1, 1, 1], f"{EAGLE}.target_hidden_size": wide}
    metadata |= {f"{EAGLE}.norm_before_{what}": normed for what in ("fc", "residual")}
    draft = replace(header, metadata=metadata, tensors=own)
    both = replace(header, tensors=tensors | prefixed_draft(draft).tensors)
    return Model(both, Adapters(), draft, list(range(known)))


def _with_dflash(header: Header, window: int) -> Model:
    """A Qwen 3 model beside a DFlash model with the model's own layers. `window`: of these; 0: none."""
    arch, width = header.architecture, header.arch("embedding_length")
    table, norm = header.tensors["token_embd.weight"], header.tensors["output_norm.weight"]
    metadata = {key.replace(f"{arch}.", f"{DFLASH}."): value for key, value in header.metadata.items()}
    metadata |= {"general.architecture": DFLASH, f"{DFLASH}.target_layers": [1, 1], f"{DFLASH}.block_size": 16}
    metadata |= {"tokenizer.ggml.mask_token_id": 0}
    if window:
        pattern = [True] * header.arch("block_count")
        metadata |= {f"{DFLASH}.attention.sliding_window": window}
        metadata |= {f"{DFLASH}.attention.sliding_window_pattern": pattern}
    own = {name: info for name, info in header.tensors.items() if name.startswith("blk.") or info is norm}
    own |= {"enc.output_norm.weight": norm, "fc.weight": replace(table, shape=(2 * width, width))}
    draft = replace(header, metadata=metadata, tensors=own)
    return Model(replace(header, tensors=header.tensors | prefixed_draft(draft).tensors), Adapters(), draft)


def _header(path: Path) -> Header:
    data = path.read_bytes()
    return parse(data, len(data))


def expanded(models: Iterable[Path], setups: Iterable[Setup] = SETUPS) -> Iterator[Shader]:
    """Yield each distinct shader of the models' plans: of named models in every setup, else as planned_for() says."""
    named = list(models)
    found = list(models_of(named))
    seen: set[str] = set()
    expansions: dict[Any, set[Any]] = {}
    for setup in setups:  # the outer loop: models of one setup share shaders
        known = expansions.setdefault(kernels.facts(setup.device), set())
        own = found if named else planned_for(setup, found)
        for shader in itertools.chain(_of_device(setup.device), *(_of_model(model, setup, known) for model in own)):
            if shader.code not in seen:
                seen.add(shader.code)
                yield shader


def planned_for(setup: Setup, models: Sequence[Model]) -> Sequence[Model]:
    """The models that are planned for a setup: each of IN_TURN has its own part of them, any other setup has all."""
    whole = everything() or setup not in IN_TURN
    return models if whole else models[IN_TURN.index(setup) :: len(IN_TURN)]


def of_encoder_tiles() -> Iterator[Shader]:
    """Yield the shaders of real encoders in f32 on a large GPU, and in each tile that tuning may choose."""
    wide = replace(GPU, f16=False)
    for shape in encoder_shapes.SHAPES.values():
        model = Model(encoder_shapes.header(shape), Adapters())
        yield from _of_model(model, Setup(wide, 512, "f32"), set())
        weights = planner.make_plan(model.header, MATRIX_GPU, planner.PlanOptions(N_CTX, 512, "f16")).weights
        keys = {matmul_tiles.matmul_key(weight) for weight in weights.values()}
        for tile in matmul_tiles.MATMUL_TILES:
            tuned = replace(MATRIX_GPU, tiles=tuple((key, tile) for key in keys))
            yield from _of_model(model, Setup(tuned, 512, "f16"), set())


def _of_device(device: Device) -> Iterator[Shader]:
    yield repack.checksum_shader(device)
    for loads in read_rate.LOADS:
        yield kernels.expand("read", {"WG": read_rate.THREADS, "LOADS": loads}, device)
    for stage in ("begin", "pairs", "newest", "end"):  # the others depend on a model
        yield kernels.expand("draft_states", {"STAGE": stage}, device)


def _of_model(model: Model, setup: Setup, known: set[Any]) -> Iterator[Shader]:
    """The shaders of a model's plan, without those of `known`, to which they are added."""
    device, header = setup.device, model.header
    options = planner.PlanOptions(
        N_CTX,
        setup.batch,
        setup.kv_type,
        media_width=_media_width(header),
        whole_media=header.architecture in WHOLE_MEDIA,
        adapters=model.adapters,
        mtp=True,
        draft=model.draft,
        draft_tokens=model.draft_tokens,
    )
    try:
        plan = planner.make_plan(header, device, options)
    except WispError:  # this model's rows do not fit a q8_0 cache
        plan = planner.make_plan(header, device, replace(options, kv_type="f16" if device.f16 else "f32"))
    for weight in plan.weights.values():
        if shader := repack.shader_for(weight, device):
            yield shader
    processors = [lists_of(plan, used) for used in PROCESSORS] if plan.generates else []
    for lists in (plan.lists, *processors):
        for op in itertools.chain(*lists.values()):
            key = op.kernel, *((name, type(value), value) for name, value in op.params.items())
            if key not in known:
                known.add(key)
                yield kernels.expand(op.kernel, op.params, device)


def _media_width(header: Header) -> int:
    """Values of an embedding of media, of the architectures that have goldens with media; 0 of others."""
    if header.architecture not in READS_MEDIA:
        return 0
    return int(header.arch("embedding_length")) * (1 + int(header.arch("n_deepstack_layers", 0)))


def validate(shaders: Iterable[Shader]) -> list[Invalid]:
    """Return Dawn's errors; Dawn works in processes of its own while `shaders` are being expanded."""
    rest = iter(shaders)
    with ThreadPoolExecutor(1) as dawn:
        batches = iter(lambda: list(itertools.islice(rest, BATCH)), [])
        answers = [dawn.submit(_validate, batch) for batch in batches]
    return [error for answer in answers for error in answer.result()]


def _validate(batch: list[Shader]) -> list[Invalid]:
    """Validate in one process. Dawn's Node binding crashes now and then on a busy machine: then try again."""
    lines = "".join(json.dumps({"label": shader.label, "code": shader.code}) + "\n" for shader in batch)
    for _ in range(ATTEMPTS):
        with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run([node(), str(VALIDATOR)], cwd=ROOT, text=True, encoding="utf-8", input=lines,
                               stdout=output, stderr=output, timeout=WAIT_S, check=False)  # fmt: skip
            output.seek(0)
            log = output.read()
        answers = [line.removeprefix(MARK) for line in log.splitlines() if line.startswith(MARK)]
        if answers[-1:] == [DONE]:
            return [Invalid(**json.loads(answer)) for answer in answers[:-1]]
    raise Failure(f"Dawn ended before it had validated every shader; try again ({log.strip()[-400:]})")


def unreached(labels: Iterable[str]) -> list[str]:
    """Return the kernels that no model of the run has used."""
    used = {label.partition(" ")[0] for label in labels}
    return sorted(p.stem for p in ROOT.glob("wgsl/**/*.wgsl") if "@compute" in p.read_text() and p.stem not in used)


def report(errors: list[Invalid]) -> str:
    """Return the first error of each kernel, with the number of its shaders that have one."""
    lines = []
    for kernel, group in itertools.groupby(sorted(errors), lambda error: error.label.partition(" ")[0]):
        found = list(group)
        shaders = len({error.label for error in found})
        lines.append(f"{kernel}.wgsl: invalid in {shaders} {'variants' if shaders > 1 else 'variant'}. {found[0]}")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Validate the shaders of the named models, by default of all; return the exit status."""
    quick = arguments == [QUICK]
    models = [] if quick else [Path(name) for name in arguments]
    last_run, shaders = LastRun(everything()), list[Shader]()
    if not models and last_run.is_current:
        print(f"{last_run.count} shaders are valid")
        return 0

    def new() -> Iterator[Shader]:
        found = expanded(models, QUICK_SETUPS if quick else SETUPS)
        if not models and not quick:
            found = itertools.chain(found, of_encoder_tiles())
        for shader in found if models else chosen(found):
            shaders.append(shader)
            if shader not in last_run:
                yield shader

    try:
        errors = validate(new())
    except Failure as failure:
        print(failure)
        return 1
    missing = [] if models or quick else unreached(shader.label for shader in shaders)
    if errors:
        print(report(errors))
    if missing:
        print(f"No golden model uses {', '.join(missing)}: add one that does, or expand the kernel in tools/shaders.py")
    if errors or missing:
        return 1
    print(f"{len(shaders)} shaders are valid")
    if quick:
        last_run.add(shaders)
    elif not models:
        last_run.replace(shaders)
    return 0


if __name__ == "__main__":
    gc.disable()  # a tenth of the time: reference counts free plans and shaders
    sys.exit(main(sys.argv[1:]))
