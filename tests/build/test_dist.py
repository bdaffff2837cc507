"""The build's files: names with content hashes, nothing missing, equal bytes each time."""

import hashlib
import io
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tools import dist as maker
from tools import pyodide, texts
from tools.paths import ROOT, STATIC


@pytest.fixture(scope="module")
def assets(dist: Path) -> dict[str, Any]:
    """__WISP_ASSETS__ of the built wisp.js."""
    return injected(dist / "wisp.js", "__WISP_ASSETS__")


def injected(file: Path, name: str) -> dict[str, Any]:
    match = re.match(rf"const {name} = (.*);\n", file.read_text(encoding="utf-8"))
    assert match
    found: dict[str, Any] = json.loads(match[1])
    return found


def test_hashed_names_say_what_is_in_them(dist: Path) -> None:
    hashed = [path for path in dist.glob("assets/**/*") if path.is_file() and "pyodide-" not in str(path)]
    assert len(hashed) > 5
    for path in hashed:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        assert digest in path.name or digest in path.parent.name, path


def test_the_sdk_names_files_that_exist(dist: Path, assets: dict[str, Any]) -> None:
    for path in [assets["zip"], assets["snapshot"], assets["worker"], assets["catalog"], *assets["wheels"]]:
        assert (dist / path).is_file(), path
    for name in pyodide.CORE_FILES:
        assert (dist / assets["pyodide"] / name).is_file(), name


def test_wheels_are_the_ones_that_pyodide_names(dist: Path, assets: dict[str, Any]) -> None:
    lock = json.loads((dist / assets["pyodide"] / "pyodide-lock.json").read_text(encoding="utf-8"))["packages"]
    for path in assets["wheels"]:
        name = Path(path).name.split("-")[0]
        assert hashlib.sha256((dist / path).read_bytes()).hexdigest() == lock[name]["sha256"]


def test_page_refers_to_built_files_only(dist: Path) -> None:
    for name in ("index.html", "bench.html", "manifest.webmanifest"):
        text = (dist / name).read_text(encoding="utf-8")
        referred = re.findall(r'(?:src|href)"?[=:]\s*"([^"#][^"]*)"', text)
        assert referred
        for path in referred:
            assert (dist / path).is_file(), f"{name} refers to {path}"


def test_service_worker_caches_everything_but_the_models_and_what_is_seldom_used(dist: Path) -> None:
    precache = injected(dist / "sw.js", "__WISP_PRECACHE__")
    everything = {path.relative_to(dist).as_posix() for path in dist.rglob("*") if path.is_file()}
    models = {path for path in everything if path.endswith(".gguf")}
    on_use = set(precache["onUse"])
    assert {path.partition("-")[0] for path in on_use} == {
        "assets/mermaid",
        "assets/highlight",
        *(f"assets/languages/{code}" for code in texts.codes()),
    }
    assert everything - set(precache["files"]) == {"sw.js", "_headers"} | models | on_use
    assert set(precache["files"]) <= everything


def test_the_fonts_of_formulas_are_in_dist(dist: Path) -> None:
    (style,) = dist.glob("assets/math-style-*.css")
    fonts = re.findall(r"url\(([^)]*)\)", style.read_text(encoding="utf-8"))
    assert len(fonts) == 20
    assert all((style.parent / font).is_file() for font in fonts)


def test_catalog_says_what_the_models_are(dist: Path, assets: dict[str, Any]) -> None:
    catalog = json.loads((dist / assets["catalog"]).read_text(encoding="utf-8"))
    assert [entry["id"] for entry in catalog if entry.get("default")] == ["wisp-mini-q4_0"]
    for entry in catalog:
        data = ((dist / assets["catalog"]).parent / entry["url"]).read_bytes()
        assert (entry["size"], entry["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        ends = [*(int(offset) for offset in entry["records"]), len(data)]
        for (start, digest), end in zip(entry["records"].items(), ends[1:], strict=True):
            assert digest == hashlib.sha256(data[int(start) : end]).hexdigest()
        assert data == (STATIC / "models" / f"{entry['id']}.gguf").read_bytes()


def test_archive_holds_the_checkout_and_bytecode_of_each_file(dist: Path, assets: dict[str, Any]) -> None:
    with zipfile.ZipFile(io.BytesIO((dist / assets["zip"]).read_bytes())) as archive:
        names = set(archive.namelist())
        for package in ("app", "py_engine"):
            for path in (ROOT / package).rglob("*.py"):
                name = path.relative_to(ROOT).as_posix()
                assert archive.read(name) == path.read_bytes()
        sources = [name for name in names if name.endswith(".py")]
        for name in sources:
            folder, _, file = name.rpartition("/")
            assert f"{folder}/__pycache__/{file[:-3]}.cpython-314.pyc" in names
    assert {"jinja2/sandbox.py", "markupsafe/_native.py", "gguf/quants.py", "wgsl/matvec.wgsl"} <= names
    assert not [name for name in names if name.endswith((".so", ".js"))]


def test_reduced_gguf_imports_without_the_rest(dist: Path, assets: dict[str, Any], tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(dist / assets['zip'])!r}); import gguf.constants, gguf.quants; " \
           "print(gguf.__file__, 'yaml' in sys.modules)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ".zip" in done.stdout
    assert "False" in done.stdout


def test_a_second_build_changes_nothing_and_compiles_no_python(dist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        commands.append([Path(part).name for part in command])
        return real(command, **options)

    real = subprocess.run
    monkeypatch.setattr(subprocess, "run", run)

    def state() -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in dist.rglob("*") if path.is_file()}

    before = state()
    (dist / "stale.js").write_text("old")
    maker.build(quiet=True)
    assert state() == before
    # No bytecode, no snapshot, no package. -c reads the models' records, unless this process has done so.
    assert [command[1] for command in commands if command[1] != "-c"] == ["--version", "bundle.mjs"]
