"""Loads a projector and encodes pictures and sound with it."""

import base64
import struct
import time
from typing import Any

import numpy as np

from py_engine.encode.arrange import batches
from py_engine.encoder import Encoder
from py_engine.options import LoadOptions
from tests.support.page.engines import open_model, raw

Given = dict[str, Any]  # {"modality", "dtype", "shape", "data": base64}


async def encode(url: str, options: dict[str, Any], requests: list[list[Given]]) -> dict[str, Any]:
    """Encode the inputs of each request, all of one kind, in turn: their embeddings, and what the load reports."""
    source, header = await open_model(url)
    encoder = await Encoder.load(source, header, LoadOptions(**options))
    try:
        found = []
        for request in requests:
            arrays = [np.frombuffer(base64.b64decode(x["data"]), x["dtype"]).reshape(x["shape"]) for x in request]
            rows = await encoder.encode(request[0]["modality"], arrays)
            found.append([{"data": raw(data), "shape": list(shape)} for data, shape in rows])
        stats = encoder.engine.stats()
        return {"found": found, "backend": encoder.engine.backend, "proof": stats["proof"], "device": stats["kernels"]}
    finally:
        await encoder.unload()
        source.close()


async def measure(url: str, modality: str, shape: list[int], count: int, runs: int, *, kernels: bool) -> dict[str, Any]:
    """Time the encoding of `count` random inputs of a shape, and each kernel of it if `kernels`."""
    source, header = await open_model(url)
    started = time.perf_counter()
    encoder = await Encoder.load(source, header, LoadOptions(backend="webgpu"))
    load_ms = 1000 * (time.perf_counter() - started)
    try:
        random = np.random.default_rng(1)
        kind = np.uint8 if modality == "image" else np.float32
        inputs = [(random.random(shape) * (256 if modality == "image" else 1)).astype(kind) for _ in range(count)]
        times, tokens = [], 0
        for _ in range(runs + 1):  # the first run warms up
            started = time.perf_counter()
            tokens = sum(shape[0] for _, shape in await encoder.encode(modality, inputs))
            times.append(1000 * (time.perf_counter() - started))
        stages = [
            (stage.list, batch.rows[stage.rows])
            for batch in batches(encoder.towers[modality], encoder.engine.plan.encoders[modality], inputs)
            for stage in batch.plan.stages
        ]
        found: dict[str, Any] = {"ms": times[1:], "tokens": tokens, "load_ms": load_ms, "kernels": []}
        adapter = encoder.engine.adapter or {}
        found |= {"adapter": f"{adapter.get('vendor')} {adapter.get('architecture')}", "dispatches": 0, "gpu_ms": 0.0}
        by_kernel: dict[str, tuple[int, float]] = {}
        gpu: Any = encoder.engine.runner.gpu  # type: ignore[attr-defined]
        for name, n in stages:
            gpu.write("state", struct.pack("<4I", 0, n, 0, 0))
            found["gpu_ms"] += await gpu.time_lists([name], n, 3) / 1e6
            found["dispatches"] += len(gpu.plan.lists[name])
            for one in await gpu.profile(name, n, 3) if kernels else []:
                before = by_kernel.get(one["kernel"], (0, 0.0))
                by_kernel[one["kernel"]] = before[0] + 1, before[1] + one["ns"] / 1e6
        found["kernels"] = sorted(((k, *v) for k, v in by_kernel.items()), key=lambda row: -row[2])
        return found
    finally:
        await encoder.unload()
        source.close()
