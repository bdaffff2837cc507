"""The workers of trials (app/answers/grammar_trial.js): what a refusal waits for besides the trial itself."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import new_profile
from tools.serve import Server

# A page in which workers are played: each notes what it gets, and answers when the test says so.
SET_UP = """async () => {
  const { Trials } = await import("/repo/app/answers/grammar_trial.js");
  globalThis.workers = [];
  globalThis.Worker = undefined;
  globalThis.wispStartTrial = (url) => {
    const { port1, port2 } = new MessageChannel();
    const worker = { url, got: [], ended: 0, say: (data) => port2.postMessage(data) };
    const failed = new Promise((resolve) => (worker.fail = resolve));
    port2.onmessage = ({ data }) => worker.got.push(data);
    workers.push(worker);
    return { port: port1, end: () => worker.ended++, failed };
  };
  globalThis.trials = new Trials("grammar.js", "vocabulary");
  const { setTimeout } = globalThis; // also where the test stops the clock
  globalThis.until = async (true_) => {
    while (!true_()) await new Promise((resolve) => setTimeout(resolve, 5));
  };
  globalThis.soon = () => new Promise((resolve) => setTimeout(resolve, 50));
  globalThis.found = [];
  globalThis.begin = async (at, share) => { // a trial whose worker has that share of a processor
    trials.isQuick("grammar").then((quick) => (found[at] = quick));
    workers[at].say({ share });
    await until(() => workers[at].got.length == 2);
  };
  globalThis.answered = async () => { // what all trials find once their workers have answered
    for (const worker of workers) worker.say({ error: null });
    await until(() => workers.every((_, at) => at in found));
    return found;
  };
  globalThis.seen = () => workers.map(({ got, ended }) => [...got, ended]);
}"""


@pytest.fixture
def talk(chromium: Callable[[str | None], Browser], server: Server) -> Any:
    """A page with `trials`."""
    context = new_profile(chromium(None))
    page = context.new_page()
    page.goto(f"{server.url}tests/blank.html")
    page.evaluate(SET_UP)
    yield page
    context.close()


@pytest.fixture
def stopped(talk: Page) -> Page:
    """The page, whose clock stands still until the test says otherwise."""
    talk.clock.install(time=0)
    talk.clock.pause_at(3600)  # the clock runs until then: a busy machine may take long between the two
    return talk


def run(page: Page, script: str) -> Any:
    return page.evaluate(f"async () => {{ {script} }}")


def test_a_prepared_worker_has_the_vocabulary_before_there_is_a_grammar(talk: Page) -> None:
    assert run(
        talk,
        """trials.prepare(); trials.prepare();
        await until(() => workers[0].got.length);
        workers[0].say({ share: 1 });
        await soon();
        const before = seen(), found = trials.isQuick("root ::= a");
        await until(() => workers[0].got.length == 2);
        workers[0].say({ error: null });
        return [before, await found, seen()];""",
    ) == [[["vocabulary", 0]], True, [["vocabulary", "root ::= a", 1]]]


def test_the_time_of_a_trial_begins_when_its_worker_is_ready(stopped: Page) -> None:
    run(stopped, "trials.isQuick('grammar').then((quick) => found.push(quick))")
    stopped.clock.run_for(2000)  # longer than a trial may take
    assert run(stopped, "await until(() => workers[0].got.length); return [found, seen()]") == [
        [],
        [["vocabulary", 0]],
    ]
    run(stopped, "workers[0].say({ share: 1 }); await until(() => workers[0].got.length == 2)")
    stopped.clock.run_for(1000)
    assert run(stopped, "return found") == []
    stopped.clock.run_for(1000)
    assert run(stopped, "await until(() => found.length); return [found, seen()]") == [
        [False],
        [["vocabulary", "grammar", 1]],
    ]


@pytest.mark.parametrize("answer", ["null", "'Aborted()'"])
def test_each_trial_has_a_worker_of_its_own(talk: Page, answer: str) -> None:
    found = run(
        talk,
        f"""for (const at of [0, 1]) {{
            trials.prepare();
            workers[at].say({{ share: 1 }});
            const found = trials.isQuick("grammar");
            await until(() => workers[at].got.length == 2);
            workers[at].say({{ error: {answer} }});
            if (await found !== ({answer} === null)) return "wrong";
        }}
        return seen();""",
    )
    assert found == 2 * [["vocabulary", "grammar", 1]]


def test_a_worker_ends_that_no_trial_needs(talk: Page) -> None:
    dropped = "trials.prepare(); trials.drop(); trials.drop(); await until(() => workers[0].got.length); return seen()"
    assert run(talk, dropped) == [["vocabulary", 1]]
    assert (
        run(
            talk,
            """const later = globalThis.setTimeout;
            globalThis.setTimeout = (call, ms) => later(call, ms / 1000); // nobody needs it for long
            trials.prepare();
            await until(() => workers[1].ended);
            globalThis.setTimeout = later;
            return workers[1].ended""",
        )
        == 1
    )


def test_a_worker_whose_page_is_closed_is_replaced(talk: Page) -> None:
    assert run(
        talk,
        """trials.prepare();
        workers[0].say({ share: 1 });
        await soon();
        workers[0].fail();
        await soon();
        const found = trials.isQuick("grammar");
        workers[1].say({ share: 1 });
        await until(() => workers[1].got.length == 2);
        workers[1].say({ error: null });
        return [await found, workers.map(({ ended }) => ended)];""",
    ) == [True, [1, 1]]


@pytest.mark.parametrize("ready", ["workers[0].say({ share: 1 }); await until(() => workers[0].got.length == 2)", ""])
def test_a_trial_whose_page_is_closed_begins_again(talk: Page, ready: str) -> None:
    assert run(
        talk,
        f"""const found = trials.isQuick("grammar");
        {ready};
        workers[0].fail();
        await until(() => workers.length == 2);
        workers[1].say({{ share: 1 }});
        await until(() => workers[1].got.length == 2);
        workers[1].say({{ error: "Aborted()" }});
        return [await found, workers.map(({{ ended }}) => ended)];""",
    ) == [False, [1, 1]]


def test_what_cannot_be_tried_counts_as_quick(talk: Page) -> None:
    """The script never loads, there is no page, or a worker may not be started."""
    fails = "(async () => { for (let at = 0; at < 3; at++) { await until(() => workers[at]); workers[at].fail(); } })()"
    throws = "() => { throw new DOMException('not from this origin', 'SecurityError'); }"
    for now, start in ((fails, "wispStartTrial"), ("", "() => null"), ("", throws)):
        begin = f"globalThis.wispStartTrial = {start}; const found = trials.isQuick('grammar')"
        assert run(talk, f"{begin}; {now}; return found")
    assert run(talk, "return workers.length") == 3


def test_a_vocabulary_that_cannot_be_opened_refuses_the_form(talk: Page) -> None:
    script = "const found = trials.isQuick('grammar'); workers[0].say({ error: 'out of memory' }); return found"
    assert run(talk, script) is False


def test_a_trial_takes_longer_where_its_worker_has_a_small_share_of_a_processor(stopped: Page) -> None:
    """The answer comes after 4 s, in which the worker has computed for 0.8 s, or for 4 s. The limit is 1.3 s."""
    run(stopped, "await begin(0, 0.2); await begin(1, 1)")
    stopped.clock.run_for(4000)
    assert run(stopped, "return answered()") == [True, False]


def test_time_in_which_the_engine_computes_does_not_count(stopped: Page) -> None:
    """Its thread sees no answer then, and all of the computer may have stood still: the worker needs 100 ms more."""
    run(stopped, "await begin(0, 1)")
    stopped.clock.fast_forward(2000)  # no timer runs meanwhile
    stopped.clock.run_for(100)
    assert run(stopped, "return answered()") == [True]
