"""The linters, formatters and type checkers accept the whole checkout."""

import re
import subprocess

import pytest

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models.families import FAMILIES, family
from py_engine.models.missing import NEEDS
from tests.support.models_table import about
from tools.checks import CHECKS, run_check
from tools.goldens import golden_models
from tools.paths import ROOT


@pytest.mark.timeout(900)  # a checker may take 45 s of two idle cores
@pytest.mark.parametrize("name", CHECKS)
def test_checker_is_content(name: str) -> None:
    result = run_check(name)
    assert result.passed, result.output


def test_bash_scripts_parse() -> None:
    for script in (".ci/run", "tests/support/lavapipe/build.sh"):
        assert subprocess.run(["bash", "-n", script], cwd=ROOT, check=False).returncode == 0, script


def test_no_test_imports_another() -> None:
    """What tests share is in tests/support."""
    imports = re.compile(r"^\s*(?:from|import) tests\.(?!golden\.make)[\w.]*\btest_\w+", re.MULTILINE)
    assert [f"{path}" for path in ROOT.glob("tests/**/*.py") if imports.search(path.read_text(encoding="utf-8"))] == []


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


def test_the_table_of_refused_architectures() -> None:
    """docs/models.md lists what py_engine/models/missing.py says; an architecture that runs is not in it."""
    assert not NEEDS.keys() & FAMILIES.keys()
    text = (ROOT / "docs" / "models.md").read_text()
    rows = text.partition("<!-- missing -->")[2].partition("<!-- end -->")[0].splitlines()[3:]
    cells = [row.strip("| ").split(" | ") for row in rows]
    assert {name.strip("`"): need for names, need in cells for name in names.split(", ")} == NEEDS


def test_a_missing_architecture_is_refused_by_its_header() -> None:
    """The error names the architecture and what it needs. No tensor is looked at."""
    for name, need in [*NEEDS.items(), ("unheard-of", "Supported: ")]:
        with pytest.raises(WispError, match=re.escape(name)) as error:
            family(Header(3, {"general.architecture": name}, {}, 32, 0, None))
        assert error.value.code == "unsupported_architecture"
        assert need in str(error.value)
