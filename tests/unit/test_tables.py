"""Tables in requests.d.ts and in the documentation agree with the code."""

import re

import pytest

from py_engine.plan.sampling import parameters
from tools import tables
from tools.paths import ROOT


@pytest.mark.parametrize("path", tables.tables(), ids=lambda path: path.name)
def test_tables_are_up_to_date(path) -> None:
    assert path.read_text(encoding="utf-8") == tables.rendered(path), "run: python -m tools.tables"


def test_the_pages_inputs_stay_within_the_ranges() -> None:
    page = (ROOT / "static" / "index.html").read_text(encoding="utf-8")
    inputs = {m[1]: m[0] for m in re.finditer(r'<input[^>]*\bname="(\w+)"[^>]*>', page)}
    shared = inputs.keys() & parameters().keys()
    assert shared, "the page has no sampler input"
    for name in shared:
        accepted = parameters()[name].range
        for bound in re.findall(r'\b(?:min|max)="([-\d.]+)"', inputs[name]):
            assert accepted.low <= float(bound) <= accepted.high, name
