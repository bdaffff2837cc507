"""Random LoRA adapters and control vectors for golden models, and what llama.cpp computes with them.

A golden has three files beside a model that another golden has: adapter `a` in F16 for all of the layers' matrices, the
output, and the token embeddings where the model has an output of its own; adapter `b` of another rank and type for some
of them; control vector `c`. SETS has their scales. The arrays, for each set:

    logits.SET (n, V)             llama.cpp's, with the adapters applied on the fly
    logits_ref.SET (n, V)         the reference's, on the model's dequantized weights with the adapters merged
    greedy.SET (g) int32          llama.cpp's argmax continuation, and the reference's logits that
    greedy_ref.SET (g, V)         each of them was taken from
"""

import ctypes
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.golden.make.llama_cpp import Model
from tests.golden.make.llama_cpp_api import Library
from tests.golden.make.record import Arrays, noise, random_prompt, save
from tests.golden.make.reference import Reference
from tests.golden.make.reference_model import ReferenceModel
from tools.gguf_writer import finish

GOLDEN = Path(__file__).parents[1]
SETS = {
    "a": (1.0, 0.0, 0.0),
    "b": (0.0, 0.8, 0.0),
    "ab": (0.5, -0.9, 0.0),
    "abc": (0.4, 0.6, 0.7),
    "c": (0.0, 0.0, 1.0),
}
STRENGTH = 0.4  # size of an adapter's change, relative to the matrix'
N, N_GEN, N_CTX = 20, 10, 256
# what adapter b changes
SOME = ("attn_v", "attn_qkv", "ffn_down", "ssm_out", "ffn_gate", "ffn_gate_exps", "ffn_gate_up_exps", "ffn_down_exps")


def is_matrix(info: gguf.ReaderTensor) -> bool:
    """Whether products of a model read a tensor: a matrix, or one of each expert."""
    matrices = len(info.shape) == 2 or (len(info.shape) == 3 and info.name.endswith("exps.weight"))
    return matrices and info.name.startswith("blk.") and not info.name.endswith(("conv1d.weight", ".bias"))


@dataclass(frozen=True)
class AdapterCase:
    """Two adapters and a control vector for a golden model. `types`: of the two."""

    base: str  # folder/name
    seed: int
    types: tuple[str, str] = ("F16", "F32")
    ranks: tuple[int, int] = (4, 12)

    @property
    def name(self) -> str:
        return "lora-" + self.base.split("/")[1]

    def files(self) -> list[Path]:
        ends = (".a.gguf", ".b.gguf", ".c.gguf", ".npz", ".json")
        return [Path("lora", self.name + end) for end in ends]

    def matches(self, word: str) -> bool:
        return word in (self.name, self.base, "lora")

    def make(self, folder: Path, library: Library) -> None:
        """Write the adapters and what is computed with them."""
        stem = folder / "lora" / self.name
        stem.parent.mkdir(parents=True, exist_ok=True)
        path = GOLDEN / f"{self.base}.gguf"
        reader = gguf.GGUFReader(path)
        known = ReferenceModel(path)
        random = np.random.default_rng(self.seed)
        tensors = {t.name: tuple(int(n) for n in t.shape) for t in reader.tensors}  # (cols, rows)
        wanted = [t.name for t in reader.tensors if is_matrix(t)]
        tied = "output.weight" not in tensors
        chosen = [
            [*wanted, *([] if tied else ["output.weight", "token_embd.weight"])],
            [name for name in wanted if name.split(".")[2] in SOME],
        ]
        pairs = []
        for i, names in enumerate(chosen):
            rank, alpha = self.ranks[i], (2.0 * self.ranks[i], 0.0)[i]
            pairs.append(made := {name: self._pair(random, known.tensors[name], rank, alpha) for name in names})
            write_adapter(stem.with_name(f"{self.name}.{'ab'[i]}.gguf"), known.architecture, alpha, made, self.types[i])
        layers, width = int(known.key("block_count")), known.width
        directions = {n: (0.3 * random.standard_normal(width)).astype(np.float32) for n in range(1, layers)}
        write_control_vector(stem.with_name(f"{self.name}.c.gguf"), known.architecture, directions)
        self._record(library, stem, path, directions)

    def _pair(
        self, random: np.random.Generator, w: np.ndarray, rank: int, alpha: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """A (rank, cols) and B (rows, rank), or those of each expert: their product is STRENGTH times as large as W."""
        *experts, rows, cols = w.shape
        a, b = random.standard_normal((*experts, rank, cols)), random.standard_normal((*experts, rows, rank))
        size = STRENGTH * float(np.sqrt(np.mean(w**2))) / np.sqrt(rank) / (alpha / rank if alpha else 1.0)
        return a.astype(np.float32), (b * size).astype(np.float32)

    def _record(self, library: Library, stem: Path, path: Path, directions: dict[int, np.ndarray]) -> None:
        model = Model(library, path, N_CTX)
        adapters = [Adapter(library, model, stem.with_name(f"{self.name}.{part}.gguf")) for part in "ab"]
        prompt = random_prompt(N, model.n_vocab, self.seed)
        arrays: Arrays = {"prompt": prompt}
        about: dict[str, Any] = {"base": self.base, "seed": self.seed, "types": self.types, "ranks": self.ranks}
        about |= {"settings": model.settings, "sets": {}}
        for name, scales in SETS.items():
            apply(library, model, adapters, scales, directions)
            logits, greedy, rows = model.greedy(prompt.tolist(), N_GEN)
            merged = Merged(path, [adapter.path for adapter in adapters], scales, directions)
            full = merged.logits([*prompt.tolist(), *greedy[:-1].tolist()])
            arrays |= {f"logits.{name}": logits, f"greedy.{name}": greedy}
            arrays |= {f"logits_ref.{name}": full[:N].astype(np.float32)}
            arrays |= {f"greedy_ref.{name}": full[N - 1 :].astype(np.float32)}
            top = np.sort(rows, axis=1)[:, -2:]
            margins = [round(float(first - second), 4) for second, first in top]
            about["sets"][name] = {"scales": scales, "greedy_margin": margins, **noise(full[:N], logits)}
        model.close()
        save(stem, arrays, about)


class Adapter:
    """A LoRA adapter that llama.cpp has loaded. Its model frees it."""

    def __init__(self, library: Library, model: Model, path: Path) -> None:
        self.path = path
        load = library.llama.llama_adapter_lora_init
        load.restype, load.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
        self.pointer = load(model.model, os.fsencode(path))
        if not self.pointer:
            raise RuntimeError(f"llama.cpp does not load {path}: {'; '.join(library.errors)}")


def apply(
    library: Library,
    model: Model,
    adapters: list[Adapter],
    scales: tuple[float, ...],
    directions: dict[int, np.ndarray],
) -> None:
    """Have llama.cpp apply adapters and the control vector with these scales; the last one is the vector's."""
    used = [(a.pointer, scale) for a, scale in zip(adapters, scales, strict=False) if scale]
    set_lora, set_vector = library.llama.llama_set_adapters_lora, library.llama.llama_set_adapter_cvec
    set_lora.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    set_vector.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int32] * 3]
    pointers = (ctypes.c_void_p * len(used))(*(pointer for pointer, _ in used))
    numbers = (ctypes.c_float * len(used))(*(scale for _, scale in used))
    if set_lora(model.context, pointers, len(used), numbers):
        raise RuntimeError("llama.cpp does not apply the adapters")
    width, last = len(next(iter(directions.values()))), max(directions)
    data = np.concatenate([scales[-1] * directions[n] for n in range(1, last + 1)]).astype(np.float32)
    if set_vector(model.context, data.ctypes.data_as(ctypes.c_void_p), data.size, width, 1, last):
        raise RuntimeError("llama.cpp does not apply the control vector")


