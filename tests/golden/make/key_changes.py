"""Changes of several keys at once for campaign.py: of the rotation, of windows, and of what else a file has."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.golden.make.changed_models import Change, with_divisors, with_key, without_key
from tests.golden.make.gguf_file import GgufFile
from tests.golden.make.presets import Settings

Drawn = dict[str, Change]

# Values of keys of the rotation, and how often one has any of them
ROTATION: dict[str, tuple[float, list[Any]]] = {
    "rope.scaling.type": (0.7, ["none", "linear", "yarn", "yarn", "longrope"]),
    "rope.scaling.factor": (0.7, [0.5, 1.0, 2.5, 8.0, 40.0]),
    "rope.scaling.original_context_length": (0.5, [16, 64, 128, 400, 4096]),
    "context_length": (0.3, [64, 512, 100000]),
    "rope.freq_base": (0.4, [10.0, 500.0, 10000.0, 1e6, 1e7]),
    "rope.freq_base_swa": (0.2, [30.0, 10000.0]),
    "rope.dimension_count": (0.2, [2, 4, 8, 12, 16]),
    "rope.dimension_count_swa": (0.1, [4, 8]),
    "rope.scaling.attn_factor": (0.15, [0.7, 1.3]),
    "rope.scaling.yarn_ext_factor": (0.15, [0.0, 0.5, 1.0]),
    "rope.scaling.yarn_attn_factor": (0.15, [0.8, 1.2]),
    "rope.scaling.yarn_beta_fast": (0.15, [4.0, 16.0, 64.0]),
    "rope.scaling.yarn_beta_slow": (0.15, [0.5, 2.0]),
    "rope.scaling.yarn_log_multiplier": (0.1, [0.07, 0.1]),
    "rope.scaling.finetuned": (0.1, [True, False]),
    "rope.scale_linear": (0.1, [3.0]),
    "rope.scaling.alpha": (0.05, [50.0]),
}
FACTORS = 0.5  # odds of divisors in a file with longrope
WINDOWS = (1, 3, 20, 33, 64, 100, 1000)
STRUCTURAL = ("tokenizer.", "general.")  # beginnings of keys that are not the model's
FIXED = ("block_count", "embedding_length", "context_length", "vocab_size", "feed_forward_length")  # ends of keys


def key(name: str, value: Any) -> tuple[str, Change]:
    return f"{name} = {value!r:.24}", with_key(name, value)


def with_factors(values: np.ndarray, side: str) -> Change:
    """Divisors of the frequencies in contexts that are long, or short."""

    def change(file: GgufFile) -> None:
        file.constant(f"rope_factors_{side}.weight", values)

    return change


def rotation(file: GgufFile, random: np.random.Generator) -> Drawn:
    """Keys of the rotation, and divisors of its frequencies."""
    drawn: Drawn = {}
    for name, (odds, values) in ROTATION.items():
        if random.random() < odds:
            text, change = key(name, values[int(random.integers(len(values)))])
            drawn[text] = change
    own = dict(file.metadata)
    count = own.get(f"{file.architecture}.rope.dimension_count")
    if not isinstance(count, int):
        return drawn
    if any(name.startswith("rope.scaling.type = 'longrope'") for name in drawn) and random.random() < FACTORS:
        for side, most in (("long", 8.0), ("short", 2.0)):
            divisors = random.uniform(1, most, count // 2).astype(np.float32)
            drawn[f"with rope_factors_{side}"] = with_factors(divisors, side)
    elif random.random() < 0.1:
        drawn["with rope_freqs"] = with_divisors
    if f"{file.architecture}.rope.dimension_sections" in own and random.random() < 0.5:
        cuts = sorted(int(cut) for cut in random.integers(0, count // 2 + 1, 2))
        sections = [cuts[0], cuts[1] - cuts[0], count // 2 - cuts[1], 0]
        text, change = key("rope.dimension_sections", sections)
        drawn[text] = change
    return drawn


def windows(file: GgufFile, used: Settings, random: np.random.Generator) -> Drawn:
    """The size of windows, and which layers have one."""
    drawn = dict([key("attention.sliding_window", int(random.choice(WINDOWS)))])
    kind = random.random()
    if kind < 0.3:
        text, change = key("attention.sliding_window_pattern", int(random.integers(0, 6)))
        drawn[text] = change
    elif kind < 0.6:
        layers = [bool(random.random() < 0.6) for _ in range(used["n_layer"])]
        text, change = key("attention.sliding_window_pattern", layers)
        drawn[text] = change
    return drawn


def missing(file: GgufFile, random: np.random.Generator) -> Drawn:
    """Keys less, up to three. llama.cpp refuses a file without one that it needs."""
    names = [name for name, _ in file.metadata if not name.startswith(STRUCTURAL)]
    chosen = random.choice(names, min(len(names), int(random.integers(0, 4))), replace=False)
    return {f"without {name}": without_key(str(name)) for name in chosen}


def other_values(file: GgufFile) -> Iterator[tuple[str, Change]]:
    """Other values of the keys that a file has. llama.cpp refuses what its tensors do not fit."""
    before = f"{file.architecture}."
    for name, value in file.metadata:
        if name.startswith(STRUCTURAL) or name.endswith(FIXED) or not name.startswith(before):
            continue
        short = name.removeprefix(before)
        if isinstance(value, bool):
            yield key(short, not value)
        elif isinstance(value, float):
            yield key(short, value * 1.7)
            yield key(short, value * 0.4)
        elif isinstance(value, int):
            yield from (key(short, other) for other in {value + 1, max(0, value - 1), 2 * value, value // 2} - {value})
        elif isinstance(value, list) and len(value) > 1 and isinstance(value[0], bool | int | float):
            yield key(short, value[::-1])
            yield key(short, value[1:] + value[:1])
