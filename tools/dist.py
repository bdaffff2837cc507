"""Make dist/: everything the page needs, as files that any static host can serve.

index.html, bench.html, signed-in.html, artifact.html, code.html, notices.html, wisp.js, prompt-api.js, wisp-chat.js,
sw.js and the manifest keep their names. All other files are under assets/, with a part of their SHA-256 in their name:
they can be cached for ever, and builds never mix. Beside a file, FILE.br and FILE.gz are the same compressed, for hosts
that send them with a Content-Encoding.
"""

import hashlib
import json
import os
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools import catalog, delivery, notices, pyodide, python_parts, python_zip, wasm
from tools.bundles import bundled
from tools.bytecode import bytecode
from tools.compressed import BEST, QUICK, compressed
from tools.dataclass_code import dataclass_code
from tools.environment import ensure_venv, pyproject
from tools.failure import Failure, say
from tools.fonts import with_fonts
from tools.headers import PAGE_CSP, SANDBOXES, headers_file, with_policy
from tools.npm import ensure_node_modules
from tools.paths import DIST, ROOT, STATIC
from tools.snapshot import imported, snapshot

# Bundle -> its entry point. Pages refer to it by this path.
PAGES = {
    "page": "app/page.js",
    "signed-in": "app/ui/mcp/signed_in.js",
    "style": "static/style.css",
    "bench": "bench/page.js",
    "bench-style": "bench/bench.css",
    "chat-search": "app/ui/chats/search/worker.js",
    "chat-import": "app/ui/chats/transfer/import_worker.js",
    "pdf": "app/retrieval/pdf.js",
    "pdf-worker": "app/retrieval/pdf_worker.js",
    "math": "node_modules/katex/dist/katex.mjs",
    "math-style": "node_modules/katex/dist/katex.css",
    "highlight": "node_modules/highlight.js/es/common.js",
    "highlight-all": "node_modules/highlight.js/es/index.js",
    "mermaid": "app/ui/answer/mermaid_frame.js",
    "monitor": "app/ui/monitor/panel.js",
    "monitor-style": "app/ui/monitor/monitor.css",
    "quality": "app/ui/quality/sheet.js",
    "quality-style": "app/ui/quality/quality.css",
    "code-worker": "app/tools/sandbox/worker.js",
}
SANDBOX = ROOT / "app" / "tools" / "sandbox"  # its Python runs in an interpreter of its own
SCRIPTS = {"mermaid", "code-worker"}  # bundles that are no modules
# Large or seldom used: the service worker caches them when they are first used.
ON_USE = {"highlight-all", "mermaid", "code-worker"}
MADE = "WISP_DIST_IS_MADE"  # in the environment: whoever started this process has just made dist/
FOR_INSTALLATION = re.compile(r"^screenshots/|-512\.png$")
VERSION = "__WISP_VERSION__"  # the placeholder for Wisp's version in pages


def short_hash(data: bytes) -> str:
    """Return the part of the content's hash that goes into a file's name."""
    return hashlib.sha256(data).hexdigest()[:12]


class Site:
    """The files of dist/ while they are made: published path -> content, and each source's published path."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.moved: dict[str, str] = {}  # path in the checkout -> path in dist/

    def add(self, path: str, data: bytes) -> str:
        """Publish under a stable name; return it."""
        self.files[path] = data
        return path

    def add_hashed(self, folder: str, name: str, data: bytes, source: str = "") -> str:
        """Publish under a name with the content's hash; return that path."""
        stem, dot, suffix = name.rpartition(".")
        path = f"{folder}/{stem}-{short_hash(data)}{dot}{suffix}"
        if source:
            self.moved[source] = path
        return self.add(path, data)

    def rewritten(self, text: str) -> str:
        """Replace every quoted path of a source file in `text` by its published path."""
        for source, path in self.moved.items():
            for name in (source, source.removeprefix("static/")):
                text = re.sub(rf"""(["'])(?:\./|\.\./|/)?{re.escape(name)}\1""", rf"\1{path}\1", text)
        return text


def made(*, quiet: bool = True) -> Path:
    """Return the path of dist/. Build it first, unless the process that started this one has (MADE)."""
    return DIST if MADE in os.environ else build(quiet=quiet)


