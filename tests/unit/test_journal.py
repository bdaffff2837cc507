"""An answer whose worker ends after any message goes on in the next one: the client gets the same chunks, once each."""

import asyncio
import copy
from typing import Any

import pytest

from app.answers.journal import Journal
from py_engine.engine import Engine
from py_engine.generate.answer import Begun, GenerationStats
from py_engine.plan.sampling import Batch, Sampling
from tests.support.cpu_engines import PROMPT, SHAPED, VOCAB, WARM, RandomConstraint, collect, make
from tests.support.journals import record
from tests.support.tiny_page import REQUEST, Tiny
from tests.support.worker_page import Page, chunks_of

pytestmark = pytest.mark.slow

KINDS = [
    {"temperature": 0},
    {"seed": 7, "n": 3},
    {"presence_penalty": 0.5, "repeat_penalty": 1.2, "seed": 1, "stop": ["a", "e"]},
    {"seed": 5, "logprobs": 2},
    {"temperature": 0, "echo": True, "stream_options": {"include_usage": True}},
]
MEASURED = ("usage", "timings")


async def messages_of(page: Page, kind: str, **fields: Any) -> list[dict[str, Any]]:
    number, task = page.send(kind, **fields)
    await task
    return page.answers(number)


def journal_of(messages: list[dict[str, Any]]) -> Any:
    return record([copy.deepcopy(entry) for m in messages for entry in m.get("journal", [])])


def texts(chunks: list[dict[str, Any]]) -> Any:
    """What each choice has: its text and log-probabilities, why it ended, and in how many chunks that was said."""
    found: dict[int, list[Any]] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            text, scores, ends = found.setdefault(choice["index"], ["", [], []])
            scores += (choice["logprobs"] or {}).get("token_logprobs", [])
            ends += [choice["finish_reason"]] * bool(choice["finish_reason"])
            found[choice["index"]] = [text + choice["text"], scores, ends]
    return found, {chunk["id"] for chunk in chunks}, len([chunk for chunk in chunks if not chunk["choices"]])


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
async def test_streams_go_on_after_any_message(kind: dict[str, Any]) -> None:
    first = await Tiny().start()
    request = {**REQUEST, **kind, "stream": True}
    messages = await messages_of(first, "completions", request=request)
    assert messages[-1]["kind"] == "done"
    whole = chunks_of(messages)
    for cut in range(1, len(messages)):
        had = messages[:cut]
        resume = journal_of(had)
        rest = await messages_of(await Tiny().start(), "completions", request=request, resume=resume)
        assert rest[-1]["kind"] == "done", rest[-1]
        assert texts([*chunks_of(had), *chunks_of(rest)]) == texts(whole)
        joined = journal_of([*had, *rest])
        assert joined["over"]
        assert ids_of(joined) == ids_of(journal_of(messages))


def ids_of(journal: Any) -> Any:
    return [[entry for batch in choice["batches"] for entry in batch] for choice in journal["choices"]]


