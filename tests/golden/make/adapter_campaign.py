"""Search for LoRA adapters and control vectors whose results differ from llama.cpp's.

    python -m tests.golden.make.adapter_campaign --seed 1 [PRESET ...]

Each preset's random model gets a control vector, and an adapter for all matrices. If the logits differ or
Wisp refuses, each kind of matrix is tried alone, and a line names the kinds that matter. llama.cpp multiplies with some
matrices as if there were no adapter: there, Wisp's logits are compared with those of the merged weights.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np

from py_engine.errors import WispError
from py_engine.plan.lists import ALL_LOGITS, DECODE, EMBED, PREFILL, adapted
from py_engine.plan.low_rank import SCALES
from tests.golden.make.adapters import Adapter, apply, write_control_vector
from tests.golden.make.campaign import NOT_COMPARED, in_process
from tests.golden.make.changed_models import SEED, kind
from tests.golden.make.gguf_file import GgufFile, Layout
from tests.golden.make.llama_cpp import ALONE, Model
from tests.golden.make.llama_cpp_api import library
from tests.golden.make.presets import PRESETS
from tests.golden.make.random_models import build
from tests.golden.make.record import random_prompt
from tests.support.cpu_models import load
from tools.gguf_writer import finish

PROMPT, N_CTX, RANK, STRENGTH, SCALE = 16, 256, 5, 0.4, 0.7
LIMIT = 0.05  # of differences
VECTOR = "control vector"
LEFT_OUT = "as the merged weights; llama.cpp leaves the adapter out"
LEFT_OUT_VECTOR = "llama.cpp leaves it out"
Changes = dict[str, np.ndarray]


@dataclass(frozen=True)
class Given:
    """What is computed: of a prompt that the seed decides, with directions of a control vector after layers."""

    seed: int
    encodes: bool
    alone: bool  # each token in a batch of its own
    directions: dict[int, np.ndarray]

    def prompt(self, n_vocab: int) -> list[int]:
        """The prompt's tokens."""
        return random_prompt(PROMPT, n_vocab, self.seed, low=5).tolist()


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


def merged(file: GgufFile, changes: Changes, path: Path, given: Given) -> np.ndarray:
    """What llama.cpp computes with the adapter merged into the model's matrices."""
    for name, change in changes.items():
        file.tensors[name] = (file.tensors[name] + SCALE * change).astype(np.float32)
    file.write(path, "F32", Layout(), library())
    return llama_cpp(path, [], given)


def llama_cpp(path: Path, adapters: list[Path], given: Given) -> np.ndarray:
    """llama.cpp's logits of a prompt, or an encoder's results for each token."""
    model = Model(library(), path, N_CTX, "none" if given.encodes else None)
    model.alone = given.alone
    loaded = [Adapter(library(), model, adapter) for adapter in adapters]
    apply(library(), model, loaded, (*[SCALE] * len(loaded), 1.0), given.directions)
    prompt = given.prompt(model.n_vocab)
    return model.embedding(prompt) if given.encodes else model.logits(prompt)


def wisp(path: Path, scales: dict[Path, float], given: Given) -> np.ndarray:
    """As llama_cpp(), with Wisp."""
    cpu = load(path, N_CTX, batch=PROMPT, adapters=[*scales], scales=[*scales.values()])
    if SCALES in cpu.buffers:  # else no matrix is adapted
        cpu.write(SCALES, cpu.plan.adapters.pack([*scales.values()]))
    prompt = given.prompt(cpu.plan.n_vocab)

    def feed(start: int, tokens: list[int], *lists: str) -> None:
        cpu.feed(start, tokens, [adapted(n) if adapted(n) in cpu.plan.lists else n for n in lists])

    if given.encodes:
        embedding = cpu.plan.embedding
        assert embedding
        feed(0, prompt, PREFILL, EMBED)
        return cpu.buffers[embedding.rows][:PROMPT, : embedding.width]
    if ALL_LOGITS in cpu.plan.lists:
        feed(0, prompt, PREFILL, ALL_LOGITS)
        return cpu.buffers["all_logits.logits"][:PROMPT, : cpu.plan.n_vocab]
    feed(0, prompt, PREFILL)  # a diffusion model's tokens see all others
    rows = []
    for position, token in enumerate(prompt):
        feed(position, [token], DECODE)
        rows.append(cpu.buffers["logits"].reshape(-1)[: cpu.plan.n_vocab].copy())
    return np.array(rows)


def compared(preset: str, chosen: list[str], seed: int, folder: Path) -> str:
    """What is wrong with Wisp's numbers, if anything."""
    file, used = build(preset, SEED, kinds={})
    random = np.random.default_rng(seed)
    path, adapter, vector = (folder / f"{name}.gguf" for name in ("model", "adapter", "vector"))
    file.write(path, "F32", Layout(), library())
    changes = write_adapter(adapter, file, chosen, random)
    layers, width = used["n_layer"], used["n_embd"]
    directions = {n: np.multiply(0.3, random.standard_normal(width)).astype(np.float32) for n in range(1, layers)}
    write_control_vector(vector, file.architecture, directions)
    steered = VECTOR in chosen and layers > 1
    scales = ({adapter: SCALE} if changes else {}) | ({vector: 1.0} if steered else {})
    used_directions = directions if steered else {1: np.zeros(width, np.float32)}
    given = Given(seed, "pooling" in used, file.architecture in ALONE, used_directions)
    try:
        want = llama_cpp(path, [adapter] if changes else [], given)
    except RuntimeError:
        return NOT_COMPARED
    try:
        found = wisp(path, scales, given)
    except WispError as error:
        return f"refused: {error}"
    if (difference := _difference(want, found)) <= LIMIT:
        return ""
    if chosen == [VECTOR]:
        plain = llama_cpp(path, [], replace(given, directions={1: np.zeros(width, np.float32)}))
        return LEFT_OUT_VECTOR if np.array_equal(plain, want) else f"differs by {difference:.3g}"
    if (rest := _difference(merged(file, changes, path, given), found)) <= LIMIT:
        return LEFT_OUT
    return f"differs by {difference:.3g}, from the merged weights by {rest:.3g}"


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
