"""Ends the engine's worker in mid-answer, at random if asked: the answers must be those of a run without crashes."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from playwright.sync_api import Browser, Page

from tests.support.openai_client import run, settled
from tests.support.waiting import wait_for

MODEL = "wisp-mini-q4_0"

# Defines `engine`; start(requests), which sends all at once; `seen`, the chunks of each so far; and `answers`.
SET_UP = """async ([backend, shared]) => {
  globalThis.notices = [];
  globalThis.workers = [];
  globalThis.Worker = class extends Worker {
    constructor(...of) {
      super(...of);
      workers.push(this);
    }
  };
  const { Wisp } = await import("/wisp.js");
  globalThis.Wisp = Wisp;
  globalThis.engine = await Wisp.create({ shared, onLog: (level, text) => level === "notice" && notices.push(text) });
  await engine.load({ model: "wisp-mini-q4_0", backend, tune: false, contextLength: 512 });
  const perform = async ({ http, endpoint, ...body }, i) => {
    const api = http ? openai : engine;
    if (endpoint === "responses") {
      const events = [];
      for await (const event of await api.responses.create({ ...body, stream: true })) seen[i] = events.push(event);
      const { output } = events.at(-1).response;
      const deltas = events.filter(({ type }) => type.endsWith("text.delta")).map(({ delta }) => delta).join("");
      const numbered = events.every(({ sequence_number }, n) => sequence_number === n);
      const known = events.every(({ item_id: id }) => !id || output.some((item) => item.id === id));
      return [output.map((item) => item.content?.[0].text), deltas, numbered, known];
    }
    if (!body.stream) {
      const { choices, usage } = await api.chat.completions.create(body);
      return [choices.map(({ message: { content } }) => content), usage.completion_tokens];
    }
    const texts = {}, ids = new Set(), ends = [];
    for await (const { id, choices } of await api.chat.completions.create(body)) {
      ids.add(id);
      for (const { index, delta, finish_reason } of choices) {
        const text = (texts[index] ??= { content: "", calls: {}, logprobs: [] });
        text.content += delta.content ?? "";
        for (const { index: call, id, function: { name, arguments: part } } of delta.tool_calls ?? []) {
          const found = (text.calls[call] ??= { names: [], ids: 0, arguments: "" });
          if (name) found.names.push(name);
          if (id) found.ids++;
          found.arguments += part ?? "";
        }
        if (finish_reason) ends.push([index, finish_reason]);
        seen[i]++;
      }
    }
    return [texts, ids.size, ends.sort()];
  };
  globalThis.start = (requests) => {
    globalThis.seen = requests.map(() => 0);
    globalThis.answers = Promise.all(requests.map(perform));
    answers.catch(() => {});
  };
}"""
WAIT_FOR_CHUNKS = """
  let over = false;
  answers.finally(() => (over = true)).catch(() => {});
  while (!over && seen.every((n) => n < least)) await new Promise((resolve) => setTimeout(resolve, 2));
  return over;
"""

ARE_OVER = "return Promise.race([answers.then(() => true), new Promise((no) => setTimeout(no, 0, false))]);"


def ask(content: str, **more: Any) -> dict[str, Any]:
    """A streamed chat request."""
    messages = [{"role": "user", "content": content}]
    return {"model": MODEL, "messages": messages, "max_tokens": 40, "stream": True, **more}


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "old": {"type": "boolean"}}}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": PARAMETERS}}
STORY = "Write a short story about a dragon named Ember who finds a silver key."
REQUESTS = [
    ask(STORY, temperature=0),
    ask("Write a short story about a key.", temperature=1, seed=7, n=2),
    ask("Write a short story about a frog.", temperature=0.7, seed=3, frequency_penalty=0.5, repeat_penalty=1.1),
    ask("Name a city as JSON.", temperature=0, response_format=FORM),
    ask("How is the weather in Rome?", temperature=1, seed=4, tools=[TOOL], tool_choice="required"),
    ask("Write a short story about a fox.", temperature=0.9, seed=5, n=2, stream=False),
    ask("Write a short story about a hen.", temperature=0, http=True),
    {"endpoint": "responses", "model": MODEL, "input": STORY, "temperature": 1, "seed": 9, "max_output_tokens": 40},
]


def answers(page: Page, requests: list[dict[str, Any]]) -> Any:
    """The answers to requests that run side by side."""
    run(page, "start(requests)", requests=requests)
    return settled(page, "answers")


def start_until(page: Page, requests: list[dict[str, Any]], least: int, others: Sequence[Page] = ()) -> None:
    """Send the requests, from other pages too, and wait until some stream of the page has so many chunks.

    A busy page may see the chunks only when all answers are complete: they are asked for again then.
    """
    for _ in range(10):
        for one in (*others, page):
            run(one, "start(requests)", requests=requests)
        if not wait_for_chunks(page, least) and not any(run(other, ARE_OVER) for other in others):
            return
    raise AssertionError("the page saw ten times nothing but complete answers")


def wait_for_chunks(page: Page, least: int) -> bool:
    """Wait until some stream has so many chunks; return whether all answers are complete instead."""
    over: bool = run(page, WAIT_FOR_CHUNKS, least=least)
    return over


def kill_shared(browser: Browser, how: str = "gone") -> None:
    """End the shared worker as a crash does ("gone"), or by an uncaught error."""
    in_shared(browser, None if how == "gone" else "setTimeout(() => { throw new Error('a defect'); })")


def in_shared(browser: Browser, expression: str | None) -> None:
    """Run JavaScript in the shared workers; None ends them."""
    session = browser.new_browser_cdp_session()

    def running() -> list[dict[str, Any]]:
        targets = session.send("Target.getTargets")["targetInfos"]
        return [target for target in targets if target["type"] == "shared_worker"]

    wait_for(running)  # after an earlier crash, the next worker may not have started yet
    for found in running():
        worker = {"targetId": found["targetId"]}
        if expression is None:
            session.send("Target.closeTarget", worker)
            continue
        inside = session.send("Target.attachToTarget", {**worker, "flatten": False})["sessionId"]
        message = json.dumps({"id": 1, "method": "Runtime.evaluate", "params": {"expression": expression}})
        session.send("Target.sendMessageToTarget", {"sessionId": inside, "message": message})  # detaching would undo it


def kill_own(page: Page) -> None:
    """End the page's own worker."""
    run(page, "workers.at(-1).terminate();")


def campaign(page: Page, kill: Callable[[], None], kills: int, seed: int = 0, expected: list[Any] | None = None) -> int:
    """End the worker `kills` times at random moments of random requests; return how many answers were compared.

    Fails if an answer differs from that of the same request without crashes: `expected`, or asked for first. The page
    has run SET_UP.
    """
    dice = random.Random(seed)
    expected = expected or [answers(page, [request])[0] for request in REQUESTS]
    done = compared = 0
    while done < kills:
        chosen = dice.sample(range(len(REQUESTS)), dice.randrange(1, 5))
        run(page, "start(requests)", requests=[REQUESTS[i] for i in chosen])
        for _ in range(dice.randrange(1, 4)):
            if wait_for_chunks(page, dice.randrange(60)):
                break
            kill()
            done += 1
        for i, got in zip(chosen, settled(page, "answers"), strict=True):
            assert got == expected[i], (seed, done, REQUESTS[i], got, expected[i])
            compared += 1
    return compared
