"""Search for metadata and tensors that Wisp reads otherwise than llama.cpp: change random models in one place.

    python -m tests.golden.make.changes PRESET ...

Each model of the presets is made again without one of its keys, with another value of a key of `KEYS`, without one kind
of tensor, with one more, with several matrices stored as one, or in another shape of `SHAPES`. Where llama.cpp loads
the file, its logits or embeddings are compared with those of Wisp's numpy engine (differences.py). A line is printed
for each that Wisp refuses or computes otherwise. It needs llama.cpp (README.md) and takes about a minute a preset.
llama.cpp ends the process when a check of its own fails, so each model has a process of its own.
"""

import argparse
import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from py_engine.errors import WispError
from tests.golden.make.changed_models import (
    SEED,
    Change,
    additions,
    kind,
    unchanged,
    with_divisors,
    with_key,
    without_key,
    without_tensors,
)
from tests.golden.make.differences import difference
from tests.golden.make.gguf_file import GgufFile, Layout
from tests.golden.make.llama_cpp_api import library
from tests.golden.make.presets import PRESETS
from tests.golden.make.random_models import build
from tools.gguf_writer import Value

SECONDS = 60  # until a model is given up: llama.cpp does not return from some
KEYS: dict[str, list[Value]] = {
    "rope.scaling.type": ["none", "linear", "yarn", "longrope"],
    "rope.scaling.factor": [4.0],
    "rope.scaling.attn_factor": [1.3],
    "rope.scaling.yarn_log_multiplier": [0.07],
    "rope.scaling.yarn_beta_slow": [2.0],
    "rope.scaling.finetuned": [False],
    "rope.freq_base": [500.0],
    "rope.freq_base_swa": [300.0],
    "rope.dimension_count": [8],
    "rope.dimension_count_swa": [8],
    "rope.dimension_sections": [[0, 0, 0, 0], [3, 3, 2, 0]],
    "attention.sliding_window": [7],
    "attention.sliding_window_pattern": [2],
    "attention.causal": [False],
    "attention.max_alibi_bias": [8.0],
    "attention.layer_norm_epsilon": [1e-3],
    "attention.layer_norm_rms_epsilon": [1e-3],
    "attention.clamp_kqv": [0.7],
    "attention.scale": [0.3],
    "attention.output_scale": [0.3],
    "attn_logit_softcapping": [3.0],
    "final_logit_softcapping": [2.0],
    "logit_scale": [0.7],
    "embedding_scale": [2.0],
    "residual_scale": [0.5],
    "expert_gating_func": [1, 2, 3, 4],
    "expert_weights_scale": [1.6],
    "expert_weights_norm": [True, False],
    "expert_used_count": [1],
    "leading_dense_block_count": [0],
}
SHAPES: dict[str, list[int]] = {  # settings of random models
    "n_embd": [80, 100],
    "n_head": [1, 6],
    "n_kv": [1],
    "head_dim": [20, 36, 128],
    "n_ff": [33, 100],
    "n_ff_dense": [100],
    "n_ff_shexp": [20, 36],
    "n_expert": [5, 33],
    "n_used": [1, 4],
    "vocab": [301],
    "n_layer": [1],
    "rope_dim": [4, 20],
    "window": [1, 3, 40],
    "d_conv": [2, 3, 5],
    "d_state": [5, 20, 32],
    "ssm_groups": [1, 2, 4],
    "ssm_heads": [2, 16],
    "kv_rank": [36, 100],
    "q_rank": [20, 100],
    "nope": [8, 32],
    "v_dim": [8, 32],
    "kda_dim": [16, 40],
    "head_size": [64],  # llama.cpp computes those of 8 otherwise than they are defined
    "mix_rank": [5, 32],
    "decay_rank": [7, 32],
    "buckets": [4, 16],
    "l_cache": [2, 5],
    "pl": [20],
}


def with_shape(preset: str, setting: str, size: int) -> Change:
    def change(file: GgufFile) -> None:
        other, _ = build(preset, SEED, **{setting: size})
        file.metadata, file.tensors, file.float32 = other.metadata, other.tensors, other.float32

    return change


def changes(preset: str) -> Iterator[tuple[str, Change]]:
    """What each change is, and the function that makes it."""
    file, used = build(preset, SEED)
    yield "unchanged", unchanged
    for key in dict.fromkeys(name for name, _ in file.metadata if not name.startswith("tokenizer.")):
        yield f"without {key}", without_key(key)
    for key, values in KEYS.items():
        for value in values:
            yield f"{key} = {value}", with_key(key, value)
    for name in dict.fromkeys(map(kind, file.tensors)):
        yield f"without {name}", without_tensors(name)
    if f"{file.architecture}.rope.dimension_count" in dict(file.metadata):
        yield "with rope_freqs.weight", with_divisors
    yield from additions(file)
    for key, value in file.metadata:
        if type(value) is int and key.startswith(f"{file.architecture}."):
            name = key.removeprefix(f"{file.architecture}.")
            yield f"{name} for each layer", with_key(name, [value] * used["n_layer"])
    for setting, sizes in SHAPES.items():
        for size in sizes if setting in used else []:
            yield f"shape {setting} {size}", with_shape(preset, setting, size)


def compared(preset: str, change: Change, path: Path) -> str:
    """What is wrong with Wisp's numbers, if anything."""
    file, used = build(preset, SEED, kinds={})  # all in floats
    change(file)
    llama_cpp = library()
    file.write(path, "F32", Layout(), llama_cpp)
    try:
        return str(difference(llama_cpp, path, file, used))
    except RuntimeError:
        if change is unchanged:
            raise
        return ""
    except WispError as error:
        return f"refused: {error}"


def report(preset: str, what: str, change: Change, path: Path) -> None:
    """Print what is wrong, in a process of its own."""
    os.environ["GGML_NO_BACKTRACE"] = "1"
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    if found := compared(preset, change, path):
        print(f"{preset}: {what}: {found}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make.changes", description=__doc__)
    parser.add_argument("presets", nargs="+", choices=PRESETS, metavar="PRESET")
    parser.add_argument("--only", default="", metavar="WORDS", help="changes whose description has these words")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("fork")
    for preset in arguments.presets:
        with tempfile.TemporaryDirectory() as folder:
            for what, change in changes(preset):
                if arguments.only not in what and change is not unchanged:
                    continue
                worker = context.Process(target=report, args=(preset, what, change, Path(folder, "model.gguf")))
                worker.start()
                worker.join(SECONDS)
                if worker.is_alive():
                    worker.kill()
                    worker.join()
                if change is unchanged and worker.exitcode:
                    parser.exit(1, f"llama.cpp does not run {preset}: its changes would all be left out\n")


if __name__ == "__main__":
    main()
