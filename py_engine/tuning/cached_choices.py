"""Serialize the chosen kernels for the cache in IndexedDB, and compute the key that they are valid for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from py_engine import json_input
from py_engine.files.gguf_header import Header
from py_engine.plan.kernels import WGSL, Device

TIME_RAN_OUT = "time ran out before every candidate was measured"  # why a report has what it has
FIELDS = ("f16", "subgroup", "matrix", "dot8")  # fields of Device that a choice can change

# Modules of plan/ that choose tiles, and numbers that kernels share
CHOOSING = ("attention_tiles", "decode_tiles", "matmul_tiles", "shared_constants", "small_batch_tiles", "tiles")


def kernels_hash(files: Iterable[Path] | None = None) -> str:
    """Hash the kernels' text and the code that chooses their tiles."""
    engine = Path(__file__).parent.parent
    files_of_plan = [path for name in CHOOSING for path in (engine / "plan").glob(f"{name}.py*")]
    code = [*files_of_plan, *sorted((engine / "tuning").glob("*.py*"))]  # a page has bytecode
    digest = hashlib.sha256()
    for path in files or [*sorted(WGSL.rglob("*.wgsl")), *code]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def key(about: dict[str, Any], header: Header, device: Device, forced: Iterable[str], kernels: str) -> str:
    """Hash everything that a choice depends on.

    `about`: adapter, browser and load settings; `kernels`: kernels_hash(). The model counts by its types and shapes.
    """
    shapes = sorted({f"{t.type.name} {list(t.shape)}" for t in header.tensors.values()})
    numbers = {
        name: value
        for name, value in header.metadata.items()
        if name.startswith(f"{header.architecture}.") and isinstance(value, int | float)
    }
    parts = [about, kernels, shapes, numbers, repr(device), sorted(forced)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Choices:
    """The device with the choices, their reports (tuner.tune), and the seconds that measuring was given."""

    device: Device
    reports: list[dict[str, Any]]
    seconds: float

    @property
    def unfinished(self) -> bool:
        """Whether time ran out before every candidate was measured."""
        return any(TIME_RAN_OUT in report["why"] for report in self.reports)


def serialize(choices: Choices) -> str:
    """Choices as JSON."""
    fields = {name: getattr(choices.device, name) for name in FIELDS}
    found = {"fields": fields, "tiles": choices.device.tiles, "choices": choices.reports, "seconds": choices.seconds}
    return json.dumps(found)


def deserialize(device: Device, text: str) -> Choices:
    """Choices for a device from their JSON. ArithmeticError, LookupError, TypeError or ValueError for other JSON."""
    cached = json_input.parse(text)
    tiles = tuple((str(name), tuple(int(n) for n in tile)) for name, tile in cached["tiles"])
    chosen = replace(device, tiles=tiles, **{name: cached["fields"][name] for name in FIELDS})
    return Choices(chosen, list(cached["choices"]), float(cached["seconds"]))


def as_stats(device: Device, reports: list[dict[str, Any]]) -> dict[str, Any]:
    """For Engine.stats(): the device fields and tiles in use, and the choices that led to them."""
    return {
        "device": {name: getattr(device, name) for name in FIELDS},
        "tiles": {name: list(tile) for name, tile in device.tiles},
        "choices": reports,
    }
