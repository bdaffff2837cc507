"""The linters, formatters and type checkers accept the whole checkout."""

import subprocess

import pytest

from tests.support.models_table import about
from tools.checks import CHECKS, run_check
from tools.goldens import golden_models
from tools.paths import ROOT


@pytest.mark.parametrize("name", CHECKS)
def test_checker_is_content(name: str) -> None:
    result = run_check(name)
    assert result.passed, result.output


def test_bash_scripts_parse() -> None:
    for script in (".ci/run", "tests/support/lavapipe/build.sh"):
        assert subprocess.run(["bash", "-n", script], cwd=ROOT, check=False).returncode == 0, script


def test_the_tables_of_models_have_a_row_for_every_golden() -> None:
    """The tables list every architecture and type of the goldens. tests/support/models_table.py writes them."""
    goldens = [about(f"{p.parent.name}/{p.stem}") for p in golden_models()]
    wanted = {
        "architectures": {architecture for architecture, _ in goldens},
        "types": {type for _, types in goldens for type in types},
    }
    text = (ROOT / "docs" / "models.md").read_text()
    for table, names in wanted.items():
        rows = text.partition(f"<!-- {table} -->")[2].partition("<!-- end -->")[0].splitlines()[3:]
        cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
        assert {row[0] for row in cells} == names, table
        assert all(set(row[1:]) <= {"yes", ""} and "yes" in row for row in cells), table
