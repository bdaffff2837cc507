"""The build's files: names with content hashes, nothing missing, equal bytes each time."""

import gzip
import hashlib
import io
import json
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tools import dist as maker
from tools import pyodide
from tools.catalog import entries
from tools.environment import pyproject
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
    hashed = [p for p in dist.glob("assets/**/*") if p.is_file() and not re.search(r"pyodide-|\.(br|gz)$", str(p))]
    assert len(hashed) > 5
    for path in hashed:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        assert digest in path.name or digest in path.parent.name, path


def test_the_sdk_names_files_that_exist(dist: Path, assets: dict[str, Any]) -> None:
    names = ["zip", "snapshot", "library", "packages", "worker", "catalog"]
    for path in [*(assets[name] for name in names), *assets["wheels"], *assets["whole"].values()]:
        assert (dist / path).is_file(), path
    for name in pyodide.CORE_FILES:
        assert (dist / assets["pyodide"] / name).is_file(), name


def test_wheels_are_the_ones_that_pyodide_names(dist: Path, assets: dict[str, Any]) -> None:
    lock = json.loads((dist / assets["pyodide"] / "pyodide-lock.json").read_text(encoding="utf-8"))["packages"]
    for name, path in {"numpy": assets["whole"]["numpy"], "regex": assets["wheels"][1]}.items():
        assert hashlib.sha256((dist / path).read_bytes()).hexdigest() == lock[name]["sha256"]


def test_page_refers_to_built_files_only(dist: Path) -> None:
    for name in ("index.html", "bench.html", "signed-in.html", "manifest.webmanifest"):
        text = (dist / name).read_text(encoding="utf-8")
        referred = re.findall(r'(?:src|href)"?[=:]\s*"([^"#][^"]*)"', text)
        assert referred
        for path in referred:
            assert (dist / path).is_file(), f"{name} refers to {path}"


def test_service_worker_caches_everything_but_the_models_and_what_is_seldom_used(dist: Path) -> None:
    precache = injected(dist / "sw.js", "__WISP_PRECACHE__")
    files = [path for path in dist.rglob("*") if path.is_file() and path.suffix not in (".br", ".gz")]
    everything = {path.relative_to(dist).as_posix() for path in files}
    models = {path for path in everything if path.endswith(".gguf")}
    on_use = set(precache["onUse"])
    seldom = {"cpu", "mcp", "mermaid", "highlight", "packages", "pyodide", "wheels", "icons/icon", "screenshots/chat"}
    seldom |= {"code", "session", "pictures", "plots", "resolver", "install_errors"}
    assert {path.removeprefix("assets/").partition("-")[0] for path in on_use} == seldom
    assert everything - set(precache["files"]) == {"sw.js", "_headers"} | models | on_use
    assert set(precache["files"]) <= everything


@pytest.mark.parametrize("file", ["app/tools/code.js", "docs/tools.md"])
def test_models_and_users_are_told_the_packages_of_the_sandbox(dist: Path, file: str) -> None:
    packages = [*pyproject()["tool"]["wisp"]["pyodide-sandbox"], *json.loads(pyodide.OF_PYPI.read_text("utf-8"))]
    packages.remove("et-xmlfile")  # which openpyxl alone needs
    text = (ROOT / file).read_text(encoding="utf-8")
    assert [name for name in packages if name not in text] == []
    page = (dist / "index.html").read_text(encoding="utf-8")
    (listed,) = re.findall(r'data-sandbox-wheels="([^"]*)"', page)
    paths = listed.split()
    assert all((dist / path).is_file() for path in paths)
    names = {path.rpartition("/")[2].partition("-")[0].replace("_", "-") for path in paths}
    assert {*packages} <= names


def test_the_fonts_of_formulas_are_in_dist(dist: Path) -> None:
    (style,) = dist.glob("assets/math-style-*.css")
    fonts = re.findall(r"url\(([^)]*)\)", style.read_text(encoding="utf-8"))
    assert len(fonts) == 20
    assert all((style.parent / font).is_file() for font in fonts)


def test_catalog_says_what_the_models_are(dist: Path, assets: dict[str, Any]) -> None:
    catalog = json.loads((dist / assets["catalog"]).read_text(encoding="utf-8"))
    assert [entry["id"] for entry in catalog if entry.get("default")] == ["wisp-mini-q4_0"]
    for entry, source in zip(catalog, entries(), strict=True):
        folder, size = (dist / assets["catalog"]).parent, 0
        for url, records, file in (("url", "records", "file"), ("projector", "projector_records", "projector")):
            if url not in entry:
                continue
            data = (folder / entry[url]).read_bytes()
            size += len(data)
            ends = [*(int(offset) for offset in entry[records]), len(data)]
            for (start, digest), end in zip(entry[records].items(), ends[1:], strict=True):
                assert digest == hashlib.sha256(data[int(start) : end]).hexdigest()
            assert data == (STATIC / "models" / source[file]).read_bytes()
        model = (folder / entry["url"]).read_bytes()
        assert (entry["size"], entry["sha256"]) == (size, hashlib.sha256(model).hexdigest())
    assert [entry["id"] for entry in catalog if "projector" in entry] == ["wisp-mini-sees-q4_0"]


def test_archive_holds_bytecode_of_the_checkout(dist: Path, assets: dict[str, Any]) -> None:
    with zipfile.ZipFile(io.BytesIO((dist / assets["zip"]).read_bytes())) as archive:
        names = set(archive.namelist())
        left_out = json.loads(archive.read("app/on_demand.json"))
    ours = {
        path.relative_to(ROOT).as_posix()
        for package in ("app", "py_engine")
        for path in (ROOT / package).rglob("*.py")
        if "tools" not in path.relative_to(ROOT / package).parts  # of the sandbox's Python
    }
    assert {name for name in names if name.startswith(("app/", "py_engine/")) and name.endswith(".pyc")} == {
        f"{name}c" for name in ours
    }
    assert {"jinja2/debug.pyc", "wgsl/matvec.wgsl"} <= names
    assert not [name for name in names if name.endswith((".so", ".js", ".py"))]
    assert {name for name in names if name.endswith(".json")} == {"app/on_demand.json", "app/openai/endpoints.json"}
    assert {"csv", "unittest.mock"} < {*left_out["library"]}
    assert {"numpy.random.mtrand", "numpy.ma.core"} < {*left_out["numpy"]}


def test_a_python_without_a_snapshot_finds_all_packages(dist: Path, assets: dict[str, Any]) -> None:
    with zipfile.ZipFile(dist / assets["packages"]) as archive:
        names = set(archive.namelist())
    assert {"jinja2/sandbox.pyc", "markupsafe/_native.pyc", "gguf/quants.pyc"} <= names


def test_compressed_files_hold_the_same(dist: Path) -> None:
    """Each is smaller than its file, and of every large text there is one."""
    packed = [*dist.rglob("*.gz")]
    for path in packed:
        original = path.with_suffix("").read_bytes()
        assert gzip.decompress(path.read_bytes()) == original
        assert path.with_suffix(".br").stat().st_size < path.stat().st_size < len(original)
    large = [p for p in dist.rglob("*") if p.suffix in (".js", ".mjs", ".wasm", ".bin") and p.stat().st_size > 10_000]
    assert len(large) > 10
    assert {path.with_suffix("") for path in packed} >= {*large}


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
    # No bytecode, no snapshot, no package. -c reads the models' records, and --version is Node's: this process may have
    # asked before.
    assert [command[1] for command in commands if command[1] not in ("-c", "--version")] == ["bundle.mjs"]