class Merged(Reference):
    """The reference with adapters merged into its weights, and a control vector."""

    def __init__(
        self, path: Path, adapters: list[Path], scales: tuple[float, ...], directions: dict[int, np.ndarray]
    ) -> None:
        super().__init__(path, N_CTX)
        self.directions, self.strength = directions, scales[-1]
        for adapter, scale in zip(adapters, scales, strict=False):
            reader = gguf.GGUFReader(adapter)
            alpha = float(reader.fields["adapter.lora.alpha"].contents())
            found = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}
            for name in {name.rpartition(".")[0] for name in found}:
                a, b = found[name + ".lora_a"], found[name + ".lora_b"]
                factor = scale * (alpha / b.shape[-1] if alpha else 1.0)
                change = a @ b.T if name == "token_embd.weight" else b @ a
                own = self.tensors.get(name.removesuffix("weight") + "scale")
                if change.ndim == 3 and own is not None:
                    change = change / own[:, None, None]  # llama.cpp applies an expert's scale to W x alone
                self.tensors[name] = self.tensors[name] + factor * change

    def layer(self, x: np.ndarray, layer: int, shared: dict[int, Any]) -> np.ndarray:
        scale = self.tensors.get(f"blk.{layer}.layer_output_scale.weight", 1.0)  # applied afterwards
        return super().layer(x, layer, shared) + self.strength * self.directions.get(layer, 0.0) / scale


def write_adapter(
    path: Path,
    architecture: str,
    alpha: float,
    pairs: dict[str, tuple[np.ndarray, np.ndarray]],
    kind: str = "F16",
    invocation: list[int] | None = None,
) -> None:
    """Write a LoRA adapter as convert_lora_to_gguf.py does. `invocation`: the tokens of an aLoRA."""
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    if invocation:
        field = gguf.GGUFValueType.ARRAY
        writer.add_key_value("adapter.alora.invocation_tokens", invocation, field, gguf.GGUFValueType.UINT32)
    type = gguf.GGMLQuantizationType[kind]
    for name, (a, b) in pairs.items():
        flipped = name == "token_embd.weight"  # A and B change places: rows of A are tokens'
        for part, values in (("lora_a", b), ("lora_b", a.T)) if flipped else (("lora_a", a), ("lora_b", b)):
            fits = type != gguf.GGMLQuantizationType.Q8_0 or values.shape[-1] % 32 == 0
            stored = type if fits else gguf.GGMLQuantizationType.F16
            data = gguf.quants.quantize(np.ascontiguousarray(values), stored)
            writer.add_tensor(f"{name}.{part}", data, raw_dtype=stored)
    finish(writer)


def write_control_vector(path: Path, architecture: str, directions: dict[int, np.ndarray]) -> None:
    """Write a control vector as llama.cpp's cvector-generator does."""
    writer = gguf.GGUFWriter(str(path), "controlvector")
    writer.add_string("controlvector.model_hint", architecture)
    writer.add_uint32("controlvector.layer_count", len(directions))
    for layer, direction in directions.items():
        writer.add_tensor(f"direction.{layer}", direction)
    finish(writer)


def adapter_cases() -> list[AdapterCase]:
    """Every golden with adapters."""
    rows = json.loads((Path(__file__).parent / "adapter_cases.json").read_text(encoding="utf-8"))
    return [AdapterCase(row["base"], row["seed"], tuple(row["types"]), tuple(row["ranks"])) for row in rows]
