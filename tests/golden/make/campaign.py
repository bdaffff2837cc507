"""Search for models whose results differ from llama.cpp's: random models with several random changes at once.

    python -m tests.golden.make.campaign --seed 1 --count 500 [PRESET ...]

A model's seed decides its preset, shapes and up to four changes of changes.py, further_changes.py and key_changes.py.
Two in five have several keys of the rotation or of windows changed, and a prompt of several batches; with --keys all
have, and nothing else is changed. With --shapes, the presets take turns, in other shapes. One model in three gets a
random tensor type for each matrix. With --settings, the presets take turns with other settings (setting_draws.py):
sizes that fit together, lists for each layer, scales and switches; several are drawn until llama.cpp runs one.

Wisp's numbers are compared with llama.cpp's (differences.py). llama.cpp rounds activations of quantized products, so it
gets dequantized matrices. For each model that Wisp refuses or computes differently, a line names the changes that
matter. The last line counts the models that llama.cpp ran. A model takes about a second.
"""

import argparse
import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from py_engine.errors import WispError
from tests.golden.make.changed_models import SEED, Change, all_of
from tests.golden.make.changes import SECONDS, SHAPES, changes
from tests.golden.make.differences import PROMPT, difference
from tests.golden.make.further_changes import further_changes
from tests.golden.make.gguf_file import GgufFile, Layout
from tests.golden.make.key_changes import missing, other_values, rotation, windows
from tests.golden.make.llama_cpp import Model
from tests.golden.make.llama_cpp_api import library
from tests.golden.make.presets import PRESETS, Settings
from tests.golden.make.quantize import GGML, GGUF_PY, NEEDS_IMPORTANCE
from tests.golden.make.random_models import build
from tests.golden.make.setting_draws import drawn, drawn_index
from tests.golden.make.tensor_types import dequantize

MOST_CHANGES = 4
TRIES, ATTEMPTS = 50, 8  # of shapes that fit together; of settings that llama.cpp runs
LONG, LENGTHS = 0.4, (90, 170, 230)  # odds of longer prompts, which several batches read, and their tokens
RARE = 0.1  # odds of changes that llama.cpp mostly refuses, and of types whose tables take ggml long to make
SIZES = SHAPES | {"n_layer": [1, 2, 3, 5], "head_dim": [16, 20, 36, 64, 128, 256], "vocab": [301, 320]}
# of --shapes, beside SIZES: what a maker of goldens would draw
MADE = {"n_embd": [32, 48, 64, 96], "n_head": [2, 3, 4, 8], "n_kv": [1, 2, 3, 4], "head_dim": [8, 12, 16, 24, 32, 48]}
MADE |= {"n_ff": [48, 64, 96, 160], "n_expert": [2, 3, 6, 7, 12], "n_used": [1, 2, 3], "n_layer": [2, 4]}
SHAPED = 0.6  # odds of another size of each
WIDE = {"n_embd": 256, "n_ff": 256}  # rows that divide into the blocks of every type
MIXED = "IQ2_S"  # a type that needs each matrix's importance, so it is computed; some other types need it, too
# refused in words, or not what a golden's kind of comparison can run
LEFT_OUT = {"fewer experts used in the last layer", "attention.causal = False"}
# where layers have windows, llama.cpp lets them see nothing: NaN
LEFT_OUT |= {"attention.sliding_window = 0"}
NO_POOLING = {"t5"}  # with a pooling_type, llama.cpp's decoder reads a row that nothing wrote
NOT_COMPARED = "llama.cpp does not run it"


