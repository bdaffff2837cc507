"""Search for projectors, pictures and sounds of which Wisp makes something else than llama.cpp's `mtmd`.

    python -m tests.golden.make.media_campaign --seed 1 --count 300 [GOLDEN ...]

Each case begins with a golden of pictures or sound. Its seed decides up to four changes of the projector
(media_changes.py), for one case in three a random tensor type for each matrix, for one in eight another golden's text
model, for one in five a random text model of any preset, for two in five other keys of the text model's rotation, and
a prompt with pictures and sounds of random sizes.
Chunks, places, pixels, spectra, embeddings and logits are compared. For each case that differs, or that Wisp refuses
and llama.cpp runs, a line names the changes that matter. The line before the last counts the cases of each type.
"""

import argparse
import json
from collections import Counter
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from py_engine.errors import WispError
from tests.golden.make import random_models
from tests.golden.make.campaign import NOT_COMPARED, in_process
from tests.golden.make.changed_models import SEED, Change, all_of
from tests.golden.make.gguf_file import GgufFile, Layout
from tests.golden.make.key_changes import rotation
from tests.golden.make.llama_cpp_api import library
from tests.golden.make.media_changes import projector_changes, read
from tests.golden.make.media_differences import Pair, difference
from tests.golden.make.presets import PRESETS, settings
from tests.golden.make.quantize import GGML, GGUF_PY, NEEDS_IMPORTANCE
from tests.golden.make.random_media import RandomPrompt
from tests.golden.make.record_media import widened
from tests.golden.make.tensor_types import dequantize
from tests.support.media import NAMES, VISION

MOST_CHANGES = 4
TURNED = 0.4  # odds of changes of the text model's rotation
PRESET = "preset "  # what a text model's name begins with that is no golden's
SHAPES: dict[str, Any] = {"n_embd": 64, "n_head": 4, "head_dim": 16, "vocab": 336, "ctx": 4096, "tok": "media"}
MIXED = "IQ2_S"  # as in campaign.py
SLOW = ("deepseekocr", "deepseekocr2", "gemma3nv", "yasa2", "gemma4.layers")  # left out unless named
FLOATS = ("F32", "F16", "BF16")


@cache
def about(name: str) -> dict[str, Any]:
    """What a golden's .json says of the pair."""
    found: dict[str, Any] = json.loads((VISION / f"{name}.json").read_text())
    return {key: found[key] for key in ("projector", "text_model", "mmproj", "n_embd_inp")}


@cache
def texts() -> dict[str, int]:
    """The width of what each text model reads."""
    return {about(name)["text_model"]: about(name)["n_embd_inp"] for name in NAMES}


@dataclass(frozen=True)
class Case:
    """A projector, changed, with a text model and a prompt."""

    seed: int
    golden: str
    text: str
    changes: dict[str, Change]
    mixed: bool
    prompt: RandomPrompt
    rotation: dict[str, Change]  # of the text model

    @classmethod
    def of(cls, seed: int, goldens: list[str]) -> "Case":
        """The case of a seed."""
        random = np.random.default_rng(seed)
        golden = str(random.choice(goldens))
        file, text = read(VISION / about(golden)["mmproj"]), about(golden)["text_model"]
        if random.random() < 1 / 8:
            text = str(random.choice([name for name, width in texts().items() if width == texts()[text]]))
        elif random.random() < 1 / 4 and texts()[text] == SHAPES["n_embd"]:
            text = PRESET + str(random.choice([name for name in PRESETS if reads_media(name)]))
        possible = list(projector_changes(file, random))
        odds = np.array([often for *_, often in possible])
        count = random.integers(0, MOST_CHANGES + 1)
        chosen = random.choice(len(possible), count, replace=False, p=odds / odds.sum())
        changes = {possible[i][0]: possible[i][1] for i in chosen}
        mixed = bool(random.random() < 1 / 3)
        prompt = RandomPrompt.of(random, dict(file.metadata))
        turned = rotation(text_model(text), random) if random.random() < TURNED else {}
        return cls(seed, golden, text, changes, mixed, prompt, turned)

    def simpler(self) -> "list[Case]":
        """The same case without one of its changes, its types, its text model, or one of its media."""
        found = [self._with(changes={n: c for n, c in self.changes.items() if n != name}) for name in self.changes]
        found += [self._with(rotation={n: c for n, c in self.rotation.items() if n != name}) for name in self.rotation]
        if self.mixed:
            found.append(self._with(mixed=False))
        if self.text != (own := about(self.golden)["text_model"]):
            found.append(self._with(text=own))
        return [*found, *(self._with(prompt=prompt) for prompt in self.prompt.simpler())]

    def _with(self, **other: Any) -> "Case":
        return Case(**(vars(self) | other))

    def __str__(self) -> str:
        own = self.text == about(self.golden)["text_model"]
        said = [
            *self.changes,
            *self.rotation,
            *(["mixed types"] if self.mixed else []),
            *([] if own else [f"with {self.text}"]),
        ]
        return f"seed {self.seed}, {self.golden}: {'; '.join([*said, str(self.prompt)])}"

    def write(self, folder: Path) -> Pair:
        """Write the files for llama.cpp, and for Wisp."""
        file, text = read(VISION / about(self.golden)["mmproj"]), text_model(self.text)
        all_of(*self.changes.values())(file)
        all_of(*self.rotation.values())(text)
        theirs, ours, words = (folder / f"{name}.gguf" for name in ("projector", "mixed", "text"))
        if self.mixed:
            mix_types(file, self.seed, ours)
        widened(file).write(theirs, "F32", Layout(), library())
        widened(text).write(words, "F32", Layout(), library())
        return Pair(words, theirs, ours if self.mixed else theirs)


