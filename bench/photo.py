"""Where the time from a photo to the first token goes, with one build or two by turns.

.venv/bin/python -m bench.photo [BEFORE [NOW]] [--shape smolvlm-500m] [--size 1000x750] [--instant] [--runs 20]

BEFORE and NOW are copies of dist/ (default: a new dist/ of this tree alone). The model is Wisp Mini Sees, or one with
random weights of the shape of another. The page draws the photos, each another one. bench/first_token.js notes when the
worker calls the browser, and when pictures are decoded and resized. `--instant` measures the host where there is no
GPU: dispatches have no workgroups. Prints medians, and the sixth of the runs that were quickest in each part: a busy
machine delays the others.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Page, sync_playwright

from bench import encoder_shapes, make_model
from bench.first_token import PROBE, QUICK
from bench.headless import AS_ON_GPU, READY_MS, instant, launched, run_before_worker, write_figures
from bench.shapes import Shape
from tools import dist
from tools.paths import ROOT
from tools.serve import Server

CHANNEL = "wisp.first_token"
SEES = "wisp-mini-sees-q4_0"
# The text models beside the encoders; Qwen2.5-VL's positions have one dimension here.
TEXTS = {
    "smolvlm-500m": Shape("llama", 32, 960, 2560, 15, 5, 64, 49280, True),
    "qwen2.5-vl-3b": Shape("qwen2", 36, 2048, 11008, 16, 2, 128, 151936, True, rope_base=1000000.0),
}
TOKENS = ("ĊĊ", "<fake_token_around_image>", "<global-img>")  # that tiles need; Ċ: a line break
MEASURE = """async (asked) => (await import("/bench/photo.js")).measurePhotos(asked)"""
PARTS = {
    "before decoding": ("begun", "decode"),
    "decode": ("decode", "decoded"),
    "resize": ("decoded", "resized"),
    "until the encoder's first command": ("resized", "encoder"),
    "encoder": ("encoder", "embeddings"),
    "until the prompt's first command": ("embeddings", "prompt"),
    "prompt": ("prompt", "token"),
    "token to page": ("token", "first"),
    "all": ("begun", "first"),
}


def times(run: dict[str, Any]) -> dict[str, float]:
    """When each part of one request began, from what its worker noted: [what, when, device of a command]."""
    notes = [note for note in run["notes"] if note[1] <= run["first"]]
    found = {what: next(at for noted, at, _ in notes if noted == what) for what in ("decode", "decoded", "resized")}
    commands = [(at, device) for noted, at, device in notes if noted == "encode" and at > found["resized"]]
    text = commands[-1][1]
    found["encoder"], found["encoded"] = (pick(at for at, device in commands if device != text) for pick in (min, max))
    found["prompt"] = next(at for at, _ in commands if at > found["encoded"])
    found["embeddings"] = max(at for noted, at, _ in notes if noted == "mapped" and at < found["prompt"])
    posted = max(at for noted, at, _ in notes if noted == "posted")
    found["token"] = max(at for noted, at, _ in notes if noted == "mapped" and at < posted)
    return found | {"begun": run["begun"], "first": run["first"]}


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """The median of each part, and the sixth of the runs that were quickest in it, in milliseconds."""
    builds = {name: [times(run) for run in runs] for name, runs in found.items()}
    lines = [f"{'ms':36}" + "".join(f"{name:>10}{'quick':>10}" for name in builds)]
    for part, (begin, end) in PARTS.items():
        line = f"{part:36}"
        for runs in builds.values():
            values = sorted(run[end] - run[begin] for run in runs)
            line += f"{median(values):10.1f}{values[len(values) // QUICK]:10.1f}"
        lines.append(line)
    return "\n".join(lines)


def probe(page: Page, builds: dict[str, Path], without_gpu: bool) -> None:
    """Have the workers of each build run bench/first_token.js before their own code."""
    text = instant(without_gpu) + PROBE.read_text(encoding="utf-8")
    for name, folder in builds.items():
        run_before_worker(page, folder, text.replace(CHANNEL, f"{CHANNEL} {name}"), f"{name}/")


def files(shape: str, folder: Path, layers: int | None) -> dict[str, Path]:
    """The files of a text model and its projector with random weights, which are made if they are not there."""
    text = replace(TEXTS[shape], n_layer=layers or TEXTS[shape].n_layer)
    found = {"model": folder / f"{shape}-text-{text.n_layer}.gguf", "projector": folder / f"{shape}.gguf"}
    if not found["model"].exists():
        make_model.write(text, "Q4_0", str(found["model"]), f"{shape}, random weights", tokens=TOKENS)
    if not found["projector"].exists():
        encoder_shapes.write(encoder_shapes.SHAPES[shape], str(found["projector"]), shape)
    return found


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The runs of each build (bench/photo.js)."""
    builds: dict[str, Path] = {"before": options.before.resolve()} if options.before else {}
    builds["now"] = options.now.resolve() if options.now else dist.made()
    mounts = {f"{name}/": build for name, build in builds.items()} | {"bench/": ROOT / "bench", "model/": folder}
    server = Server(builds["now"], 0, mounts=mounts).start()
    load: dict[str, Any] = {"contextLength": 2048, "backend": "webgpu", "model": SEES}
    if options.shape:
        made = files(options.shape, folder, options.layers)
        load |= {name: f"{server.url}model/{file.name}" for name, file in made.items()}
    if options.instant:
        load |= AS_ON_GPU
    try:
        with sync_playwright() as playwright, launched(playwright, options.adapter) as browser:
            page = browser.new_page()
            page.set_default_timeout(READY_MS)
            probe(page, builds, options.instant)
            page.goto(f"{server.url}notices.html")
            asked = {
                "builds": {name: f"{server.url}{name}" for name in builds},
                "load": load,
                "size": [int(side) for side in options.size.split("x")],
                "runs": options.runs,
            }
            found: dict[str, Any] = page.evaluate(MEASURE, asked)
            return {name: found[name] for name in builds}
    finally:
        server.shutdown()


def add_photo_options(parser: argparse.ArgumentParser, *, size: str, runs: int) -> None:
    """The options of all measurements of a question about a photo."""
    parser.add_argument("--shape", choices=TEXTS, help="random weights of this shape (default: Wisp Mini Sees)")
    parser.add_argument("--layers", type=int, help="of the shape's text model, only the first so many")
    parser.add_argument("--size", default=size, help=f"of the photo in pixels (default: {size})")
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--adapter", choices=["swiftshader", "lavapipe"], help="a software GPU")
    parser.add_argument("--folder", type=Path, help="where the files of a shape are made (default: a temporary one)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.photo", description="Measure the way of a photo.")
    parser.add_argument("before", type=Path, nargs="?", help="a copy of dist/ of one build")
    parser.add_argument("now", type=Path, nargs="?", help="of the other (default: a new dist/ of this tree)")
    parser.add_argument("--instant", action="store_true", help="let the GPU do nothing, to measure the host")
    add_photo_options(parser, size="1000x750", runs=20)
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        found = measure(options, (options.folder or Path(folder)).resolve())
    print(f"{options.shape or SEES}, {options.size}, medians of {options.runs}")
    print(table(found))
    write_figures(found, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
