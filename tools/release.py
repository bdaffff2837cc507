"""Make release/: the wheel, the npm package, dist/ as an archive, their checksums. Equal sources give equal bytes."""

import hashlib
import shutil
from pathlib import Path

from tools import dist, npm_package, wheel
from tools.environment import pyproject
from tools.failure import say
from tools.paths import ROOT
from tools.tarball import tarball

RELEASE = ROOT / "release"
SUMS = "SHA256SUMS"


def build() -> Path:
    """Write release/ and return its path."""
    made = dist.build(release=True)
    shutil.rmtree(RELEASE, ignore_errors=True)
    wheel.build(RELEASE)
    npm_package.build(made, RELEASE)
    version = pyproject()["project"]["version"]
    (RELEASE / f"wisp-dist-{version}.tar.gz").write_bytes(archive(made, f"wisp-{version}"))
    (RELEASE / SUMS).write_text(checksums(RELEASE), encoding="utf-8")
    say(f"release/ is made:\n{(RELEASE / SUMS).read_text()}")
    return RELEASE


def archive(folder: Path, top: str) -> bytes:
    """Return a .tar.gz of a folder's files below `top`."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return tarball({f"{top}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in paths})


def checksums(folder: Path) -> str:
    """Return the lines of `sha256sum` for the files of a folder."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
