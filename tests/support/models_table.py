"""Write the tables of docs/models.md from the tests' results: `build.py test --models-table docs/models.md`.

Every golden counts for its file's architecture and for its file's types, on each executor that ran it; a row says
"yes" where every case passed, else what failed. tests/unit/test_style.py compares the rows with the goldens.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist import is_xdist_worker

from py_engine.files.gguf_header import parse

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
NUMPY, F32, F16 = "numpy", "WebGPU f32", "WebGPU f16"
COLUMNS = (NUMPY, F32, F16)
WAYS = {"swiftshader": F32, "lavapipe": F16, "lavapipe-wide": F16, "cpu": NUMPY}
Results = dict[tuple[str, str, str], list[tuple[str, bool]]]  # (table, row, column) -> (test, whether it passed)


@cache
def about(golden: str) -> tuple[str, frozenset[str]]:
    """(architecture, types of matrices) of a golden's file, "folder/name". Tables of integers do not count."""
    data = (GOLDEN / f"{golden}.gguf").read_bytes()
    header = parse(data, len(data))
    types = {t.type.name for t in header.tensors.values() if len(t.shape) > 1}
    return header.architecture, frozenset(types - {"I32"})


def claims(item: pytest.Item) -> list[tuple[str, str, str]]:
    """The (table, row, column) entries that a test proves."""
    params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    file, name = item.path.name, getattr(item, "originalname", "")
    if file == "test_goldens.py" and "path" in params:
        path = params["path"]
        return _of_file(f"{path.parent.name}/{path.stem}", NUMPY)
    if file == "test_parity.py" and name in ("test_logits_and_greedy_ids", "test_answers"):
        return _of_file(params["model"], WAYS[params["way"]])
    if file == "test_parity.py" and name in ("test_embeddings", "test_diffusion"):
        return _of_file(params["model"], F16)
    if file == "test_quants.py" and "type" in params:
        return [("types", params["type"].name, WAYS[params.get("one_bench", "lavapipe")])]
    return []


def _of_file(golden: str, column: str) -> list[tuple[str, str, str]]:
    architecture, types = about(golden)
    return [("architectures", architecture, column), *(("types", type, column) for type in types)]


def pytest_addoption(parser: pytest.Parser) -> None:
    """This module is a plugin that pyproject.toml names."""
    parser.addoption(
        "--models-table", type=Path, metavar="FILE", help="write the tables of tested models into this file"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect results if the option is given."""
    if path := config.getoption("--models-table"):
        config.pluginmanager.register(ModelsTable(path))


class ModelsTable:
    """Collects results, which workers send with their reports, and writes the tables at the end of the run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: Results = defaultdict(list)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        outcome = yield
        outcome.get_result().user_properties.append(("claims", claims(item)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            properties: dict[str, Any] = dict(report.user_properties)
            for entry in properties.get("claims", []):
                self.results[entry].append((report.nodeid.partition("::")[2], report.passed))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if is_xdist_worker(session):
            return
        text = self.path.read_text()
        for table, title in (("architectures", "architecture"), ("types", "tensor type")):
            before, begin, rest = text.partition(f"<!-- {table} -->\n")
            _, end, after = rest.partition("<!-- end -->")
            text = before + begin + self.table(table, title) + end + after
        self.path.write_text(text)

    def table(self, table: str, title: str) -> str:
        """Markdown."""
        rows = sorted({row for name, row, _ in self.results if name == table}, key=str.lower)
        lines = [f"| {title} | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
        lines += [f"| {row} | {' | '.join(self.cell(table, row, column) for column in COLUMNS)} |" for row in rows]
        return "\n".join(lines) + "\n"

    def cell(self, table: str, row: str, column: str) -> str:
        """ "yes", the first test that failed, or nothing where none ran."""
        found = self.results.get((table, row, column), [])
        failed = [test for test, passed in found if not passed]
        return f"fails: {failed[0]}" if failed else "yes" if found else ""
