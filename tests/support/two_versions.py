"""Versions of the build whose scripts, styles and languages have other names, as those of a newer one have."""

import json
import re
import shutil
from pathlib import Path

HASHED = re.compile(r"^(.+)-[0-9a-f]{12}(\.(?:js|mjs|css|json))$")
CHECKED = ("packages-", "catalog-")  # the engine compares these with the hashes in their names, or has no other
TEXTS = {".html", ".js", ".mjs", ".css", ".webmanifest"}


def version(dist: Path, site: Path, name: str) -> Path:
    """Write a version of the build, which greets with its name."""
    shutil.copytree(dist, site, ignore=shutil.ignore_patterns("*.br", "*.gz"))
    moved = {}
    for path in list((site / "assets").rglob("*")):
        if (found := HASHED.match(path.name)) and not path.name.startswith(CHECKED):
            moved[path.name] = f"{found[1]}-{name}{found[2]}"
            path.rename(path.with_name(moved[path.name]))
    names = re.compile("|".join(map(re.escape, moved)))
    for path in site.rglob("*"):
        if path.suffix in TEXTS:
            text = path.read_text(encoding="utf-8").replace("What shall we try?", f"Version {name}")
            path.write_text(names.sub(lambda found: moved[found[0]], text), encoding="utf-8")
    script = site / "sw.js"
    first, rest = script.read_text(encoding="utf-8").split("\n", 1)
    precache = json.loads(first.partition("=")[2].strip().rstrip(";")) | {"version": name}
    script.write_text(f"const __WISP_PRECACHE__ = {json.dumps(precache)};\n{rest}", encoding="utf-8")
    return site


def publish(newer: Path, site: Path) -> None:
    """Replace a site by another version, as a host does: files that the new one lacks are removed.

    The service worker is replaced last and at once. A page that has just started looks for a newer one by itself, which
    would cache the files of both versions.
    """
    for path in site.rglob("*"):
        if path.is_file() and not (newer / path.relative_to(site)).exists():
            path.unlink()
    worker = site / "sw.js"
    files = shutil.ignore_patterns(worker.name)
    shutil.copytree(newer, site, dirs_exist_ok=True, copy_function=shutil.copyfile, ignore=files)
    shutil.copyfile(newer / worker.name, site / "newer").replace(worker)
