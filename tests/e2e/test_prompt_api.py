"""prompt-api.js: the Prompt API over Wisp Mini, on a page that is not Wisp's."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.support.prompt_page import open_prompt_page, run
from tools.serve import Server


@pytest.fixture(scope="module")
def page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    """A page with `globalThis.LanguageModel`."""
    with open_prompt_page(chromium(None), server) as page:
        yield page


def test_availability_and_progress(page: Page) -> None:
    before, during, progress, after, picture = run(
        page,
        """const before = await LanguageModel.availability();
        const progress = [];
        const monitor = (m) => (m.ondownloadprogress = ({ loaded, total }) => progress.push([loaded, total]));
        const creating = LanguageModel.create({ monitor });
        const during = await LanguageModel.availability();
        (await creating).destroy();
        const picture = await LanguageModel.availability({ expectedInputs: [{ type: "image" }] });
        return [before, during, progress, await LanguageModel.availability(), picture];""",
    )
    assert (before, during, after, picture) == ("downloadable", "downloading", "available", "unavailable")
    assert progress[0] == [0, 1]
    assert progress[-1] == [1, 1]
    assert [loaded for loaded, _ in progress] == sorted(loaded for loaded, _ in progress)


def test_a_session_remembers_and_streams(page: Page) -> None:
    answer, pieces, usages, window = run(
        page,
        """const session = await LanguageModel.create(exactly);
        const usages = [session.contextUsage];
        const answer = await session.prompt("What is the capital of France?");
        usages.push(session.contextUsage);
        const pieces = [];
        for await (const piece of session.promptStreaming("And of Italy?")) pieces.push(piece);
        usages.push(session.contextUsage);
        return [answer, pieces, usages, session.contextWindow];""",
    )
    assert "Paris" in answer
    assert len(pieces) > 1  # on a busy machine, all tokens after the first may come together
    assert "Rome" in "".join(pieces)
    assert usages == sorted(set(usages))
    assert usages[-1] < window


def test_initial_prompts_append_and_clone(page: Page) -> None:
    word, cloned, usage, cached = run(
        page,
        """const initialPrompts = [{ role: "system", content: "Answer in one word." }];
        const session = await LanguageModel.create({ ...exactly, initialPrompts });
        await session.append([{ role: "user", content: [{ type: "text", value: "My cat is called Tom." }] },
                              { role: "assistant", content: "Nice." }]);
        const clone = await session.clone();
        const word = await session.prompt("What is the opposite of hot?");
        const usage = [clone.contextUsage < session.contextUsage, clone.contextUsage > 0];
        const cloned = await clone.prompt("What is the opposite of hot?");
        const { last } = await (await (await import("/wisp.js")).Wisp.create()).stats();
        return [word, cloned, usage, last.cached_tokens];""",
    )
    assert word.lower().strip(".") == "cold"
    assert cloned == word
    assert usage == [True, True]
    assert cached > 30  # the clone computes nothing again


def test_measures_what_a_prompt_takes(page: Page) -> None:
    measured, short, before, after = run(
        page,
        """const session = await LanguageModel.create(exactly);
        const input = "What is the capital of France?";
        const before = session.contextUsage;
        const found = [await session.measureContextUsage(input), await session.measureContextUsage("Hi"), before];
        await session.append(input);
        return [...found, session.contextUsage];""",
    )
    assert measured > short > 0
    assert after == before + measured


def test_constraints(page: Page) -> None:
    city, told, digits, unsupported, wrong = run(
        page,
        """const session = await LanguageModel.create(exactly);
        const schema = { type: "object", properties: { city: { enum: ["Paris", "Rome"] } }, required: ["city"],
                         additionalProperties: false };
        const ask = (more) => session.prompt("Name the capital of Italy.", { responseConstraint: schema, ...more });
        const city = JSON.parse(await ask({ omitResponseConstraintInput: true }));
        const told = Object.keys(JSON.parse(await ask()));
        const digits = await session.prompt("How many legs has a cat?",
            { responseConstraint: /^[0-9]$/, omitResponseConstraintInput: true });
        return [city, told, digits, await failed(session.prompt("x", { responseConstraint: /a/i })),
                await failed(session.prompt("x", { responseConstraint: 5 }))];""",
    )
    assert city == {"city": "Rome"}
    assert told == ["city"]
    assert digits.isdigit()
    assert (unsupported, wrong) == ("NotSupportedError", "TypeError")


def test_a_prefix_begins_the_answer(page: Page) -> None:
    rest = run(
        page,
        """const session = await LanguageModel.create(exactly);
        return session.prompt([{ role: "user", content: "What is the capital of France?" },
                               { role: "assistant", content: "The capital of France is", prefix: true }]);""",
    )
    assert rest.strip().startswith("Paris")


def test_tools_are_called_and_their_results_read(page: Page) -> None:
    answer, calls = run(
        page,
        """const calls = [];
        const tools = [{ name: "get_weather", description: "Get the current weather of a city.",
            inputSchema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
            async execute(input) { calls.push(input); return "sunny, 21 degrees"; } }];
        const session = await LanguageModel.create({ ...exactly, tools });
        return [await session.prompt("What is the weather in Paris?"), calls];""",
    )
    assert calls == [{"city": "Paris"}]
    assert answer


def test_the_oldest_turns_go_when_the_context_overflows(page: Page) -> None:
    overflows, usage, window, word, too_much = run(
        page,
        """const initialPrompts = [{ role: "system", content: "Answer in one word." }];
        const session = await Small.create({ ...exactly, initialPrompts });
        let overflows = 0;
        session.oncontextoverflow = () => overflows++;
        for (let i = 0; i < 8; i++) await session.append([{ role: "user", content: `I own ${i} red cars and a boat.` },
                                                          { role: "assistant", content: "That is good to know." }]);
        const word = await session.prompt("What is the opposite of hot?");
        const long = "many words ".repeat(300);
        const error = await session.prompt(long).catch((error) => error);
        return [overflows, session.contextUsage, session.contextWindow, word,
                [error.name, error.requested > error.quota, await failed(Small.create({ initialPrompts:
                    [{ role: "system", content: long }] }))]];""",
    )
    assert overflows > 0
    assert usage < window == 256
    assert word.lower().strip(".") == "cold"
    assert too_much == ["QuotaExceededError", True, "QuotaExceededError"]


def test_aborts_and_destroyed_sessions(page: Page) -> None:
    assert run(
        page,
        """const session = await LanguageModel.create();
        const controller = new AbortController();
        const story = session.prompt("Tell me a long story.", { signal: controller.signal });
        setTimeout(() => controller.abort(new Error("mine")), 20); // a busy page may be late
        const reason = await story.catch((error) => error.message);
        const reader = session.promptStreaming("Tell me a long story.").getReader();
        await reader.read();
        await reader.cancel();
        const again = await session.prompt("Say hi.", { responseConstraint: /hi/ });
        const underWay = failed(session.prompt("Tell me a long story."));
        session.destroy();
        return [reason, again, await underWay, await failed(session.prompt("Hi")), await failed(session.clone()),
                await failed(LanguageModel.create({ signal: AbortSignal.abort() }))];""",
    ) == ["mine", "hi", "AbortError", "AbortError", "AbortError", "AbortError"]


def test_wrong_inputs(page: Page) -> None:
    assert run(
        page,
        """const session = await LanguageModel.create();
        const system = { role: "system", content: "x" }, user = { role: "user", content: "x" };
        const results = [];
        for (const input of [[user, system], [{ role: "robot", content: "x" }], [{ ...user, prefix: true }],
                             [{ role: "user", content: [{ type: "image", value: new Blob() }] }], [{ role: "user" }]])
            results.push(await failed(session.prompt(input)));
        results.push(await failed(LanguageModel.create({ initialPrompts: [user, system] })));
        results.push(await failed(LanguageModel.create({ temperature: -1 })));
        results.push(await failed(LanguageModel.create({ tools: [{ name: "x" }] })));
        return results;""",
    ) == [
        *("TypeError", "TypeError", "SyntaxError", "NotSupportedError", "TypeError"),
        *("TypeError", "RangeError", "TypeError"),
    ]
