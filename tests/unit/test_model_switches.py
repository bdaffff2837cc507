"""Every switch between models of different kinds; each kind with every load option and sampling parameter.

A switch ends well or with a clear error in OpenAI's shape, and the engine answers afterwards.
"""

from typing import Any

import pytest

from py_engine.errors import CODES
from py_engine.plan.sampling import parameters
from tests.support.golden_page import TEMPLATE, GoldenPage, without_webgpu
from tools.selection import everything

EMBEDDING = "embedding"
FILES = {
    "chat": "llama/llama.F16",
    "no template": "qwen/qwen3.F16",
    "small context": "phi3/phi3.F16",
    "other tokenizer": "gemma/gemma3.F16",
    "short convolutions": "lfm2/lfm2.F16",
    EMBEDDING: "embedding/bert.F16",
}
CONTEXT = dict.fromkeys(FILES, 64) | {"small context": 16}  # tokens

LOAD_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"contextLength": 1},
    {"contextLength": 48, "kvType": "q8_0"},
    {"contextLength": 1 << 20},
    {"contextLength": 1 << 20, "clampContext": True, "kvType": "f32"},
    {"backend": "cpu", "parallel": 1, "speculation": False},
    {"backend": "webgpu"},
    {"parallel": 32, "tune": True, "prove": True, "variant": {"f16": False, "subgroup": 0}},
    {"vocabOnly": True},
    {"default": False},
)
SETTINGS: tuple[dict[str, Any], ...] = (
    *({name: end} for name, parameter in parameters().items() for end in (parameter.range.low, parameter.range.high)),
    {"dry_multiplier": 0.8, "dry_sequence_breakers": ["a", "\n"]},
    {"xtc_probability": 1.0, "xtc_threshold": 0.01, "temperature": 1.5},
    {"logit_bias": {"5": 100}},
    {"logit_bias": {"100000": -100}},
    {"logit_bias": [["a", -100]]},
    {"logprobs": 5},
    {"stop": ["a", "e"]},
    {"n": 2, "seed": 1},
    {"max_tokens": 50, "ignore_eos": True},
)


REQUESTS: dict[str, dict[str, Any]] = {
    "completions": {"prompt": "The", "max_tokens": 2},
    "embeddings": {"input": "The"},
    "chat.completions": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2},
    "responses": {"input": "a", "max_output_tokens": 2},
    "rerank": {"query": "The", "documents": ["a", "b"]},
}  # by endpoint; a context of 16 tokens holds the first two


def own(kind: str) -> str:
    """The endpoint that a model of this kind is for."""
    return "embeddings" if kind == EMBEDDING else "completions"


def answered(answer: Any) -> bool:
    """Whether a request succeeded. If not, its error must be a clear one."""
    if not (isinstance(answer, dict) and answer.get("kind") == "error"):
        return True
    error = answer["error"]
    assert error.keys() >= {"message", "type", "param", "code"}, error
    assert error["code"] in CODES.keys() - {"internal_error"}, error
    assert len(error["message"]) > 20, error
    return False


async def ask(page: GoldenPage, kind: str, settings: tuple[dict[str, Any], ...]) -> None:
    """Send a request with each of the settings."""
    for one in settings:
        answered(await page.call(own(kind), request=REQUESTS[own(kind)] | one | {"model": kind}))


@pytest.mark.slow
@pytest.mark.parametrize("first", FILES)
async def test_a_switch_with_any_setting_ends_well(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_webgpu(monkeypatch)
    page = GoldenPage()
    for name, file in FILES.items():
        page.add(name, file, TEMPLATE if name == "chat" else None)
    parts = len(LOAD_OPTIONS)
    for at, second in enumerate(FILES):
        both = at + list(FILES).index(first)
        for i, options in enumerate(LOAD_OPTIONS[both % 2 :: 2]):
            # Each first and each second model gets all options, and all settings before or after a switch.
            if not everything() and i // 2 != both // 2 % 3:
                continue
            where = (first, second, options)
            assert answered(await page.load(first, contextLength=CONTEXT[first])), where
            await ask(page, first, SETTINGS[2 * i :: parts])
            number, running = page.send(own(first), request=REQUESTS[own(first)] | {"model": first})
            switched = answered(await page.load(second, **options))
            await running
            assert answered(page.answers(number)[-1]), where
            await ask(page, second, SETTINGS[2 * i + 1 :: parts])
            now = second if switched else first
            cannot = switched and (options.get("vocabOnly") or options.get("contextLength") == 1)
            fine = {name: answered(await page.call(name, request=r | {"model": now})) for name, r in REQUESTS.items()}
            assert fine[own(now)] != bool(cannot), where
    await page.call("unload")
    assert (await page.call("stats"))["bytes"] == 0
