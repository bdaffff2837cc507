"""Answers held to strict forms, several at once and beside a free one: the same texts as alone, in shared steps."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser

from tests.support.browser import new_profile
from tools.serve import Server

ANSWERS = """async (backend) => {
  const engine = await (await import("/wisp.js")).Wisp.create({ shared: false });
  await engine.load({ model: "wisp-mini-q4_0", backend, contextLength: 512, tune: false, parallel: 4 });
  const held = (name, schema) => ({ type: "json_schema", json_schema: { name, strict: true, schema } });
  const item = {
    type: "object", additionalProperties: false, required: ["title", "kind", "tags"],
    properties: {
      title: { type: "string", maxLength: 20 }, kind: { enum: ["alpha", "beta", "gamma"] },
      tags: { type: "array", items: { type: "integer" }, minItems: 2, maxItems: 3 },
    },
  };
  const forms = [
    held("one", item), held("list", { type: "array", items: item, minItems: 2, maxItems: 2 }),
    { type: "regex", pattern: "(yes|no)( [a-z]{3,6}){4}" }, undefined,
  ];
  const ask = async (response_format, i) => {
    const messages = [{ role: "user", content: `Tell me about number ${i}.` }];
    const options = { temperature: 1.5, seed: 7 + i, max_tokens: 28, response_format };
    const { choices: [{ message, finish_reason }] } = await engine.chat.completions.create({ messages, ...options });
    return [message.content, finish_reason];
  };
  const alone = [];
  for (const [i, form] of forms.entries()) alone.push(await ask(form, i));
  const steps = async () => (await engine.stats()).totals.batches;
  const most = 0.75 * (await steps());
  const beside = [];
  let taken = Infinity;
  const until = performance.now() + 100_000; // a busy machine compiles the kernels of batches for long
  while (taken > most && performance.now() < until) {
    const before = await steps();
    beside.push(await Promise.all(forms.map(ask)));
    taken = (await steps()) - before;
  }
  return { alone, beside, shared: taken <= most };
}"""


@pytest.mark.parametrize("backend", ["cpu", pytest.param("webgpu", marks=pytest.mark.lavapipe)])
def test_answers_held_to_forms_share_steps(
    chromium: Callable[[str | None], Browser], server: Server, backend: str
) -> None:
    context = new_profile(chromium("lavapipe" if backend == "webgpu" else None))
    try:
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.goto(f"{server.url}tests/blank.html")
        found = page.evaluate(ANSWERS, backend)
    finally:
        context.close()
    assert all(beside == found["alone"] for beside in found["beside"])
    assert found["alone"][2][1] == "stop"
    assert found["shared"]