def build(*, quiet: bool = False, release: bool = False) -> Path:
    """Install what is missing, write dist/ and return its path. `release`: compress as well as possible."""
    ensure_venv(dev=False)
    ensure_node_modules()
    wheels, seldom = pyodide.wheels(), [*pyodide.sandbox(), pyodide.installer()]
    started = time.perf_counter()
    site = Site()
    sources = python_zip.sources()
    archive = python_zip.pack(sources)
    with ThreadPoolExecutor() as pool:  # side by side: each step is a process of its own, which uses one core
        cpu_modules, bundling = pool.submit(wasm.modules, archive), pool.submit(_bundles)
        python, on_use = _add_python(site, sources, wheels)
    bundles, packages = bundling.result()
    assets: dict[str, object] = {
        **python,
        "worker": site.add_hashed("assets", "worker.js", bundles["worker"].encode()),
        "downloads": site.add_hashed("assets", "downloads.js", bundles["downloads"].encode()),
        "grammar": site.add_hashed("assets", "grammar.js", bundles["grammar"].encode()),
        "media": site.add_hashed("assets", "media.js", bundles["media"].encode()),
        "mcp": site.add_hashed("assets", "mcp.js", bundles["mcp"].encode()),
        "cpu": _add_cpu_engine(site, bundles["compute"], cpu_modules.result()),
    }
    on_use += [path for path in site.files if path.endswith(".wasm") and "/cpu-" in path]  # a browser uses one
    on_use.append(str(assets["mcp"]))  # for those who use tools of other servers
    # An installed page fetches these ahead: `#parts` names them.
    site.moved |= {"packages.zip": str(assets["packages"]), "mcp.js": str(assets["mcp"])}
    on_use += _add_static(site)
    on_use += [
        site.add_hashed("assets", path.name, path.read_bytes(), path.relative_to(ROOT).as_posix())
        for path in (*sorted(SANDBOX.glob("*.py")), pyodide.OF_PYPI, ROOT / "wisp" / "install_errors.py")
    ]
    packed = [site.add(f"assets/wheels-{short_hash(data := path.read_bytes())}/{path.name}", data) for path in seldom]
    site.moved["sandbox.whl"] = " ".join(packed)
    on_use += packed
    offline = [path for path in site.files if path not in on_use]  # the service worker caches these, not the models
    models = _add_models(site, archive)
    assets["catalog"] = models
    offline.append(models)

    def publish_font(name: str, data: bytes) -> str:
        offline.append(site.add_hashed("assets/fonts", name, data))
        return offline[-1].removeprefix("assets/")

    for language in sorted((ROOT / "app" / "language").glob("*.json")):
        text = json.dumps(json.loads(language.read_text(encoding="utf-8")), ensure_ascii=False, separators=(",", ":"))
        source = language.relative_to(ROOT).as_posix()
        offline.append(site.add_hashed("assets/languages", language.name, text.encode(), source))
    bundles["math-style"] = with_fonts(bundles["math-style"], ROOT / "node_modules/katex/dist", publish_font)
    for name, source in PAGES.items():
        if name in bundles:
            suffix = source.rpartition(".")[2]
            path = site.add_hashed("assets", f"{name}.{suffix}", bundles[name].encode(), source)
            (on_use if name in ON_USE else offline).append(path)
    assets["pdf"] = {"reader": site.moved[PAGES["pdf"]], "worker": site.moved[PAGES["pdf-worker"]]}
    sdk = f"const __WISP_ASSETS__ = {json.dumps(assets)};\n" + bundles["wisp"]
    offline.append(site.add("wisp.js", sdk.encode()))
    offline += [site.add(f"{name}.js", bundles[name].encode()) for name in ("prompt-api", "wisp-chat")]
    version = pyproject()["project"]["version"]
    licences = notices.page(notices.notices(packages, sources, [*wheels, *seldom]), version)
    offline.append(site.add("notices.html", with_policy(licences).encode()))
    for name in ("index.html", "bench.html", "signed-in.html", *SANDBOXES, "manifest.webmanifest"):
        if (STATIC / name).exists():
            text = site.rewritten((STATIC / name).read_text(encoding="utf-8")).replace(VERSION, version)
            if name.endswith(".html"):
                text = with_policy(text, SANDBOXES.get(name, PAGE_CSP))
            offline.append(site.add(name, text.encode()))
    if "sw" in bundles:
        digest = hashlib.sha256()
        for path in sorted(offline):
            digest.update(path.encode() + hashlib.sha256(site.files[path]).digest())
        precache = {"version": digest.hexdigest()[:12], "files": sorted(offline), "onUse": sorted(on_use)}
        site.add("sw.js", (f"const __WISP_PRECACHE__ = {json.dumps(precache)};\n" + bundles["sw"]).encode())

    plain = {path: data for path, data in site.files.items() if path not in packed}  # those are compressed already
    encoded = compressed(plain, BEST if release else QUICK)
    site.add("_headers", headers_file(site.files).encode())
    site.files |= encoded

    _write(site)
    if release and (size := delivery.first_visit().bytes) > delivery.LIMIT:
        raise Failure(f"A first visit transfers {size:,} bytes; at most {delivery.LIMIT:,} (python -m tools.delivery)")
    if not quiet:
        size = sum(len(data) for data in site.files.values())
        say(f"dist/ is made: {len(site.files)} files, {size / 1e6:.1f} MB, {time.perf_counter() - started:.1f} s")
    return DIST


