"""notices.html of dist/: a licence for each package that the page contains."""

import html
import io
import json
import re
import zipfile
from pathlib import Path

import pytest

from tools import notices, pyodide
from tools.failure import Failure
from tools.paths import NODE_MODULES, ROOT

BUILD_ONLY = {"esbuild"}  # of package.json's dependencies: it makes the bundles and is not in them


@pytest.fixture(scope="module")
def texts(dist: Path) -> dict[str, str]:
    """Package in lower case -> its notice: version, licence and texts."""
    page = (dist / "notices.html").read_text(encoding="utf-8")
    found = re.findall(r"<details><summary>(.*?) &ndash; (.*?)</details>", page, re.S)
    return {
        title.rpartition(" ")[0].lower() or title.lower(): f"{title} {html.unescape(rest)}" for title, rest in found
    }


def test_npm_packages_have_a_notice(texts: dict[str, str]) -> None:
    wanted = json.loads((ROOT / "package.json").read_text())["dependencies"].items()
    for name, version in wanted:
        if name not in BUILD_ONLY:
            assert f"{name} {version} " in texts[name]
            assert "<pre>" in texts[name]
    assert not BUILD_ONLY & set(texts)


def test_the_archive_s_packages_have_a_notice(dist: Path, texts: dict[str, str]) -> None:
    (archive,) = dist.glob("assets/py-*.zip")
    with zipfile.ZipFile(io.BytesIO(archive.read_bytes())) as members:
        packages = {name.partition("/")[0] for name in members.namelist()} - {"app", "py_engine", "wgsl"}
    assert packages
    assert packages <= set(texts)
    assert "Copyright 2007 Pallets" in texts["jinja2"]


def test_wheels_and_python_have_a_notice(dist: Path, texts: dict[str, str]) -> None:
    normal = {name.replace("_", "-"): text for name, text in texts.items()}
    for path in dist.glob("assets/wheels-*/*.whl"):
        name, version = path.name.split("-")[:2]
        assert f" {version} " in normal[name.replace("_", "-").lower()]
    assert "PYTHON SOFTWARE FOUNDATION LICENSE" in texts["cpython"]
    assert "Mozilla Public License" in texts["pyodide"]
    lock = json.loads((pyodide.core_dir() / "pyodide-lock.json").read_text(encoding="utf-8"))
    assert f"CPython {lock['info']['python']}" in texts["cpython"]


def test_the_page_names_its_version_and_links_the_notices(dist: Path) -> None:
    page = (dist / "index.html").read_text(encoding="utf-8")
    assert re.search(r"Wisp \d+\.\d+\.\d+, Apache-2\.0", page)
    assert 'href="notices.html"' in page


def test_a_package_without_a_licence_stops_the_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "package.json").write_text('{"version": "1.0.0", "license": "Unknown-1.0"}')
    (tmp_path / "pyodide").symlink_to(NODE_MODULES / "pyodide")
    monkeypatch.setattr(notices, "NODE_MODULES", tmp_path)
    with pytest.raises(Failure, match=r"tools/licenses/Unknown-1\.0\.txt"):
        notices.notices(["new"], [], [])