class RandomModel:
    """A model's preset, shapes, changes and types, all decided by the seed."""

    def __init__(self, seed: int, presets: list[str]) -> None:
        random = np.random.default_rng(seed)
        self.seed, self.preset = seed, str(random.choice(presets))
        self.shapes: dict[str, Any] = {}
        _, used = build(self.preset, SEED)
        for setting, sizes in SIZES.items():
            if setting in used and random.random() < 0.15:
                self.shapes[setting] = int(random.choice(sizes))
        self.mixed = bool(random.random() < 1 / 3)
        if self.mixed and random.random() < 0.5:
            self.shapes |= {name: size for name, size in WIDE.items() if name in used}
        self.shapes |= drawn_index(used | self.shapes, used, random)
        file, used = build(self.preset, SEED, kinds={}, **self.shapes)
        others = dict(other_values(file))
        possible = others | dict(changes(self.preset)) | dict(further_changes(file, used))
        left_out = ("shape ", "unchanged", *(["pooling_type"] if file.architecture in NO_POOLING else []))
        names = [name for name in possible if not name.startswith(left_out) and name not in LEFT_OUT]
        odds = np.array([RARE if name in others or name.startswith("without ") else 1.0 for name in names])
        chosen = random.choice(names, random.integers(0, MOST_CHANGES + 1), replace=False, p=odds / odds.sum())
        self.changes: dict[str, Change] = {str(name): possible[name] for name in chosen}
        self.length = PROMPT
        if random.random() < LONG:
            self.length = int(random.choice(LENGTHS))
            self.changes |= rotation(file, random) if random.random() < 0.7 else windows(file, used, random)

    @classmethod
    def of_keys(cls, seed: int, presets: list[str]) -> "RandomModel":
        """A model of which keys of the rotation and of windows are changed, and any are missing; nothing else."""
        random, model = np.random.default_rng(seed), object.__new__(cls)
        model.seed, model.preset, model.shapes, model.mixed = seed, str(random.choice(presets)), {}, False
        file, used = build(model.preset, SEED, kinds={})
        model.length = int(random.choice(LENGTHS))
        model.changes = rotation(file, random) | (windows(file, used, random) if random.random() < LONG else {})
        model.changes |= missing(file, random)
        return model

    @classmethod
    def of_shapes(cls, seed: int, presets: list[str]) -> "RandomModel":
        """A model of which most shapes are changed, and nothing else. The presets take turns."""
        random, model = np.random.default_rng(seed), object.__new__(cls)
        model.seed, model.preset, model.changes = seed, presets[seed % len(presets)], {}
        model.length, model.mixed = int(random.choice([PROMPT, *LENGTHS])), bool(random.random() < 0.2)
        _, used = build(model.preset, SEED)
        for _ in range(TRIES):
            model.shapes = {
                setting: int(random.choice([*SIZES.get(setting, []), *MADE.get(setting, [])]))
                for setting in SIZES | MADE
                if setting in used and random.random() < SHAPED
            }
            model.shapes |= drawn_index(used | model.shapes, used, random)
            if isinstance(used.get("pattern"), list):  # it says for each layer whether it has a window
                model.shapes.pop("n_layer", None)
            if "tied" in used and random.random() < 0.3:
                model.shapes["tied"] = not used["tied"]
            try:
                made = used | model.shapes
                if made["n_head"] % made["n_kv"] == 0 and build(model.preset, SEED, kinds={}, **model.shapes):
                    return model
            except (AssertionError, LookupError, ValueError):  # shapes that do not fit together
                continue
        return model

    @classmethod
    def of_settings(cls, seed: int, presets: list[str], attempt: int = 0) -> "RandomModel":
        """A model of which many settings are changed: sizes, lists for each layer, scales and switches."""
        random, model = np.random.default_rng([seed, attempt]), object.__new__(cls)
        model.seed, model.preset, model.changes = seed, presets[seed % len(presets)], {}
        model.length, model.mixed = int(random.choice([PROMPT, *LENGTHS])), bool(random.random() < 0.2)
        _, used = build(model.preset, SEED)
        for _ in range(TRIES):
            model.shapes = drawn(used, random)
            try:
                build(model.preset, SEED, kinds={}, **model.shapes)
            except (AssertionError, LookupError, TypeError, ValueError):  # settings that do not fit together
                continue
            return model
        raise ValueError

    def simpler(self) -> list["RandomModel"]:
        """The same model without one of its shapes, changes or types."""
        out = []
        for kind in ("shapes", "changes"):
            for name in getattr(self, kind):
                out.append(self._with(kind, {n: v for n, v in getattr(self, kind).items() if n != name}))
        if self.length > PROMPT:
            out.append(self._with("length", PROMPT))
        return [*out, *([self._with("mixed", value=False)] if self.mixed else [])]

    def _with(self, name: str, value: object) -> "RandomModel":
        other = object.__new__(RandomModel)
        vars(other).update(vars(self) | {name: value})
        return other

    def __str__(self) -> str:
        shapes = [f"{name} {size}" for name, size in self.shapes.items()]
        return f"seed {self.seed}, {self.preset}: " + "; ".join(
            [*shapes, *self.changes, *(["mixed types"] if self.mixed else []), f"{self.length} tokens"]
        )

    def file(self) -> tuple[GgufFile, Settings]:
        file, used = build(self.preset, SEED, kinds={}, **self.shapes)
        all_of(*self.changes.values())(file)
        return file, used


