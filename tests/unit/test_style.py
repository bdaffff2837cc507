"""The linters, formatters and type checkers are content with the whole checkout."""

import shutil
import subprocess
import sys

import pytest

from tests.works import GOLDEN, about
from tools.paths import NODE_MODULES, ROOT

BIN = NODE_MODULES / ".bin"
CHECKS = {
    "ruff check": [sys.executable, "-m", "ruff", "check", "."],
    "ruff format": [sys.executable, "-m", "ruff", "format", "--check", "."],
    "mypy": [sys.executable, "-m", "mypy"],
    "prettier": [str(BIN / "prettier"), "--check", "--log-level", "warn", "."],
    "tsc": [str(BIN / "tsc"), "--noEmit"],
}


@pytest.mark.parametrize("name", CHECKS)
def test_checker_is_content(name: str) -> None:
    command = CHECKS[name]
    assert shutil.which(command[0]), f"{command[0]} is missing: run the tests with python3 build.py test"
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_bash_scripts_parse() -> None:
    for script in (".ci/run", "tests/lavapipe/build.sh"):
        assert subprocess.run(["bash", "-n", script], cwd=ROOT, check=False).returncode == 0, script


def test_the_readme_s_tables_have_a_row_for_every_golden() -> None:
    """tests/works.py writes them; a new architecture or type that is not in them fails here."""
    folders = [p for p in GOLDEN.glob("*/*.gguf") if p.parent.name not in ("vocab", "split")]
    goldens = [about(f"{p.parent.name}/{p.stem}") for p in folders]
    wanted = {
        "architectures": {architecture for architecture, _ in goldens},
        "types": {type for _, types in goldens for type in types},
    }
    text = (ROOT / "README.md").read_text()
    for table, names in wanted.items():
        rows = text.partition(f"<!-- {table} -->")[2].partition("<!-- end -->")[0].splitlines()[3:]
        cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
        assert {row[0] for row in cells} == names, table
        assert all(set(row[1:]) <= {"yes", ""} and "yes" in row for row in cells), table
