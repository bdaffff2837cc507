"""Search for LoRA adapters and control vectors whose results differ from llama.cpp's.

    python -m tests.golden.make.adapter_campaign --seed 1 [PRESET ...]

Each preset's random model gets a control vector, and an adapter for all matrices. If the logits differ or
Wisp refuses, each kind of matrix is tried alone, and a line names the kinds that matter. llama.cpp multiplies with some
matrices as if there were no adapter: there, Wisp's logits are compared with those of the merged weights.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np

from py_engine.errors import WispError
from py_engine.plan.lists import ALL_LOGITS, PREFILL, adapted
from py_engine.plan.low_rank import SCALES
from tests.golden.make.adapters import Adapter, apply, write_control_vector
from tests.golden.make.campaign import NOT_COMPARED, in_process
from tests.golden.make.changed_models import SEED, kind
from tests.golden.make.changes import LIMIT
from tests.golden.make.gguf_file import GgufFile, Layout
from tests.golden.make.llama_cpp import ALONE, Model
from tests.golden.make.llama_cpp_api import library
from tests.golden.make.presets import PRESETS
from tests.golden.make.random_models import build
from tests.golden.make.record import random_prompt
from tests.support.cpu_models import load
from tools.gguf_writer import finish

PROMPT, N_CTX, RANK, STRENGTH, SCALE = 16, 256, 5, 0.4, 0.7
VECTOR = "control vector"
LEFT_OUT = "as the merged weights; llama.cpp leaves the adapter out"
Changes = dict[str, np.ndarray]
Directions = dict[int, np.ndarray]


def kinds(preset: str) -> list[str]:
    """The kinds of matrices: those of layers, and of experts."""
    file, _ = build(preset, SEED, kinds={})
    matrices = [name for name, data in file.tensors.items() if is_adapted(name, data) and name not in file.float32]
    return [name for name in dict.fromkeys(map(kind, matrices)) if name.endswith(".weight") and "conv" not in name]


def is_adapted(name: str, data: np.ndarray) -> bool:
    """Whether an adapter may change a tensor. Wisp refuses those of matrices that each head has."""
    return data.ndim == 2 or (data.ndim == 3 and name.endswith("exps.weight"))


def write_adapter(path: Path, file: GgufFile, chosen: list[str], random: np.random.Generator) -> Changes:
    """Write an adapter for the matrices of these kinds. Return what it adds to each of them with scale 1."""
    changes = Changes()
    writer = gguf.GGUFWriter(str(path), file.architecture)
    for key, value in (("general.type", "adapter"), ("adapter.type", "lora")):
        writer.add_string(key, value)
    writer.add_float32("adapter.lora.alpha", 2.0 * RANK)
    for name, data in file.tensors.items():
        if kind(name) in chosen and name not in file.float32:
            *experts, rows, cols = data.shape
            a, b = random.standard_normal((*experts, RANK, cols)), random.standard_normal((*experts, rows, RANK))
            b = np.multiply(b, STRENGTH * float(data.std()) / float(np.sqrt(RANK)) / 2)
            changes[name] = 2.0 * b @ a
            if name == "token_embd.weight":  # A and B swap places, as rows of A are tokens
                a, b = b, a.T
            writer.add_tensor(name + ".lora_a", a.astype(np.float32))
            writer.add_tensor(name + ".lora_b", b.astype(np.float32))
    finish(writer)
    return changes


def merged_logits(
    file: GgufFile, changes: Changes, path: Path, directions: Directions, prompt: list[int]
) -> np.ndarray:
    """What llama.cpp computes with the adapter merged into the model's matrices."""
    for name, change in changes.items():
        file.tensors[name] = (file.tensors[name] + SCALE * change).astype(np.float32)
    file.write(path, "F32", Layout(), library())
    model = Model(library(), path, N_CTX)
    model.alone = file.architecture in ALONE
    apply(library(), model, [], (1.0,), directions)
    return model.logits(prompt)


def compared(preset: str, chosen: list[str], seed: int, folder: Path) -> str:
    """What is wrong with Wisp's logits, if anything."""
    file, used = build(preset, SEED, kinds={})
    random = np.random.default_rng(seed)
    path, adapter, vector = (folder / f"{name}.gguf" for name in ("model", "adapter", "vector"))
    file.write(path, "F32", Layout(), library())
    changes = write_adapter(adapter, file, chosen, random)
    layers, width = used["n_layer"], used["n_embd"]
    directions = {n: np.multiply(0.3, random.standard_normal(width)).astype(np.float32) for n in range(1, layers)}
    write_control_vector(vector, file.architecture, directions)
    steered = VECTOR in chosen and layers > 1
    try:
        model = Model(library(), path, N_CTX)
        model.alone = file.architecture in ALONE
        adapters = [Adapter(library(), model, adapter)] if chosen != [VECTOR] else []
        apply(library(), model, adapters, (SCALE, float(steered)), directions or {1: np.zeros(width)})
        prompt = random_prompt(PROMPT, model.n_vocab, seed).tolist()
        want = model.logits(prompt)
    except RuntimeError:
        return NOT_COMPARED
    scales = {adapter: SCALE} if adapters else {}
    scales |= {vector: 1.0} if steered else {}
    try:
        wisp = load(path, N_CTX, batch=PROMPT, adapters=[*scales], scales=[*scales.values()])
        if SCALES in wisp.buffers:  # else no matrix is adapted
            wisp.write(SCALES, wisp.plan.adapters.pack([*scales.values()]))
        lists = [PREFILL, ALL_LOGITS]
        wisp.feed(0, prompt, [adapted(n) if adapted(n) in wisp.plan.lists else n for n in lists])
        found = wisp.buffers["all_logits.logits"][:PROMPT, : wisp.plan.n_vocab]
    except WispError as error:
        return f"refused: {error}"
    if (difference := _difference(want, found)) <= LIMIT:
        return ""
    used_directions = {n: direction * float(steered) for n, direction in directions.items()} or {1: np.zeros(width)}
    merged = merged_logits(file, changes, path, used_directions, prompt)
    if _difference(merged, found) <= LIMIT:
        return LEFT_OUT
    return f"differs by {difference:.3g}, from the merged weights by {_difference(merged, found):.3g}"


def _difference(want: np.ndarray, found: np.ndarray) -> float:
    return float(np.abs(want - found).max() * 3 / max(3, want.std()))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make.adapter_campaign", description=__doc__)
    parser.add_argument("presets", nargs="*", metavar="PRESET")
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    ran = 0

    def tried(preset: str, chosen: list[str]) -> str:
        work: Callable[[Path], str] = lambda folder: compared(preset, chosen, arguments.seed, folder)  # noqa: E731
        return in_process(work)

    for preset in arguments.presets or PRESETS:
        every = [*kinds(preset), VECTOR]
        found = tried(preset, every)
        ran += found != NOT_COMPARED
        if found in ("", NOT_COMPARED):
            continue
        for name in every:
            if (alone := tried(preset, [name])) not in ("", NOT_COMPARED):
                print(f"{preset}: {name}: {alone}", flush=True)
    print(f"{ran} models compared with adapters for all matrices", flush=True)


if __name__ == "__main__":
    main()