def mix_types(file: GgufFile, seed: int, path: Path) -> None:
    """Write the file with a random type for each matrix; replace the matrices by their dequantized values."""
    random, llama_cpp = np.random.default_rng(seed), library()
    slow = bool(random.random() < RARE)
    types = [kind for kind in (*GGUF_PY, *GGML) if slow or not kind.startswith(NEEDS_IMPORTANCE)]
    file.kinds = {name: str(random.choice(types)) for name in file.tensors}
    file.write(path, MIXED, Layout(), llama_cpp)
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.name not in file.float32:
            values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            file.tensors[tensor.name] = values.reshape(file.tensors[tensor.name].shape)
    file.kinds = {}


def write(model: RandomModel, folder: Path) -> tuple[GgufFile, Settings, Path]:
    """Write model.gguf for llama.cpp; return the file, its settings, and the path of Wisp's."""
    file, used = model.file()
    path, ours = folder / "model.gguf", folder / "mixed.gguf"
    if model.mixed:
        mix_types(file, model.seed, ours)
    file.write(path, "F32", Layout(), library())
    return file, used, ours if model.mixed else path


def compared(model: RandomModel, folder: Path) -> str:
    """What is wrong with Wisp's numbers, if anything."""
    try:
        file, used, ours = write(model, folder)
    except Exception:  # gguf-py or ggml cannot write such a model
        return NOT_COMPARED
    try:
        return str(difference(library(), folder / "model.gguf", file, used, ours, model.length))
    except RuntimeError:
        return NOT_COMPARED
    except WispError as error:
        return f"refused: {error}"


def in_process(work: Callable[[Path], str]) -> str:
    """Run `work` in a process of its own, as llama.cpp ends the process when one of its checks fails.

    `work` gets a folder for its files.
    """
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)

    def report() -> None:
        os.environ["GGML_NO_BACKTRACE"] = "1"
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            theirs.send(work(Path(folder)))
        except Exception as error:  # Wisp refuses with a WispError
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}:{frame.lineno}"
            theirs.send(f"fails: {type(error).__name__} in {where}: {error}")

    with tempfile.TemporaryDirectory() as folder:
        worker = context.Process(target=report)
        worker.start()
        theirs.close()
        try:
            return str(mine.recv()) if mine.poll(SECONDS) else NOT_COMPARED
        except EOFError:
            return NOT_COMPARED
        finally:
            worker.kill()
            worker.join()


def tried(model: RandomModel) -> str:
    """As compared(), in a process of its own."""
    return in_process(lambda folder: compared(model, folder))


def simplest(model: RandomModel, found: str) -> tuple[RandomModel, str]:
    """The model with the fewest changes that still show the same sort of fault, and the fault."""
    for other in model.simpler():
        if (again := tried(other)).split()[:1] == found.split()[:1]:
            return simplest(other, again)
    return model, found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make.campaign", description=__doc__)
    parser.add_argument("presets", nargs="*", metavar="PRESET")
    parser.add_argument("--seed", type=int, default=1, help="of the first model")
    parser.add_argument("--count", type=int, default=100, help="of models")
    parser.add_argument("--keys", action="store_true", help="change and leave out keys, nothing else")
    parser.add_argument("--shapes", action="store_true", help="change most shapes of each preset in turn, nothing else")
    parser.add_argument("--settings", action="store_true", help="change many settings of each preset in turn")
    arguments = parser.parse_args()
    kinds = {"keys": RandomModel.of_keys, "shapes": RandomModel.of_shapes, "settings": RandomModel.of_settings}
    Model.threads = 1  # on a busy machine, two wait for each other
    made = next((make for name, make in kinds.items() if getattr(arguments, name)), RandomModel)
    ran = faults = 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        try:
            model = made(seed, arguments.presets or list(PRESETS))
        except (AssertionError, LookupError, ValueError):  # shapes that do not fit together
            continue
        found = tried(model)
        for attempt in range(1, ATTEMPTS if arguments.settings else 1):
            if found == NOT_COMPARED:
                model = RandomModel.of_settings(seed, arguments.presets or list(PRESETS), attempt)
                found = tried(model)
        if found == NOT_COMPARED and arguments.settings:
            print(f"{model}: llama.cpp runs none", flush=True)
        ran += found != NOT_COMPARED
        if found not in ("", NOT_COMPARED):
            faults += 1
            model, found = simplest(model, found)
            print(f"{model}: {found}", flush=True)
    print(f"{ran} models compared, {faults} refused or different", flush=True)


if __name__ == "__main__":
    main()
