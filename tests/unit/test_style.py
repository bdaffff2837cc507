"""The linters, formatters and type checkers are content with the whole checkout."""

import shutil
import subprocess
import sys

import pytest

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
    """tests/works.py writes them; a new architecture or type shows there, or this fails."""
    text = (ROOT / "README.md").read_text()
    for table, wanted in (("architectures", {about(g)[0] for g in GOLDENS}), ("types", set(TYPES))):
        rows = text.partition(f"<!-- {table} -->")[2].partition("<!-- end -->")[0].splitlines()[3:]
        cells = [row.strip("| ").split(" | ") for row in rows]
        assert {row[0].strip() for row in cells} == wanted, table
        assert not [row for row in cells if "fails" in " ".join(row)], table
