"""Third-party notices of dist/: who made each package that the page contains, and under which licence.

Names, versions and licences come from the packages' own metadata: node_modules for what esbuild bundled, the virtual
environment for the archive's Python, and each Pyodide wheel for itself. Pyodide's core is one WebAssembly file without
metadata: PYODIDE lists its parts. tools/licenses holds the texts that packages do not ship, by SPDX identifier.
"""

import email
import email.message
import html
import json
import re
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path

from tools import pyodide, python_zip
from tools.failure import Failure
from tools.paths import NODE_MODULES, ROOT, site_packages

LICENSES = ROOT / "tools" / "licenses"
TEXT = re.compile(r"(^|/)(LICEN[CS]E|COPYING|NOTICE)[^/]*(?<!js)$", re.I)

# (name, licence, address, copyright line) of what is linked into pyodide.asm.wasm and python_stdlib.zip.
PYODIDE = (
    ("CPython", "PSF-2.0", "https://www.python.org", "Copyright (c) 2001 Python Software Foundation"),
    ("Emscripten", "MIT", "https://emscripten.org", "Copyright (c) 2010-2014 Emscripten authors"),
    ("musl", "MIT", "https://musl.libc.org", "Copyright (c) 2005-2020 Rich Felker, et al."),
    ("bzip2", "bzip2-1.0.6", "https://sourceware.org/bzip2", "Copyright (c) 1996-2019 Julian R Seward"),
    ("Expat", "MIT", "https://libexpat.github.io",
     "Copyright (c) 1998-2000 Thai Open Source Software Center Ltd and Clark Cooper\n"
     "Copyright (c) 2001-2025 Expat maintainers"),
    ("libffi", "MIT", "https://sourceware.org/libffi", "Copyright (c) 1996-2025 Anthony Green, Red Hat, Inc, others"),
    ("libmpdec", "BSD-2-Clause", "https://www.bytereef.org/mpdecimal", "Copyright (c) 2008-2020 Stefan Krah"),
    ("SQLite", "blessing", "https://sqlite.org", ""),
    ("XZ Utils (liblzma)", "0BSD", "https://tukaani.org/xz", "Copyright (c) The XZ Utils authors and contributors"),
    ("zlib", "Zlib", "https://zlib.net", "Copyright (c) 1995-2024 Jean-loup Gailly and Mark Adler"),
    ("Zstandard", "BSD-3-Clause", "https://facebook.github.io/zstd",
     "Copyright (c) Meta Platforms, Inc. and affiliates"),
)  # fmt: skip

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>Wisp: licences</title>
</head>
<body>
<h1>Licences</h1>
<details><summary>Wisp {version} &ndash; Apache-2.0</summary><pre>{own}</pre></details>
<h2>What Wisp contains</h2>
{sections}
</body>
</html>
"""


@dataclass(frozen=True)
class Notice:
    """One package: `license` is an SPDX expression or what the metadata says instead, `texts` are its licence files."""

    name: str
    version: str
    license: str
    home: str
    texts: tuple[str, ...]


def notices(bundled: Iterable[str], members: Iterable[str], wheels: Iterable[Path]) -> list[Notice]:
    """Return the notices by name. `bundled`: npm packages in the bundles; `members`: names in the Python archive."""
    ours = (*python_zip.OWN_PACKAGES, "wgsl")
    packages = sorted({name.partition("/")[0] for name in members} - {*ours})
    found = [*map(_npm, [*bundled, "pyodide"]), *map(_installed, packages), *map(_wheel, wheels), *_pyodide_parts()]
    return sorted(found, key=lambda notice: notice.name.lower())


def page(found: Iterable[Notice], version: str) -> str:
    """Return notices.html: it needs no other file."""
    sections = []
    for notice in found:
        texts = "".join(f"<pre>{html.escape(text.strip())}</pre>" for text in notice.texts)
        title = html.escape(f"{notice.name} {notice.version}".strip())
        home = f'<p><a href="{html.escape(notice.home)}">{html.escape(notice.home)}</a></p>' if notice.home else ""
        sections.append(
            f"<details><summary>{title} &ndash; {html.escape(notice.license)}</summary>{home}{texts}</details>"
        )
    own = html.escape(license_text("Apache-2.0"))
    return PAGE.format(version=html.escape(version), own=own, sections="\n".join(sections))


def license_text(name: str) -> str:
    """Return the text of an SPDX licence; Failure if the checkout does not have it."""
    path = ROOT / "LICENSE" if name == "Apache-2.0" else LICENSES / f"{name}.txt"
    if not path.exists():
        raise Failure(f"No text of the licence {name!r}; put it into tools/licenses/{name}.txt")
    return path.read_text(encoding="utf-8")


def _npm(name: str) -> Notice:
    folder = NODE_MODULES / name
    about = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    repository = about.get("repository", "")
    address = repository.get("url", "") if isinstance(repository, dict) else repository
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.iterdir()) if TEXT.search(path.name)]
    home = about.get("homepage") or re.sub(r"^git[+:]+(https?:)?/*", "https://", address)
    license = about.get("license") or ("licence below" if texts else "")
    return Notice(name, about["version"], license, home, _texts(license, texts))


def _installed(package: str) -> Notice:
    """The notice of the installed distribution that has this top-level package."""
    if package not in _owners():
        raise Failure(f"No installed Python package has {package}/; delete .venv and build again")
    return _distribution(_owners()[package])


@cache
def _owners() -> dict[str, Distribution]:
    """Top-level package -> the installed distribution that has it."""
    found = distributions(path=[str(site_packages())])
    return {file.parts[0]: distribution for distribution in found for file in distribution.files or ()}


def _distribution(found: Distribution) -> Notice:
    names = [str(file) for file in found.files or () if TEXT.search(str(file)) and ".dist-info/" in str(file)]
    return _python(email.message_from_string(str(found.read_text("METADATA"))), names, lambda name: _read(found, name))


def _read(found: Distribution, name: str) -> str:
    return Path(str(found.locate_file(name))).read_text(encoding="utf-8")


def _wheel(path: Path) -> Notice:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        about = email.message_from_string(archive.read(metadata).decode())
        licenses = [name for name in names if TEXT.search(name) and ".dist-info/" in name]
        return _python(about, licenses, lambda name: archive.read(name).decode())


def _python(about: email.message.Message, names: list[str], read: Callable[[str], str]) -> Notice:
    license = str(about["License-Expression"] or about["License"] or _classified(about)).splitlines()[0]
    urls = dict(entry.split(", ", 1) for entry in about.get_all("Project-URL", []))
    home = next((urls[key] for key in ("homepage", "Homepage", "Source", "Repository") if key in urls), "")
    texts = _texts(license, map(read, sorted(names)))
    return Notice(str(about["Name"]), str(about["Version"]), license, home or about["Home-page"] or "", texts)


def _classified(about: email.message.Message) -> str:
    """Return the licence that the trove classifiers name."""
    kinds = [entry.split(" :: ") for entry in about.get_all("Classifier", [])]
    return next((kind[-1] for kind in kinds if kind[0] == "License"), "")


def _pyodide_parts() -> list[Notice]:
    lock = json.loads((pyodide.core_dir() / "pyodide-lock.json").read_text(encoding="utf-8"))
    versions = {"CPython": lock["info"]["python"], "Emscripten": lock["info"]["platform"].removeprefix("emscripten_")}
    return [
        Notice(name, versions.get(name, "").replace("_", "."), license, home,
               (f"{line}\n\n{license_text(license)}".strip(),))
        for name, license, home, line in PYODIDE
    ]  # fmt: skip


def _texts(license: str, found: Iterable[str]) -> tuple[str, ...]:
    """The package's own texts, or else that of its SPDX licence."""
    return tuple(found) or (license_text(license),)
