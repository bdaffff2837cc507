"""Make the wheel: the engine as the Python package `wisp`, for any Pyodide (docs/python.md).

The wheel has one top-level package. app/, py_engine/, the kernels and gguf's modules are in it under their own names,
and their imports of each other begin with `wisp.`: names like `app` would collide with those of users. Equal sources
give equal bytes.
"""

import base64
import hashlib
import io
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools import notices, python_zip, wasm
from tools.bundles import bundled
from tools.environment import ensure_venv, pyproject
from tools.npm import ensure_node_modules
from tools.paths import ROOT

NAME, PACKAGE = "wisp_engine", "wisp"
# Folder of the wheel's files -> JavaScript entry points
SCRIPTS = {
    "host": "wisp/host.js",
    "compute": "py_engine/cpu/compute_worker.js",
    "grammar": "app/answers/grammar.js",
    "media": "py_engine/media/media.js",
}
REQUIRES = ("Jinja2>=3.1", "numpy", "regex")  # Pyodide has all three
# Code for the page's worker, HTTP's endpoints, and what the wheel requires
NOT_IN_IT = re.compile(
    r"app/(main|on_demand|dataclass_code|event_loop|handlers|model_messages|client)\.py"
    r"|app/(endpoints|compatible|upstreams)/|(jinja2|markupsafe)/"
)
IMPORT = re.compile(rb"^(\s*(?:from|import) )(app|py_engine|gguf)(?=[. ])", re.MULTILINE)


def build(folder: Path) -> Path:
    """Write the wheel into a folder; return its path."""
    ensure_venv(dev=False)
    ensure_node_modules()
    version = pyproject()["project"]["version"]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{NAME}-{version}-py3-none-any.whl"
    about = {"Requires-Python": pyproject()["project"]["requires-python"], "License-Expression": "Apache-2.0"}
    summary = {"Summary": pyproject()["project"]["description"], **about}
    path.write_bytes(wheel(NAME, version, dict(_members()), summary, REQUIRES))
    return path


def wheel(
    name: str, version: str, files: Mapping[str, bytes], about: Mapping[str, str], requires: tuple[str, ...] = ()
) -> bytes:
    """Return a pure wheel of these files (the specification of binary distributions, version 1.0)."""
    info = f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.4", f"Name: {name.replace('_', '-')}", f"Version: {version}"]
    lines += [f"{key}: {value}" for key, value in about.items()]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    members = {
        **dict(sorted(files.items())),
        f"{info}/METADATA": ("\n".join(lines) + "\n").encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: wisp\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_hash(data)},{len(data)}\n" for path, data in members.items())
    members[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, data in members.items():
            entry = zipfile.ZipInfo(path, python_zip.EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, data)
    return out.getvalue()


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _members() -> Iterator[tuple[str, bytes]]:
    """The files of the wheel, path -> content."""
    sources = python_zip.sources()
    for path in sorted((ROOT / PACKAGE).glob("*.py")):
        yield f"{PACKAGE}/{path.name}", inside(path.read_bytes())
    for name, data in sources.items():
        if not NOT_IN_IT.match(name):
            yield f"{PACKAGE}/{name}", inside(data) if name.endswith(".py") else data
    yield f"{PACKAGE}/py.typed", b""
    texts, packages = bundled([{"name": name, "file": file, "format": "esm"} for name, file in SCRIPTS.items()])
    for name, text in texts.items():
        yield f"{PACKAGE}/files/{name}.js", text.encode()
    for name, module in wasm.modules(python_zip.pack(sources)).items():
        yield f"{PACKAGE}/files/cpu-{name}.wasm", module
    licenses = f"{NAME}-{pyproject()['project']['version']}.dist-info/licenses"
    yield f"{licenses}/LICENSE", (ROOT / "LICENSE").read_bytes()
    yield f"{licenses}/NOTICES.txt", _notices(packages).encode()


def _notices(packages: Sequence[str]) -> str:
    """The notices of the npm packages in the scripts, and of gguf."""
    found = notices.notices(packages, [path for path in python_zip.sources() if path.startswith("gguf/")], [])
    carried = [notice for notice in found if notice.name in (*packages, "gguf")]
    return "\n\n".join(f"{one.name} {one.version} ({one.license})\n\n" + "\n\n".join(one.texts) for one in carried)


def inside(source: bytes) -> bytes:
    """Return a module whose imports of Wisp's packages name them inside the wheel's package."""
    return IMPORT.sub(rb"\1wisp.\2", source)
