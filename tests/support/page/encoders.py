"""Loads a projector and encodes pictures and sound with it."""

import base64
import struct
import time
from dataclasses import replace
from typing import Any

import numpy as np
from pyodide.ffi import JsException

from py_engine.encode.arrange import batches
from py_engine.encode.batch import EncoderBatch
from py_engine.encoder import Encoder
from py_engine.errors import WispError
from py_engine.media.layout import Shown
from py_engine.media.prepared import FramePair, Stacked
from py_engine.options import LoadOptions
from py_engine.plan.plan import Op, PerToken, Weight
from py_engine.plan.traffic import label_of
from tests.support.page.engines import open_model, raw

# {"modality", "dtype", "shape", "data": base64}; of an overview with tiles also "shown", of a pair of frames "pair"
Given = dict[str, Any]


async def encode(url: str, options: dict[str, Any], requests: list[list[Given]]) -> dict[str, Any]:
    """Encode the inputs of each request, all of one kind, in turn: their embeddings, and what the load reports."""
    source, header = await open_model(url)
    encoder = await Encoder.load(source, header, LoadOptions(**options))
    try:
        found = []
        for request in requests:
            rows = await encoder.encode(request[0]["modality"], [_input(given) for given in request])
            found.append([{"data": raw(data), "shape": list(shape)} for data, shape in rows])
        stats = encoder.engine.stats()
        return {"found": found, "backend": encoder.engine.backend, "proof": stats["proof"], "device": stats["kernels"]}
    finally:
        await encoder.unload()
        source.close()


def _input(given: Given) -> Any:
    array = np.frombuffer(base64.b64decode(given["data"]), given["dtype"]).reshape(given["shape"])
    if given.get("pair"):
        return FramePair(array)
    if "shown" not in given:
        return array
    return Stacked(array, Shown(*(tuple(pair) for pair in given["shown"])))


async def measure(
    url: str, modality: str, shape: list[int], count: int, runs: int, *, kernels: bool, load: dict[str, Any],
    backend: str = "webgpu",
) -> dict[str, Any]:  # fmt: skip
    """Time the encoding of `count` random inputs of a shape, and each kernel of it if `kernels`, on a GPU.

    `load`: options of it; tune: with the tiles that this device is fastest with, as from the second load on.
    """
    source, header = await open_model(url)
    started = time.perf_counter()
    encoder = await Encoder.load(source, header, LoadOptions(backend=backend, **load))
    load_ms = 1000 * (time.perf_counter() - started)
    try:
        inputs = _random_inputs(modality, shape, count)
        times, tokens = [], 0
        for _ in range(runs + 1):  # the first run warms up
            started = time.perf_counter()
            tokens = sum(shape[0] for _, shape in await encoder.encode(modality, inputs))
            times.append(1000 * (time.perf_counter() - started))
        started = time.perf_counter()
        found_batches = list(batches(encoder.towers[modality], encoder.engine.plan.encoders[modality], inputs))
        host_ms = 1000 * (time.perf_counter() - started)
        found: dict[str, Any] = {"ms": times[1:], "tokens": tokens, "load_ms": load_ms, "host_ms": host_ms}
        found["choices"] = [
            (report["choice"], report["chosen"]) for report in (encoder.engine.kernels or {"choices": []})["choices"]
        ]
        if backend == "cpu":
            return found | {"adapter": f"the CPU, {encoder.engine.stats()['threads']} threads"}
        adapter = encoder.engine.adapter or {}
        found |= {"adapter": f"{adapter.get('vendor')} {adapter.get('architecture')}", "dispatches": 0, "gpu_ms": 0.0}
        by_kernel: dict[str, tuple[int, float, int]] = {}
        gpu: Any = encoder.engine.runner.gpu  # type: ignore[attr-defined]
        for batch in found_batches:
            for stage in batch.plan.stages:
                n = batch.rows[stage.rows]
                _set_up(gpu, batch, n)
                found["gpu_ms"] += await gpu.time_lists([stage.list], n, 3) / 1e6
                ops = gpu.plan.lists[stage.list]
                found["dispatches"] += len(ops)
                for op, ns in zip(ops, await gpu.profile(stage.list, n, 3) if kernels else [], strict=False):
                    before = by_kernel.get(label_of(op), (0, 0.0, 0))
                    by_kernel[label_of(op)] = before[0] + 1, before[1] + ns / 1e6, before[2] + _flops(op, batch, n)
        found["kernels"] = sorted(((k, *v) for k, v in by_kernel.items()), key=lambda row: -row[2])
        return found
    finally:
        await encoder.unload()
        source.close()