def reads_media(preset: str) -> bool:
    """Whether models of a preset continue prompts, token by token."""
    used = settings(preset)
    return "pooling" not in used and not used.get("masked")


def text_model(name: str) -> GgufFile:
    """A golden's text model, or one of a preset, as wide as what the projectors make."""
    if not name.startswith(PRESET):
        return read(VISION / name)
    preset = name.removeprefix(PRESET)
    used = settings(preset)
    shapes = SHAPES | {"n_kv": SHAPES["n_head"] if used.get("n_kv") == used.get("n_head") else 2}
    return random_models.build(preset, SEED, kinds={}, **{key: size for key, size in shapes.items() if key in used})[0]


def mix_types(file: GgufFile, seed: int, path: Path) -> None:
    """Write the file with a random type for each matrix; replace the matrices by their dequantized values."""
    import gguf

    random = np.random.default_rng(seed)
    types = [kind for kind in (*GGUF_PY, *GGML) if not kind.startswith(NEEDS_IMPORTANCE)]
    for name, values in file.tensors.items():
        plain = values.ndim != 2 or "embd" in name or "conv" in name
        file.kinds[name] = str(random.choice(FLOATS if plain else types))
    file.write(path, MIXED, Layout(), library())
    for tensor in gguf.GGUFReader(path).tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        file.tensors[tensor.name] = values.reshape(file.tensors[tensor.name].shape)
    file.float32 = set(file.tensors)


def compared(case: Case, accepted: bool, folder: Path) -> str:
    """What Wisp makes of the case otherwise than llama.cpp. `accepted`: also what llama.cpp alone refuses."""
    try:
        pair = case.write(folder)
    except (AssertionError, LookupError, ValueError, TypeError):  # shapes that do not fit together
        return NOT_COMPARED
    try:
        found = difference(library(), pair, case.prompt)
        return found if accepted or not found.startswith("accepted") else NOT_COMPARED
    except WispError as error:
        return NOT_COMPARED if error.code == "projector_mismatch" else f"refused: {error.code}: {error}"


def tried(case: Case, accepted: bool) -> str:
    """compared() in a process of its own."""
    return in_process(partial(compared, case, accepted))


def simplest(case: Case, found: str, accepted: bool) -> tuple[Case, str]:
    """The case with the fewest changes that still shows the same sort of fault, and the fault."""
    for other in case.simpler():
        if (again := tried(other, accepted)).split()[:2] == found.split()[:2]:
            return simplest(other, again, accepted)
    return case, found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make.media_campaign", description=__doc__)
    parser.add_argument("goldens", nargs="*", metavar="GOLDEN")
    parser.add_argument("--seed", type=int, default=1, help="of the first case")
    parser.add_argument("--count", type=int, default=100, help="of cases")
    parser.add_argument("--accepted", action="store_true", help="also what Wisp runs and llama.cpp does not load")
    arguments = parser.parse_args()
    goldens = arguments.goldens or [name for name in NAMES if name not in SLOW]
    ran, faults = Counter[str](), 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        case = Case.of(seed, goldens)
        found = tried(case, arguments.accepted)
        ran[about(case.golden)["projector"]] += found != NOT_COMPARED
        if found not in ("", NOT_COMPARED):
            faults += 1
            case, found = simplest(case, found, arguments.accepted)
            print(f"{case}: {found}", flush=True)
    print(", ".join(f"{kind} {count}" for kind, count in sorted(ran.items())), flush=True)
    print(f"{ran.total()} cases compared, {faults} refused or different", flush=True)


if __name__ == "__main__":
    main()
