"""Measure a projector's encoder in a headless browser: an encoder_shapes.py shape with random weights.

python -m bench.encoders gemma-3-4b [--adapter lavapipe | --cpu] [--runs 5] [--count N] [--kernels] [--untuned]
    [--no-matrices] [--tiles] [--instant]

Times in milliseconds: `encode` from pixels or frames to the results on the host, median and best; `gpu` of the kernels
alone; `host` of the inputs' layout. `--instant` measures the host where there is no GPU: dispatches have no workgroups.
`dist/` must be built.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from bench.encoder_shapes import SHAPES, EncoderShape, write
from bench.headless import AS_ON_GPU, launched
from tests.support.browser import call_python, open_engine_page, wait_for_adapter
from tools.paths import DIST, ROOT
from tools.serve import Server

INSTANT = """() => {
  const own = GPUComputePassEncoder.prototype.dispatchWorkgroups;
  GPUComputePassEncoder.prototype.dispatchWorkgroups = function () { own.call(this, 0, 0, 0); };
}"""


def in_browser(
    shape: EncoderShape,
    file: Path,
    adapter: str | None,
    function: str,
    *,
    count: int = 0,
    on_cpu: bool = False,
    instant: bool = False,
    **arguments: Any,
) -> Any:
    """Call a function of tests/support/page/encoders.py with the file and random inputs of the shape's size."""
    mounts = {"tests/": ROOT / "tests" / "support" / "pages", "repo/": ROOT, "models/": file.parent}
    server = Server(DIST, 0, mounts=mounts).start()
    try:
        with sync_playwright() as playwright, launched(playwright, adapter) as browser:
            page = open_engine_page(browser, server.url)
            page.set_default_timeout(600_000)
            if not on_cpu:
                wait_for_adapter(page)
            if instant:
                page.evaluate(INSTANT)
            return call_python(
                page,
                f"encoders.{function}",
                url=f"/models/{file.name}",
                modality="image" if shape.vision else "audio",
                shape=[*shape.input, 3] if shape.vision else list(shape.input),
                count=count or shape.count,
                **arguments,
            )
    finally:
        server.shutdown()
        server.server_close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--adapter", choices=["swiftshader", "lavapipe"], help="default: the machine's GPU")
    parser.add_argument("--cpu", action="store_true", help="without a GPU")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--count", type=int, default=0, help="pictures or clips at once (default: those of a request)")
    parser.add_argument("--file", help="where the model is, or is written (default: a temporary folder)")
    parser.add_argument("--kernels", action="store_true", help="also the time of each kernel, the slowest first")
    parser.add_argument("--untuned", action="store_true", help="with the default tiles, as in a first load")
    parser.add_argument("--no-matrices", action="store_true", help="without subgroup matrices, the browsers' default")
    parser.add_argument("--tiles", action="store_true", help="instead, the products and attention with other tiles")
    parser.add_argument("--instant", action="store_true", help="let the GPU do nothing, to measure the host")
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(options.file or f"{folder}/{options.shape}.gguf").resolve()
        if not file.exists():
            print(f"writing {file}", file=sys.stderr)
            write(shape, str(file), options.shape)
        if options.tiles:
            _print_tiles(in_browser(shape, file, options.adapter, "sweep"))
            return
        load: dict[str, Any] = {"tune": not options.untuned} | (AS_ON_GPU if options.instant else {})
        if options.no_matrices:
            load["variant"] = {**load.get("variant", {}), "matrix": 0}
        found = in_browser(
            shape,
            file,
            options.adapter,
            "measure",
            runs=options.runs,
            kernels=options.kernels,
            load=load,
            backend="cpu" if options.cpu else "webgpu",
            count=options.count,
            on_cpu=options.cpu,
            instant=options.instant,
        )
    print(
        f"{options.shape}: {options.count or shape.count} x {shape.input}, {found['tokens']} tokens, {found['adapter']}"
    )
    print(
        f"encode: median {statistics.median(found['ms']):.1f} ms, best {min(found['ms']):.1f} ms of {len(found['ms'])}"
    )
    print(f"load: {found['load_ms']:.0f} ms, host: {found['host_ms']:.1f} ms")
    if options.cpu:
        return
    print(f"gpu: {found['gpu_ms']:.1f} ms in {found['dispatches']} dispatches")
    for choice, chosen in found["choices"]:
        print(f"  {choice}: {chosen}")
    for name, count, ms, flops in found["kernels"]:
        print(f"  {ms:9.2f} ms  {count:4d} x {name}" + (f"  {flops / ms / 1e9:.0f} TFLOP/s" if flops else ""))


def _print_tiles(found: list[dict[str, Any]]) -> None:
    for row in found:
        print(f"{row['kernel']}, {row['n']} rows, {1e3 * row['tflop']:.1f} GFLOP")
        times = sorted(row["times"].items(), key=lambda item: (isinstance(item[1], str), item[1]))
        for tile, ms in times:
            rate = ms if isinstance(ms, str) else f"{ms:9.3f} ms  {1e3 * row['tflop'] / ms:6.0f} TFLOP/s"
            print(f"  {tile:30} {rate}")


if __name__ == "__main__":
    main()