async def sweep(url: str, modality: str, shape: list[int], count: int) -> list[dict[str, Any]]:
    """Time the first batch's products and attention with other tiles: {kernel, n, tflop, times}.

    `times`: milliseconds by tile, or why it does not run.
    """
    source, header = await open_model(url)
    encoder = await Encoder.load(source, header, LoadOptions(backend="webgpu"))
    try:
        inputs = _random_inputs(modality, shape, count)
        batch = next(iter(batches(encoder.towers[modality], encoder.engine.plan.encoders[modality], inputs)))
        gpu: Any = encoder.engine.runner.gpu  # type: ignore[attr-defined]
        rows, found = [], set()
        for stage in batch.plan.stages:
            n = batch.rows[stage.rows]
            _set_up(gpu, batch, n)
            for op in gpu.plan.lists[stage.list]:
                if op.kernel in TILES and (label := label_of(op)) not in found:
                    found.add(label)
                    times = {str(tile): await _timed(gpu, op, tile, n) for tile in TILES[op.kernel]}
                    rows.append({"kernel": label, "n": n, "tflop": _flops(op, batch, n) / 1e12, "times": times})
        return rows
    finally:
        await encoder.unload()
        source.close()


TILES: dict[str, list[tuple[int, ...]]] = {
    # TM, TN, DEPTH, SM, SN, AHEAD
    "matmul_matrix": [
        (128, 128, 64, 2, 4, 1), (128, 128, 64, 2, 4, 0), (128, 128, 64, 4, 2, 1), (128, 128, 64, 2, 2, 1),
        (128, 128, 32, 2, 2, 0), (128, 128, 32, 2, 2, 1), (128, 128, 32, 2, 2, 2), (128, 128, 32, 2, 4, 0),
        (128, 128, 32, 2, 4, 1), (128, 128, 32, 2, 4, 2), (256, 128, 32, 4, 2, 1), (128, 256, 32, 2, 4, 1),
        (128, 64, 64, 2, 2, 1), (128, 64, 32, 2, 2, 0), (128, 64, 32, 2, 2, 1), (128, 64, 32, 2, 2, 2),
        (128, 64, 32, 4, 1, 2), (64, 128, 64, 2, 2, 1), (64, 64, 64, 2, 2, 0), (64, 64, 64, 2, 2, 1),
        (64, 64, 64, 2, 2, 2),
    ],
    # ROWS, STRIP, TS
    "attention_matrix": [
        (64, 16, 16), (64, 16, 32), (64, 16, 64), (64, 32, 32), (64, 32, 64), (128, 16, 32), (128, 16, 64),
        (128, 32, 32), (128, 32, 64),
    ],
}  # fmt: skip


async def _timed(gpu: Any, op: Op, tile: tuple[int, ...], n: int) -> float | str:
    """Milliseconds of an op with another tile; why it cannot run."""
    names = ("TM", "TN", "DEPTH", "SM", "SN", "AHEAD") if op.kernel == "matmul_matrix" else ("ROWS", "STRIP", "TS")
    params = op.params | dict(zip(names, tile, strict=True))
    if op.params.get("EPILOGUE") == "gated" and tile[1] // tile[4] < 2 * int(op.params["SIDE"]):
        return "a subgroup needs rows of both the gate and the up"
    if op.kernel == "matmul_matrix":
        grid: tuple[Any, Any, Any] = (-(-int(op.consts["rows"]) // tile[1]), PerToken(tile[0]), 1)
    else:
        params["TQ"] = tile[0] // int(params["G"])
        grid = op.grid[0], PerToken(int(params["TQ"])), 1
    name = f"sweep {label_of(op)} {tile}"
    gpu.plan.lists[name] = [replace(op, params=params, grid=grid)]
    try:
        await gpu.compile(names=[name])
        return min([await gpu.time_lists([name], n, 10) / 1e6 for _ in range(3)])
    except (WispError, JsException) as error:
        return str(error)[:100]
    finally:
        del gpu.plan.lists[name]


def _random_inputs(modality: str, shape: list[int], count: int) -> list[Any]:
    random = np.random.default_rng(1)
    kind = np.uint8 if modality == "image" else np.float32
    return [(random.random(shape) * (256 if modality == "image" else 1)).astype(kind) for _ in range(count)]


def _set_up(gpu: Any, batch: EncoderBatch, n: int) -> None:
    """Write a batch's inputs, and a State of n rows."""
    for name, at, data in batch.inputs().writes:
        gpu.write(name, data, at)
    gpu.write("state", struct.pack("<4I", 0, n, 0, 0))


def _flops(op: Op, batch: EncoderBatch, n: int) -> int:
    """Floating-point operations of a product or of attention; 0 for others."""
    weight = op.bindings.get("w")
    if op.kernel.startswith("matmul") and isinstance(weight, Weight):
        return 2 * n * weight.rows * weight.cols
    if not op.kernel.startswith("attention"):
        return 0
    heads = int(op.consts["n_head_kv"]) * int(op.params["G"]) * int(op.params["HEAD_DIM"])
    table = batch.tables.get(int(op.params["SEGMENTS"])) if "SEGMENTS" in op.params else None
    return 4 * heads * (n * n if table is None else int((table[:, 1] - table[:, 0]).sum()))
