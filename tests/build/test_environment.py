"""The virtual environment: exact versions, files with known hashes, complete on every system."""

import itertools
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools import environment, lock
from tools.failure import Failure

WHEEL = "tiny-1.0-py3-none-any.whl"
FILES = {
    "tiny.py": "",
    "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
    "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "tiny-1.0.dist-info/RECORD": "",
}


def test_every_pin_has_hashes() -> None:
    lines = environment.locked(environment.pins()).splitlines()
    heads = [line.removesuffix(" \\") for line in lines if not line.startswith(" ")]
    assert heads == [str(Requirement(pin)) for pin in environment.pins()]
    for head, after in itertools.pairwise(lines):
        assert head.startswith(" ") or after.startswith("    --hash=sha256:"), head


def test_a_pin_without_hashes_says_what_to_do() -> None:
    with pytest.raises(Failure, match=r"python -m tools\.lock"):
        environment.locked(["numpy==0.1"])


def test_no_system_lacks_a_package() -> None:
    pins = [Requirement(pin) for pin in environment.pins()]
    assert lock.missing(pins) == []
    without = [pin for pin in pins if pin.name != "colorama"]  # which only Windows needs
    assert lock.missing(without) == ["colorama (for pytest)", "colorama (for tqdm)"]


def test_a_file_with_another_hash_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / WHEEL, "w") as wheel:
        for name, text in FILES.items():
            wheel.writestr(name, text)
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"tiny==1.0 --hash=sha256:{'0' * 64}\n", encoding="utf-8")
    options = ["--no-index", "--find-links", str(tmp_path), "--target", str(tmp_path / "there")]
    with pytest.raises(Failure, match=r"DO NOT MATCH|hash"):
        environment.pip_install([*options, "--require-hashes", "--no-deps", "-r", str(requirements)])
    assert not (tmp_path / "there" / "tiny.py").exists()
