"""Compare a golden made again with the one checked in."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.make.cases import GOLDEN, Golden

# What another version of llama.cpp, another processor or another number of threads may change in a .json.
VARIABLE = {"settings", "greedy_margin", "route_margin", "llama_cpp_vs_reference", "llama_cpp_vs_reference_long"}
# llama.cpp's arrays may differ by this, or by twice its own distance from the reference if that is more.
LEAST_TOLERANCE = 1e-2
MOST_DIFFERENT_ANSWERS = 2  # of Wisp Mini's


@dataclass(frozen=True)
class Comparison:
    """How a remade golden differs."""

    name: str
    same_bytes: bool  # of every file
    same_model: bool  # of the .gguf files
    reference: float  # largest absolute difference of the *_ref arrays
    llama_cpp: float  # and of llama.cpp's
    tolerance: float
    wrong: list[str]  # whatever may not differ and does

    @property
    def agrees(self) -> bool:
        return not self.wrong

    def row(self) -> str:
        """A row of README.md's table."""
        cells = ["yes" if self.same_model else "no", f"{self.reference:.2g}", f"{self.llama_cpp:.2g}"]
        return f"| {self.name} | " + " | ".join([*cells, "yes" if self.same_bytes else "no"]) + " |"


def compare(golden: Golden, folder: Path) -> Comparison:
    """Compare the files below `folder` with those below tests/golden."""
    wrong: list[str] = []
    same_bytes = same_model = True
    reference = llama_cpp = tolerance = 0.0
    for path in golden.files():
        old, new = GOLDEN / path, folder / path
        if not new.exists():
            wrong.append(f"{path} is not made")
            continue
        same = old.read_bytes() == new.read_bytes()
        same_bytes &= same
        if path.suffix == ".gguf" and not same:
            same_model = False
            wrong.append(f"{path} has other bytes")
        elif path.suffix == ".json":
            wrong += [f"{path}: {key}" for key in different_keys(old, new)]
        elif path.suffix == ".npz":
            tolerance = noise(old)
            a, b, missing = array_differences(old, new)
            reference, llama_cpp = max(reference, a), max(llama_cpp, b)
            wrong += [f"{path}: {name}" for name in missing]
    if reference > 1e-5:
        wrong.append(f"the reference differs by {reference:.2g}")
    if llama_cpp > tolerance:
        wrong.append(f"llama.cpp differs by {llama_cpp:.2g}, more than {tolerance:.2g}")
    return Comparison(golden.name, same_bytes, same_model, reference, llama_cpp, tolerance, wrong)


def noise(path: Path) -> float:
    """How far llama.cpp's arrays may differ: twice what the golden says of its own noise."""
    about = path.with_suffix(".json")
    if not about.exists():
        return 0.0
    known = json.loads(about.read_text(encoding="utf-8"))
    measured = [known[key]["max_abs"] for key in VARIABLE if key.startswith("llama_cpp") and key in known]
    if not measured:  # an embedding model
        with np.load(path) as arrays:
            names = [name for name in arrays if name + "_ref" in arrays]
            measured = [float(np.abs(arrays[name] - arrays[name + "_ref"]).max()) for name in names]
    return max([LEAST_TOLERANCE, *(2 * value for value in measured)])


def different_keys(old: Path, new: Path) -> list[str]:
    """Top-level keys that differ and may not."""
    a: Any = json.loads(old.read_text(encoding="utf-8"))
    b: Any = json.loads(new.read_text(encoding="utf-8"))
    if not isinstance(a, dict) or not isinstance(b, dict):
        return [] if a == b else ["rows"]
    wrong = [key for key in sorted({*a, *b} - VARIABLE) if a.get(key) != b.get(key)]
    return [] if wrong == ["chats"] and same_chats(a["chats"], b["chats"]) else wrong


def same_chats(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> bool:
    """Are the prompts equal, and all but a few answers? A near tie in one answer decides what follows it."""
    kinds = [(chat["answers"], again["answers"]) for chat, again in zip(old, new, strict=True)]
    different = sum(a[kind] != b[kind] for a, b in kinds for kind in a)
    prompts = [[{k: v for k, v in chat.items() if k != "answers"} for chat in chats] for chats in (old, new)]
    return prompts[0] == prompts[1] and different <= MOST_DIFFERENT_ANSWERS


def array_differences(old: Path, new: Path) -> tuple[float, float, list[str]]:
    """(largest difference of the reference's arrays, of llama.cpp's, arrays that must be equal and are not)."""
    reference = llama_cpp = 0.0
    wrong = []
    with np.load(old) as a, np.load(new) as b:
        for name in sorted({*a, *b}):
            if name not in a or name not in b or a[name].shape != b[name].shape:
                wrong.append(name)
            elif a[name].dtype != np.float32 or name.endswith(".f32"):  # ids, block bytes and their values
                if not np.array_equal(a[name], b[name]):
                    wrong.append(name)
            else:
                difference = float(np.abs(a[name].astype(np.float64) - b[name]).max())
                difference = difference if math.isfinite(difference) else math.inf
                if name.endswith("_ref"):
                    reference = max(reference, difference)
                else:
                    llama_cpp = max(llama_cpp, difference)
    return reference, llama_cpp, wrong
