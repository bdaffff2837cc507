"""Pack the page's Python into one zip: Wisp's own packages, its kernels, and the pure packages they import."""

import io
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.failure import run
from tools.paths import ROOT, site_packages, venv_python

OWN_PACKAGES = ("app", "py_engine")
NOT_OURS = ("app/tools/", "app/language/")  # Python of the sandbox, another interpreter; texts of the page
# Importing the whole `gguf` package costs 0.8 s and needs PyYAML and tqdm; these modules import each other only.
GGUF_MODULES = ("constants.py", "quants.py", "lazy.py")
EPOCH = (2020, 1, 1, 0, 0, 0)  # a fixed time, so that equal contents give equal bytes


def sources() -> dict[str, bytes]:
    """Return archive name -> content, sorted by name."""
    return dict(sorted(_members()))


def run_with(archive: bytes, code: str, arguments: Sequence[str | Path], otherwise: str) -> str:
    """Run Python code with the page's archive on its path; return its stdout. Failure with `otherwise`."""
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "py.zip"
        packed.write_bytes(archive)
        env = {**os.environ, "PYTHONPATH": str(packed)}
        return run([venv_python(), "-c", code, *arguments], otherwise, env=env)


def _members() -> Iterator[tuple[str, bytes]]:
    for package in OWN_PACKAGES:
        yield from _tree(ROOT / package, package, "*.py")
        yield from _tree(ROOT / package, package, "*.json")
    yield from _tree(ROOT / "wgsl", "wgsl", "*.wgsl")
    site = site_packages()
    for package in ("jinja2", "markupsafe"):
        yield from _tree(site / package, package, "*.py")
    yield "gguf/__init__.py", b""
    for name in GGUF_MODULES:
        yield f"gguf/{name}", (site / "gguf" / name).read_bytes()


def _tree(folder: Path, prefix: str, pattern: str) -> Iterator[tuple[str, bytes]]:
    for path in folder.rglob(pattern):
        name = f"{prefix}/{path.relative_to(folder).as_posix()}"
        if not name.startswith(NOT_OURS):
            yield name, path.read_bytes()


def pack(members: Mapping[str, bytes]) -> bytes:
    """Return a zip of the members, uncompressed: as a whole, it is sent in half the bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), content)
    return out.getvalue()