def _bundles() -> tuple[dict[str, str], list[str]]:
    """Return bundle name -> text for the entry points that exist, and the npm packages in them."""
    candidates = [
        *((name, source, "iife" if name in SCRIPTS else "esm") for name, source in PAGES.items()),
        ("wisp", "app/wisp.js", "esm"),
        ("prompt-api", "app/sdk/prompt_api.js", "esm"),
        ("wisp-chat", "app/element/wisp_chat.js", "esm"),
        ("worker", "app/worker.js", "esm"),
        ("downloads", "py_engine/files/download_worker.js", "esm"),
        ("compute", "py_engine/cpu/compute_worker.js", "esm"),
        ("grammar", "app/answers/grammar.js", "esm"),
        ("media", "py_engine/media/media.js", "esm"),
        ("mcp", "app/mcp/client.js", "esm"),
        ("sw", "app/sw.js", "iife"),
        ("sw", "static/sw.js", "iife"),
    ]
    entries = [
        {"name": name, "file": file, "format": form} for name, file, form in candidates if (ROOT / file).exists()
    ]
    for needed in ("wisp", "worker", "grammar"):
        if not any(entry["name"] == needed for entry in entries):
            raise Failure(
                f"app/{needed}.js is missing from this checkout; get it back with: git checkout app/{needed}.js"
            )
    return bundled(entries)


def _add_python(site: Site, sources: dict[str, bytes], wheels: list[Path]) -> tuple[dict[str, object], list[str]]:
    """Publish Pyodide, the snapshot and the archives; return their assets and the paths that few visitors load."""
    core = {name: (pyodide.core_dir() / name).read_bytes() for name in pyodide.CORE_FILES}
    folder = f"assets/pyodide-{short_hash(b''.join(core.values()))}/"
    for name, data in core.items():
        site.add(folder + name, data)
    whole_library = folder + "python_stdlib.zip"
    library = python_parts.bytecode_library(core["python_stdlib.zip"])
    members = bytecode(sources, "/wisp/")
    started = snapshot(members, imported(sources), python_zip.pack(library), wheels)
    start, modules = python_parts.start_of_library(library, started)
    parts, left_out, whole_numpy = [], {"library": modules}, ""
    for wheel in wheels:
        data = wheel.read_bytes()
        # Pyodide reads a wheel's name and version from its file name: the hash goes into the folder's name.
        if wheel.name.startswith("numpy-"):
            whole_numpy = site.add(f"assets/wheels-{short_hash(data)}/{wheel.name}", data)
            data, left_out["numpy"] = python_parts.start_of_numpy(wheel, started)
        parts.append(site.add(f"assets/wheels-{short_hash(data)}/{wheel.name}", data))
    # The sandbox starts from the same snapshot, and has all modules.
    site.moved |= {"node_modules/pyodide/": folder, "python_stdlib.zip": whole_library, "numpy.whl": whole_numpy}
    site.moved["regex.whl"] = next(part for part in parts if "/regex-" in part)
    dataclasses = dataclass_code(sources, members, started.data, python_zip.pack(library), wheels)
    archive, packages = python_parts.start_of_archive(members, started, left_out, dataclasses)
    assets: dict[str, object] = {
        "pyodide": folder,
        "zip": site.add_hashed("assets", "py.zip", archive),
        "snapshot": site.add_hashed("assets", "python.bin", started.data, "python.bin"),
        "library": site.add_hashed("assets", "library.zip", start),
        "packages": site.add_hashed("assets", "packages.zip", packages),
        "wheels": parts,
        "whole": {"library": whole_library, "numpy": whole_numpy},
    }
    return assets, [whole_library, whole_numpy, str(assets["packages"])]


def _add_cpu_engine(site: Site, worker: str, modules: dict[str, bytes]) -> dict[str, str]:
    """Publish the CPU engine's worker and modules; return their paths."""
    paths = {"worker": site.add_hashed("assets", "compute.js", worker.encode())}
    for name, module in modules.items():
        paths[name] = site.add_hashed("assets", f"cpu-{name}.wasm", module)
    return paths


def _add_static(site: Site) -> list[str]:
    """Publish the files in the folders of static/, except the models. Return those that only an installation reads."""
    on_use = []
    for path in sorted(STATIC.glob("*/**/*")):
        inside = path.relative_to(STATIC)
        if path.is_file() and inside.parts[0] != "models":
            folder = f"assets/{inside.parent.as_posix()}"
            hashed = site.add_hashed(folder, path.name, path.read_bytes(), f"static/{inside.as_posix()}")
            if FOR_INSTALLATION.search(inside.as_posix()):
                on_use.append(hashed)
    return on_use


def _add_models(site: Site, archive: bytes) -> str:
    """Publish the catalog and its models; return the catalog's path."""
    names = {}
    for entry in catalog.entries():
        for path in (catalog.MODELS / file for file in catalog.files_of(entry)):
            if path.exists():
                names[path.name] = Path(site.add_hashed("assets/models", path.name, path.read_bytes())).name
    return site.add_hashed("assets/models", "catalog.json", catalog.finished(names, archive))


def _write(site: Site) -> None:
    """Write changed files, then remove old ones, so that a dist/ that is being served is never half empty."""
    for path, data in site.files.items():
        target = DIST / path
        if not (target.exists() and target.stat().st_size == len(data) and target.read_bytes() == data):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    for old in sorted(DIST.rglob("*"), reverse=True):
        if old.is_file() and old.relative_to(DIST).as_posix() not in site.files:
            old.unlink()
        elif old.is_dir() and not any(old.iterdir()):
            shutil.rmtree(old)
