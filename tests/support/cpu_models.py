"""The goldens' models on the numpy executor."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from py_engine import planner
from py_engine.cpu import executor as cpu
from py_engine.files.gguf_header import Header, parse
from py_engine.options import AdapterOptions
from py_engine.plan.kernels import Device
from py_engine.plan.lists import ALL_LOGITS, PREFILL
from py_engine.plan.pages import PAGE
from tests.support.model_files import ModelFiles
from tools.goldens import GOLDEN, golden_models

# a model of each folder
ONE_OF_EACH = sorted({p.parent.name: f"{p.parent.name}/{p.stem}" for p in golden_models()}.values())


def load(
    path: Path,
    n_ctx: int,
    batch: int = 16,
    kv_type: str = "f32",
    page: int = PAGE,
    media_width: int = 0,
    whole_media: bool = False,
    adapters: Sequence[Path] = (),
    scales: Sequence[float] = (),
    draft: Path | None = None,
    mtp: bool = False,
) -> cpu.Cpu:
    """The numpy executor of a file's plan. `scales`: the adapters' defaults."""
    files = ModelFiles.read(path, adapters, [AdapterOptions(scale=scale) for scale in scales], draft)
    header = files.parts.header

    options = planner.PlanOptions(
        n_ctx, batch, kv_type, files.factors(n_ctx), page, media_width, whole_media, files.adapters, mtp=mtp,
        draft=files.parts.draft, draft_factors=files.draft_factors(n_ctx), draft_tokens=files.draft_tokens(),
    )  # fmt: skip
    device = Device(software=True)
    plan = planner.make_plan(header, device, options)
    weights = {
        w.name: cpu.dequantize(w, np.frombuffer(b"".join(files.rows(*s) for s in w.sources), np.uint8))
        for w in plan.weights.values()
    }
    return cpu.Cpu(plan, weights)


def evaluate(model: cpu.Cpu, ids: list[int]) -> np.ndarray:
    """Logits of every position, in batches."""
    parts = []
    for at in range(0, len(ids), model.plan.batch):
        batch = ids[at : at + model.plan.batch]
        model.feed(at, batch, [PREFILL, ALL_LOGITS])
        parts.append(model.buffers["all_logits.logits"][: len(batch), : model.plan.n_vocab].copy())
    return np.concatenate(parts)


def golden(path: Path) -> tuple[Any, dict[str, Any]]:
    """A golden's arrays, and what is known about it."""
    return np.load(path.with_suffix(".npz")), json.loads(path.with_suffix(".json").read_text())


def header(name: str) -> Header:
    data = (GOLDEN / f"{name}.gguf").read_bytes()
    return parse(data, len(data))


def with_vocab(small: Header, size: int = 32_000) -> Header:
    """A golden's header with a vocabulary as large as that of real models."""
    tables = {"token_embd.weight", "output.weight"}
    changed = {n: replace(t, shape=(t.shape[0], size)) for n, t in small.tensors.items() if n in tables}
    return replace(small, tensors=small.tensors | changed)
