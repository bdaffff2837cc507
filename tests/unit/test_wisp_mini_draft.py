"""Wisp Mini with the draft model that was trained for it, on the CPU engine."""

import json
from typing import Any

import pytest

from py_engine.plan.sampling import Sampling
from tests.support import wasm_engines
from tests.support.cpu_engines import GREEDY, collect
from tests.support.cpu_models import GOLDEN
from tests.support.gguf_bytes import MINI

DRAFT = MINI.with_name("wisp-mini-draft-q4_0.gguf")
CHATS = {chat["id"]: chat for chat in json.loads((GOLDEN / "wisp-mini-chat.json").read_text())["chats"]}
PAGE = Sampling(temperature=0.4, seed=1)
END = frozenset([2])  # <|im_end|>


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [GREEDY, PAGE], ids=["greedy", "sampled"])
async def test_most_tokens_of_the_draft_are_accepted(sampling: Sampling) -> None:
    texts: list[list[list[int]]] = []
    for draft in (None, DRAFT):
        used = await wasm_engines.load(MINI, 1024, draft=draft)
        runner: Any = used.runner
        runner.step_ms = lambda rows, drafting=False, n_model_draft=0: 1.0 if n_model_draft or not drafting else 100.0
        prompts = [CHATS[name]["prompt_tokens"] for name in ("skills", "story", "json", "rag")]
        texts.append([await collect(used, ids, sampling, 80, stops=END) for ids in prompts])
    assert texts[0] == texts[1]
    totals = used._generation.totals
    assert totals.model_drafted > 100
    assert totals.model_accepted > 0.6 * totals.model_drafted, "those after an answer's end are not"
    assert totals.draft_tokens > 4 * totals.draft_steps
