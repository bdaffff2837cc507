"""bench.html shows figures; `build.py bench` prints tables and writes JSON."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, FilePayload, Page, expect

from bench import chat_requests, drafts, refusals, report, side_by_side
from py_engine.files.gguf_header import parse
from tests.support.browser import new_profile, watch
from tests.support.chat_page import keep_engine
from tests.support.gguf_bytes import MINI
from tests.support.page_looks import faults
from tools.paths import ROOT
from tools.serve import Server

TINY = "?backend=cpu&runs=1&prompts=8&contexts=8,100000&tokens=8&contextLength=128"
MEASURED_MS = 300_000  # a busy machine needs eight times as long as an idle one
PROSE = "The boat left the harbour before dawn. Nobody on the quay had slept, and the gulls were loud. "


@pytest.fixture(scope="module")
def bench_page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    """One page, its engine booted once."""
    context = new_profile(chromium(None), service_worker=False)
    page = context.new_page()
    page.goto(f"{server.url}bench.html{TINY}")
    yield page
    context.close()


@pytest.fixture(scope="module")
def shared_page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    """A page whose engine the scripts of several measurements share."""
    context = new_profile(chromium(None), service_worker=False)
    yield keep_engine(context, server.url)
    context.close()


def test_page_shows_figures_and_gives_them_as_json(bench_page: Page) -> None:
    page, errors = bench_page, watch(bench_page)
    page.get_by_label("Runs of each").fill("0")
    page.click("#start")
    expect(page.get_by_label("Runs of each")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Runs of each").fill("1")
    file = FilePayload(name="prose.txt", mimeType="text/plain", buffer=(PROSE * 12).encode())
    page.get_by_label("A text file, for its perplexity").set_input_files([file])
    page.click("#start")
    expect(page.locator("#status")).to_have_text("Done.", timeout=MEASURED_MS)
    expect(page.locator("#figures")).to_contain_text("the CPU")
    expect(page.locator("#figures")).to_contain_text("decode at 100000: the context holds")
    for title in ("Reading a prompt", "Writing"):
        section = page.locator("section.figure", has=page.get_by_role("heading", name=title))
        length, speed, *_ = section.locator("tbody td").all_inner_texts()
        assert length == "8"
        assert float(speed.replace(",", "")) > 0
        expect(section.get_by_role("img")).to_be_visible()
    with page.expect_download() as download:
        page.click("#download")
    saved = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert [row["prompt"] for row in saved["prefill"]] == [8]
    assert saved["constrained"]["ratio"] > 0  # how fast is no matter of a test: on a busy machine, 0.12 was seen
    assert saved["sampled"]["per_second"] > 0
    chunks = page.locator("section.figure", has=page.get_by_role("heading", name="Perplexity"))
    expect(chunks).to_contain_text("prose.txt")
    assert saved["quality"]["chunks"] > 1
    assert 1 < saved["quality"]["perplexity"] < 100  # the text repeats itself
    assert f"{saved['quality']['tokens']:,}" in chunks.inner_text()
    assert not errors
    looks: list[tuple[int, Any]] = [(320, "light"), (390, "dark"), (1280, "light"), (1280, "dark")]
    for width, scheme in looks:
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.wait_for_timeout(100)
        assert faults(page) == [], f"{width} {scheme}"


def test_stop_ends_a_measurement(bench_page: Page) -> None:
    page = bench_page
    page.get_by_label("Tokens to write").fill("1000")
    page.get_by_label("Runs of each").fill("99")
    page.click("#start")
    expect(page.locator("#figures")).to_contain_text("Reading a prompt", timeout=MEASURED_MS)
    page.click("#stop")
    expect(page.locator("#status")).to_have_text("Stopped.")
    expect(page.locator("#start")).to_be_visible()


def test_requests_side_by_side_are_measured(shared_page: Page, server: Server) -> None:
    asked = {
        "model": f"{server.url}repo/static/models/wisp-mini-q4_0.gguf",
        "draft": "/repo/static/models/wisp-mini-draft-q4_0.gguf",
        **{"counts": [1, 2], "tokens": 4, "prompt": 40, "short": 8, "runs": 1, "pause": 0},
        "options": {"backend": "cpu", "contextLength": 256},
        "shared": True,
    }
    found = shared_page.evaluate(side_by_side.MEASURE, asked)
    asked |= {"chats": [60], "more": [8, 16]}
    found_of_chats = shared_page.evaluate(chat_requests.MEASURE, asked)
    assert all(speed > 0 for way in ("draft", "lookup", "plain") for kind in found[way].values() for speed in kind)
    head, counts, *rows, first, gap = side_by_side.table(found).splitlines()
    assert head.startswith("cpu;")
    assert counts.split() == ["1", "2"]
    ways = [[kind, way] for kind in ("repeating", "sampled") for way in ("draft", "lookup", "plain")]
    assert [line.split()[:2] for line in rows] == ways
    assert [len(line.split()) for line in rows] == [6] * 6
    assert first.startswith("first token of a long prompt: ")
    assert gap.startswith("longest gap")
    head, strings, objects, chat = chat_requests.table(found_of_chats).splitlines()
    assert head.startswith("cpu;")
    assert [line.split()[0] for line in (strings, objects)] == ["strings", "objects"]
    assert all(speed > 0 for form in found_of_chats["forms"].values() for speed in form.values())
    assert chat.startswith("first token after 60 tokens")


def test_refusals_are_measured(shared_page: Page, server: Server) -> None:
    forms = [{"regex": "[a-z]"}, {"grammar": 'root ::= root root | "a"'}, {"regex": "(((a{1000}){1000}){1000})"}]
    model = f"{server.url}repo/static/models/wisp-mini-q4_0.gguf"
    asked = {"model": model, "forms": forms, "runs": 2, "shared": True}
    found = shared_page.evaluate(refusals.MEASURE, asked)["forms"]
    measured = [{"form": form, **one} for form, one in zip(forms, found, strict=True)]
    assert [(one["answer"], len(one["times"])) for one in measured] == [
        ("accepted", 1),
        ("unsupported_parameter", 2),
        ("unsupported_parameter", 2),
    ]
    head, *slowest, accepted = refusals.table(measured).splitlines()
    assert head.startswith("2 of 3 forms refused")
    assert len(slowest) == 2
    assert accepted.startswith("accepted: median")


def test_drafts_by_a_model_are_measured(chromium: Callable[[str | None], Browser], server: Server) -> None:
    context = new_profile(chromium(None))
    page = context.new_page()
    page.goto(f"{server.url}notices.html")
    files = [f"{server.url}repo/static/models/wisp-mini-{kind}.gguf" for kind in ("q4_0", "q8_0")]
    asked = {
        "model": files[0],
        "ways": drafts.ways(files[1], files[0], {"draftTokens": 3}),
        "kinds": {kind: drafts.questions(kind)[:1] for kind in drafts.KINDS},
        "samplings": {"top_p": drafts.SAMPLINGS["top_p"]},
        **{"tokens": 12, "runs": 1},
        "options": {"backend": "cpu", "contextLength": 256},
    }
    found = page.evaluate(drafts.MEASURE, asked)
    context.close()
    for kind in drafts.KINDS:
        one = found["kinds"][kind]["top_p"]
        assert not one["different"]
        assert all(one[way]["decode"] > 0 for way in drafts.WAYS)
        assert not one["plain"]["drafted"]
    head, *lines = drafts.table(found).splitlines()
    assert head.startswith("cpu ")
    assert [line.split()[0] for line in lines] == ["chats,", *drafts.WAYS, "stories,", *drafts.WAYS]


def test_a_mixed_up_draft_has_the_same_rows_for_other_tokens() -> None:
    file = MINI.read_bytes()
    mixed = drafts.mixed_up(file)
    header = parse(file, len(file))
    tensor = header.tensors[drafts.EMBEDDING]
    at = header.data_offset + tensor.offset
    before, after = (np.frombuffer(data, np.uint8)[at : at + tensor.nbytes] for data in (file, mixed))
    rows = [{row.tobytes() for row in data.reshape(tensor.shape[1], -1)} for data in (before, after)]
    assert rows[0] == rows[1]
    assert not np.array_equal(before, after)
    assert (mixed[:at], mixed[at + tensor.nbytes :]) == (file[:at], file[at + tensor.nbytes :])


@pytest.mark.browser
def test_command_prints_tables_and_writes_json(dist: Path, tmp_path: Path) -> None:
    target = tmp_path / "bench.json"
    tiny = ["--backend", "cpu", "--runs", "1", "--prompts", "8", "--contexts", "8", "--tokens", "8"]
    tiny += ["--adapter", "swiftshader"]  # the tests' browser, which compiles quickly
    model = ["--model", "static/models/wisp-mini-q8_0.gguf"]
    command = [sys.executable, "-m", "bench", *tiny, *model, "--json", str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "decode at 8" in done.stdout
    result = json.loads(target.read_text(encoding="utf-8"))
    assert result["model"] == "wisp-mini-q8_0"
    assert result["backend"] == "cpu"
    assert set(result) >= {"load_ms", "memory", "timings", "adapter", "prefill", "decode", "kernels", "skipped"}
    assert result["prefill"][0]["per_second"] > 0
    assert result["decode"][0]["context"] == 8


def test_command_tells_what_is_wrong_in_a_line() -> None:
    command = [sys.executable, "-m", "bench", "--model", "no-such-file.gguf"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "build.py: There is no file no-such-file.gguf"


def test_report_compares_with_the_peer() -> None:
    speed = {"slowest": 90.0, "fastest": 110.0, "runs": 5}
    result = {
        "model": "m",
        "backend": "webgpu",
        "adapter": {"description": "A GPU", "vendor": "v", "architecture": ""},
        "load_ms": 5.0,
        "timings": {"boot_ms": 1.0},
        "memory": {"weights": 1_000_000, "kv": 0},
        "notices": [],
        "prefill": [{"prompt": 32, "per_second": 100.0, **speed}],
        "decode": [{"context": 16, "per_second": 100.0, "dispatches": 40, "submits": 0.25, **speed}],
        "kernels": {
            "decode at 16": [
                {"kernel": "mul", "count": 4, "us": 2.0, "total_us": 8.0, "bytes": 3e6, "flops": 8e6, "floor_us": 1.6}
            ]
        },
        "steps": {
            "decode at 16": {
                **{"us": 9.0, "kernels_us": 8.0, "wall_us": 12.0},
                **{"floor_us": 6.0, "bytes": 12e6, "flops": 32e6, "dispatches": 4},
            }
        },
        "read_rates": [[65536, 1200.0], [1 << 20, 1600.0]],
        "skipped": [],
        "peers": [
            {"backend": "wasm", "threads": 1, "prefill": [{"prompt": 32, "per_second": 50.0}], "decode": []},
            {"backend": "webgpu", "error": "no shader-f16"},
        ],
    }
    text = report.text(result)
    prefill = next(line for line in text.splitlines() if line.startswith("prefill 32") and "2.00" in line)
    assert prefill.split() == ["prefill", "32", "50.0", "2.00"]
    assert "wllama, webgpu: did not run: no shader-f16" in text
    assert "A GPU" in text
    kernel = next(line for line in text.splitlines() if line.startswith("mul"))
    assert kernel.split() == ["mul", "4", "2.0", "8.0", "100%", "3", "1500", "4000", "1.6", "1.25"]
    assert "4 dispatches one after the other 9 us; each by itself 8 us, a difference of +1 us" in text
    assert "besides the kernels +3; floor 6 us for 12 MB, 1.50 times that" in text
    assert "64 KiB 1.2 us (55 GB/s), 1 MiB 1.6 us (655 GB/s)" in text