async def test_a_page_gets_the_whole_answer_again() -> None:
    request = {**REQUEST, "seed": 7, "n": 2, "stream": True}
    messages = await messages_of(await Tiny().start(), "completions", request=request)
    for cut in (1, len(messages) // 2, len(messages) - 1):
        resume = journal_of(messages[:cut])
        got = await messages_of(await Tiny().start(), "completions", request=request, resume=resume, replay=True)
        assert texts(chunks_of(got)) == texts(chunks_of(messages))
        assert ids_of(journal_of(got)) == ids_of(journal_of(messages))


async def test_an_answer_without_a_seed_keeps_the_one_it_drew() -> None:
    request = {**REQUEST, "stream": True}
    messages = await messages_of(await Tiny().start(), "completions", request=request)
    resume = journal_of(messages[: len(messages) // 2])
    got = await messages_of(await Tiny().start(), "completions", request=request, resume=resume)
    seeds = [choice["seed"] for choice in journal_of(messages)["choices"]]
    assert seeds[0] is not None
    assert [choice["seed"] for choice in journal_of([*messages[:1], *got])["choices"]] == seeds


async def test_whole_answers_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.answers.journal.WHOLE_S", 0.0)
    request = {**REQUEST, "seed": 3, "n": 2, "logprobs": 1}
    *messages, last = await messages_of(await Tiny().start(), "completions", request=request)
    assert len(messages) > 4
    for cut in range(1, len(messages) + 1):
        resume = journal_of(messages[:cut])
        *_, result = await messages_of(await Tiny().start(), "completions", request=request, resume=resume)
        assert result["result"]["choices"] == last["result"]["choices"]
        counts = [got["result"]["usage"]["completion_tokens"] for got in (result, last)]
        assert counts[0] == counts[1]


async def test_events_of_a_response_keep_ids_and_numbers() -> None:
    async def events(resume: Any = None) -> list[dict[str, Any]]:
        page = Page()
        await page.call("load")
        request = {"input": "Hi", "stream": True}
        fields = {"resume": resume} if resume else {}
        return await messages_of(page, "responses", request=request, **fields)

    messages = await events()
    for cut in range(1, len(messages)):
        had = messages[:cut]
        got = [*chunks_of(had), *chunks_of(await events(journal_of(had)))]
        assert [event["sequence_number"] for event in got] == [*range(len(got))]
        *_, last = got
        assert last["type"] == "response.completed"
        assert {e["item_id"] for e in got if "item_id" in e} == {item["id"] for item in last["response"]["output"]}
        assert got[0]["response"]["id"] == last["response"]["id"]


async def test_damaged_journals_are_refused() -> None:
    page = await Tiny().start()
    good = {"answer": {"root": "x", "created": 5}, "choices": [{"seed": 1, "batches": [[5, 6]]}]}
    for bad in (
        5,
        {},
        {**good, "answer": None},
        {**good, "answer": {"root": "x", "created": "soon"}},
        {**good, "answer": {"root": "x", "created": 1 << 70}},
        {**good, "choices": [5]},
        {**good, "choices": [{"batches": [[None]]}]},
        {**good, "choices": [{"batches": [[10**6]]}]},
        {**good, "choices": [{"batches": [["x"]]}]},
    ):
        assert await page.code("completions", request={**REQUEST, "stream": True}, resume=bad) == "invalid_value", bad
    assert await page.texts()


SAMPLERS: list[tuple[Sampling, float | None]] = [
    (Sampling(temperature=0), None), (WARM, None), (SHAPED, None), (Sampling(temperature=0), 0.8), (WARM, 0.5),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(SAMPLERS)))
async def test_another_engine_goes_on_with_the_same_tokens(number: int) -> None:
    sampling, fraction = SAMPLERS[number]

    async def ask(begun: list[int]) -> list[int]:
        constraint = RandomConstraint(fraction) if fraction else None
        for token in begun:
            if constraint:
                await constraint.accept(token)
        more = {"begun": Begun(begun, sampling.seed)} if begun else {}
        return [*begun, *await collect(engine(), PROMPT, sampling, 40, constraint=constraint, keep=3, **more)]

    def engine() -> Engine:
        return make(n_ctx=32)  # the context is shifted twice

    whole = await ask([])
    assert len(whole) == 40
    for cut in range(1, 40, 3):
        assert await ask(whole[:cut]) == whole


async def test_several_go_on_at_once() -> None:
    used = make()
    alone = [await collect(make(), [*PROMPT, i], WARM, 30) for i in range(4)]
    rests = (collect(used, [*PROMPT, i], WARM, 30, begun=Begun(alone[i][: 3 * i + 1], 3)) for i in range(4))
    assert [alone[i][: 3 * i + 1] + rest for i, rest in enumerate(await asyncio.gather(*rests))] == alone


@pytest.mark.parametrize("sampling", [Sampling(temperature=0), WARM, Sampling(temperature=0.7)])
async def test_a_branch_computes_one_token(sampling: Sampling) -> None:
    """What the caches hold of the prompt and of the answer before the chosen token is not computed again."""
    engine = make()
    answer = await collect(engine, PROMPT, sampling, 30)
    for cut in (25, 10, 0):
        other = (answer[cut] + 1) % VOCAB
        runner: Any = engine.runner
        stats, before = GenerationStats(), runner.forwards
        begun = Begun([*answer[:cut], other], sampling.seed, branched=True)
        rest = await collect(engine, PROMPT, sampling, cut + 5, begun=begun, stats=stats)
        assert len(rest) == 4
        assert stats.cached_tokens == len(PROMPT) + cut
        assert runner.forwards - before == len(rest) - 1  # the first one comes with the chosen one


async def test_the_begin_of_an_answer_is_sent_after_what_runs_now() -> None:
    """So a prompt reaches the device first. Tokens that come earlier take it with them."""
    posted: list[dict[str, Any]] = []
    journal = Journal(lambda _, **fields: posted.append(fields), streamed=True)
    journal.chunk({"opening": 0})
    journal.begin(0)
    assert not posted
    await asyncio.sleep(0)
    (begun,) = posted
    assert begun["chunks"] == [{"opening": 0}]
    assert begun["journal"][1:] == [{"choice": 0}]
    journal.begin(1)
    journal.batch(1, Batch([5]), 7)
    await asyncio.sleep(0)
    assert [entry for fields in posted[1:] for entry in fields["journal"]] == [
        {"choice": 1},
        {"choice": 1, "seed": 7, "batches": [[5]]},
    ]
    assert len(posted) == 2
