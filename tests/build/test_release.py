"""The wheel and the archives of a release: reproducible, whole, and usable outside a browser."""

import base64
import csv
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tools import npm_package, release, wheel
from tools.paths import STATIC

USE = """
import asyncio, json, sys, wisp
async def use(path):
    async with await wisp.Engine.load(path, vocab_only=True) as engine:
        ids = engine.tokenize("Hello world")
        texts = [engine.detokenize(ids), engine.apply_template("Hi")]
    estimate = await wisp.Engine.estimate(path, context_length=512)
    try:
        await wisp.Engine.load(path)
    except wisp.WispError as error:
        return [ids, texts, estimate["total"], error.code]
found = asyncio.run(use(sys.argv[1]))
outside = [name for name in sys.modules if name.split(".")[0] in ("app", "py_engine", "gguf")]
print(json.dumps([found, outside]))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel.build(tmp_path_factory.mktemp("wheel"))


def test_equal_sources_give_an_equal_wheel(made: Path, tmp_path: Path) -> None:
    assert wheel.build(tmp_path).read_bytes() == made.read_bytes()


def test_the_record_lists_every_file(made: Path) -> None:
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
        (record,) = (name for name in names if name.endswith("/RECORD"))
        rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
        assert sorted(row[0] for row in rows) == sorted(names)
        for name, digest, size in rows:
            if name != record:
                data = archive.read(name)
                found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert (f"sha256={found}", str(len(data))) == (digest, size)
        (notices,) = (archive.read(name).decode() for name in names if name.endswith("/NOTICES.txt"))
        tops = {name.split("/")[0] for name in names}
    assert tops == {"wisp", record.split("/")[0]}
    assert all(name in notices for name in ("gguf", "hash-wasm", "@mlc-ai/web-xgrammar"))


def test_it_tokenizes_renders_and_plans_under_cpython(made: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(made) as archive:
        archive.extractall(tmp_path)
    command: list[str | Path] = [sys.executable, "-c", USE, STATIC / "models" / "wisp-mini-q4_0.gguf"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    (ids, (text, prompt), total, code), outside = json.loads(done.stdout)
    assert (len(ids), text) == (2, "Hello world")
    assert prompt.rstrip().endswith("<|im_start|>assistant")
    assert total > 5_000_000
    assert code == "no_webgpu"
    assert outside == []


def test_the_npm_package_has_what_the_sdk_loads(dist: Path) -> None:
    files = npm_package.engine_files(dist)
    assets = json.loads(files["wisp.js"].decode().partition("= ")[2].partition(";\n")[0])
    assert files[assets["catalog"]] == b"[]"
    for name in (assets["worker"], assets["cpu"]["simd"], assets["whole"]["numpy"], assets["pyodide"] + "pyodide.mjs"):
        assert files[name] == (dist / name).read_bytes()
    assert not [name for name in files if name.endswith((".gguf", ".br", ".gz", ".html"))]


def test_archives_and_checksums_are_reproducible(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for i, folder in enumerate(folders):
        (folder / "inner").mkdir(parents=True)
        for name in ["x", "inner/y"][:: 1 - 2 * i]:  # in another order
            (folder / name).write_text(name)
            os.utime(folder / name, (i, i))
    first, second = (release.archive(folder, "wisp-1") for folder in folders)
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        assert tar.getnames() == ["wisp-1/inner/y", "wisp-1/x"]
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "file").write_bytes(b"abc")
    assert release.checksums(tmp_path / "c") == f"{hashlib.sha256(b'abc').hexdigest()}  file\n"
