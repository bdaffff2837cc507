"""Make the npm package `wisp-engine` of dist/: the SDK with its types, the engine's files, and a Vite plugin."""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.environment import pyproject
from tools.failure import run
from tools.npm import ensure_node_modules
from tools.paths import NODE_MODULES, ROOT
from tools.tarball import tarball

NAME = "wisp-engine"
CATALOG = "assets/models/catalog.json"  # an empty one: the package brings no models
ASSETS = re.compile(r"const __WISP_ASSETS__ = (\{.*\});\n")
TSC = ["--ignoreConfig", "--declaration", "--emitDeclarationOnly", "--allowJs", "--checkJs", "false", "--skipLibCheck",
       "--target", "es2024", "--module", "esnext", "--moduleResolution", "bundler", "--resolveJsonModule",
       "--lib", "es2024,esnext,dom,dom.iterable,dom.asynciterable,webworker", "--types", "@webgpu/types"]  # fmt: skip


def build(dist: Path, folder: Path) -> Path:
    """Write the tarball into a folder; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{NAME}-{pyproject()['project']['version']}.tgz"
    path.write_bytes(tarball({f"package/{name}": data for name, data in sorted(_members(dist))}))
    return path


def _members(dist: Path) -> Iterator[tuple[str, bytes]]:
    """The files of the package, path -> content."""
    about = {
        "name": NAME,
        "version": pyproject()["project"]["version"],
        "description": pyproject()["project"]["description"],
        "license": "Apache-2.0",
        "type": "module",
        "exports": {
            ".": {"types": "./index.d.ts", "default": "./index.js"},
            "./vite": {"types": "./vite.d.ts", "default": "./vite.js"},
            "./engine/*": "./engine/*",
        },
        "files": ["*"],
    }
    yield "package.json", (json.dumps(about, indent=2) + "\n").encode()
    yield "LICENSE", (ROOT / "LICENSE").read_bytes()
    yield "notices.html", (dist / "notices.html").read_bytes()
    for path in sorted((ROOT / "npm").iterdir()):
        yield path.name, path.read_bytes()
    for name, data in engine_files(dist).items():
        yield f"engine/{name}", data
    yield from _types()


def engine_files(dist: Path) -> Mapping[str, bytes]:
    """The SDK and what it loads, path -> content. Hosts compress as they do."""
    sdk = (dist / "wisp.js").read_text(encoding="utf-8")
    found = ASSETS.match(sdk)
    assert found is not None, "wisp.js begins with its assets"
    assets = {**json.loads(found[1]), "catalog": CATALOG}
    files = {"wisp.js": (f"const __WISP_ASSETS__ = {json.dumps(assets)};\n" + sdk[found.end() :]).encode()}
    files |= {name: (dist / name).read_bytes() for name in ("prompt-api.js", "wisp-chat.js")}
    files[CATALOG] = b"[]"
    for name in _paths(assets):
        path = dist / name
        for file in [path] if path.is_file() else sorted(path.glob("*")):
            if file.suffix not in (".br", ".gz"):
                files[file.relative_to(dist).as_posix()] = file.read_bytes()
    return files


def _paths(assets: object) -> Iterator[str]:
    """Every path in the assets."""
    if isinstance(assets, str):
        yield assets
    elif isinstance(assets, dict | list):
        for value in assets.values() if isinstance(assets, dict) else assets:
            yield from _paths(value)


def _types() -> Iterator[tuple[str, bytes]]:
    """The types of the SDK, as the compiler writes them, and those that are written by hand."""
    ensure_node_modules(dev=True)
    with tempfile.TemporaryDirectory() as folder:
        command: list[str | Path] = [NODE_MODULES / ".bin" / "tsc", *TSC, "--rootDir", "app", "--outDir", folder]
        run([*command, "app/wisp.js", "app/sdk/prompt_api.js"], "Cannot write the SDK's types", cwd=ROOT)
        for path in sorted(Path(folder).rglob("*.d.ts")):
            yield f"types/{path.relative_to(folder).as_posix()}", path.read_bytes()
    for path in sorted((ROOT / "app" / "sdk").glob("*.d.ts")):
        yield f"types/sdk/{path.name}", path.read_bytes()
