"""Which model is fetched ahead, and on which links."""

from pathlib import Path

import pytest

from tests.support.js_modules import Evaluate, evaluator

VIEWED = "somebody/some-GGUF"


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    folder: Path = tmp_path_factory.mktemp("prefetch")
    return evaluator(folder, ["app/hub/next.js", "app/hub/curated.js", "app/ui/prefetch.js"])


def test_links_that_cost_nothing_by_the_byte(evaluate: Evaluate) -> None:
    free = [{"effectiveType": "4g"}, {"type": "wifi"}, {"type": "ethernet"}]
    others = [None, {}, {"effectiveType": "3g"}, {"type": "cellular", "effectiveType": "4g"},
              {"type": "wifi", "saveData": True}]  # fmt: skip
    code = "a[0].map((link) => m.isUnmetered(link ?? undefined))"
    assert evaluate(code, free) == [True] * len(free)
    assert evaluate(code, others) == [False] * len(others)


def test_the_model_that_was_looked_at_comes_first_then_the_smallest_larger_one(evaluate: Evaluate) -> None:
    chats = evaluate("m.CURATED.filter(({ kind }) => kind === m.CHAT).sort((a, b) => a.parameters - b.parameters)")
    names = [model["repository"] for model in chats]
    code = "m.candidates(a[0], (id) => a[1].includes(id))"
    assert evaluate(code, VIEWED, []) == [VIEWED, *names]
    assert evaluate(code, VIEWED, [VIEWED, names[1]]) == names[2:]
    assert evaluate(code, None, [names[-1]]) == []
