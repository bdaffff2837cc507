"""Live through faults in a random order, each under load, and check what must be true after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from playwright.sync_api import Error as PlaywrightError

from tests.faults.lab import Lab
from tests.faults.requests import BRIDGED, GREEDY, MODEL, OTHER, REQUESTS, Outcome, Request, differs, load_of
from tests.faults.table import FAULTS, UPDATE_CHECK, Codes, Fault
from tests.support.waiting import wait_for

HEAP_GROWTH = 1.5  # of the level: WebAssembly's memory grows in steps and never shrinks


@dataclass(frozen=True)
class Result:
    """What a fault did. `wrong`: broken promises; empty if it passed."""

    fault: Fault
    struck: bool  # else its moment did not come while requests ran
    failed: int  # requests that ended with an error that is allowed
    seconds: float
    wrong: list[str]


class Campaign:
    """The lab, the answers of an undisturbed run, and the level of memory after a load."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self._lab, self._dice = lab, Random(seed)
        for tab in lab.tabs:
            lab.call(tab, "connect", "/wisp.js")
        lab.load(lab.tabs[0], OTHER)
        asked = {**REQUESTS[0], "body": {**GREEDY, "model": OTHER}}
        lab.expected_of_other = self._values([asked])[0]
        lab.call(lab.tabs[0], "unload", OTHER)
        lab.load(lab.tabs[0])
        lab.lend()
        self._expected = self._values(REQUESTS)
        self._bridged = [lab.ask(body)["value"] for body in BRIDGED]
        self._level, wrong = self._reloaded(False)
        assert not wrong, wrong

    def run(self, faults: list[Fault], minutes: float, report: Callable[[Result], None]) -> list[Result]:
        """Live through the faults in a random order, again and again until the time is over; each once at least."""
        results = list[Result]()
        end = time.monotonic() + 60 * minutes
        for i, fault in enumerate(self._shuffled(faults)):
            if i >= len(faults) and time.monotonic() > end:
                return results
            try:
                results.append(self._live_through(fault))
            except (AssertionError, PlaywrightError) as error:
                results.append(Result(fault, True, 0, 0.0, [f"nothing works afterwards: {error}"]))
            report(results[-1])
            if results[-1].wrong and results[-1].wrong[-1].startswith("nothing works"):
                return results
        return results

    def _shuffled(self, faults: list[Fault]) -> Iterator[Fault]:
        while faults:
            yield from self._dice.sample(faults, len(faults))

    def _values(self, requests: list[Request]) -> list[Any]:
        """The answers to requests that nothing disturbs."""
        found = self._lab.call(self._lab.tabs[0], "oneByOne", requests)
        assert all("value" in outcome for outcome in found), found
        return [outcome["value"] for outcome in found]

    def _live_through(self, fault: Fault) -> Result:
        lab, dice, started = self._lab, self._dice, time.monotonic()
        asked = [load_of(i, dice) for i in range(len(lab.tabs))]
        lab.tell("reset")
        lab.start(asked)
        lab.wait_for_tokens(dice.randrange(1, 60))
        wrong = [*(fault.act(lab, dice) or [])]
        outcomes, bridged = lab.ended()
        failed = 0
        for requests, found in zip(asked, outcomes, strict=True):
            for request, outcome in zip(requests, found or [], strict=False):
                failed += "error" in outcome
                wrong += self._judge(request, outcome, fault.may_fail)
        for body, outcome, expected in zip(BRIDGED, bridged, self._bridged, strict=True):
            failed += "error" in outcome
            wrong += _judged(
                f"bridge {body['messages']}", outcome, fault.may_fail.get("bridge"), outcome.get("value") != expected
            )
        lab.restore()
        struck = lab.tell("disarm")
        wrong += self._after(fault)
        return Result(fault, struck != 0, failed, time.monotonic() - started, wrong)

    def _judge(self, request: Request, outcome: Outcome, may_fail: Codes) -> list[str]:
        """What is wrong with the outcome of a request."""
        plain = {key: value for key, value in request.items() if key != "most"}
        expected = self._expected[REQUESTS.index(plain)]
        way = "http" if request["http"] else "sdk"
        wrong = "value" in outcome and differs(request, outcome["value"], expected)
        return _judged(f"{way} {request['kind']}", outcome, may_fail.get(way), wrong)

    def _after(self, fault: Fault) -> list[str]:
        """What is wrong after a fault: answers, what the cache has lost, and memory."""
        lab = self._lab
        lab.wait_until_idle()
        found = lab.call(lab.tabs[1], "oneByOne", REQUESTS)
        wrong = [f"afterwards, {line}" for request, outcome in zip(REQUESTS, found, strict=True)
                 for line in self._judge(request, outcome, {})]  # fmt: skip
        level, leaks = self._reloaded(fault.refetches)
        wrong += leaks
        heap, before = level.pop("heap"), self._level["heap"]
        if heap > HEAP_GROWTH * before:
            wrong.append(f"the heap grew from {before >> 20} to {heap >> 20} MiB")
        if level != {key: value for key, value in self._level.items() if key != "heap"}:
            wrong.append(f"memory is {level}, not {self._level}")
        return wrong

    def _reloaded(self, refetches: bool) -> tuple[dict[str, Any], list[str]]:
        """Unload everything and load from the cache: the level of memory, and what is wrong."""
        lab, wrong = self._lab, list[str]()
        tab, file = lab.tabs[0], lab.files[MODEL]
        if refetches:
            lab.call(tab, "unload")
            lab.load(tab)
        lab.call(tab, "unload")
        if live := lab.tell("live"):
            wrong.append(f"{live} bytes of GPU buffers are left after the models were unloaded")
        wait_for(lambda: not file.under_way)
        file.sent = 0
        memory = lab.load(tab)["memory"]
        if file.sent > UPDATE_CHECK:
            wrong.append(f"a load from the cache transferred {file.sent} bytes")
        heap = memory.pop("wasm_heap")
        return {"pools": memory, "live": lab.tell("live"), "heap": heap}, wrong


def _judged(what: str, outcome: Outcome, may_fail: frozenset[str] | None, wrong: bool) -> list[str]:
    """One line if an outcome is neither the right answer nor an allowed error."""
    if "error" in outcome:
        allowed = outcome["error"] in (may_fail or ())
        return [] if allowed else [f"{what} ended with {outcome['error']}: {outcome['message'][:300]}"]
    return [f"{what} has a wrong answer: {outcome['value']}"] if wrong else []


def table(results: list[Result]) -> str:
    """The results by fault, as a table in Markdown: the same that docs/contributing/faults-and-fuzzers.md has."""
    lines = ["| fault | promised | runs | struck | requests failed as allowed | broken promises |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for fault in FAULTS:
        mine = [result for result in results if result.fault is fault]
        if mine:
            counts = (
                len(mine),
                sum(r.struck for r in mine),
                sum(r.failed for r in mine),
                sum(bool(r.wrong) for r in mine),
            )
            lines.append(f"| {fault.name} | {fault.promised} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)
