"""prompt-api.js behaves as the specification and its tests in web-platform-tests say."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.support.prompt_page import open_prompt_page, run
from tools.serve import Server

SET_UP = """() => {
    const name = "get_weather";
    const inputSchema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
    globalThis.tools = [{ name, description: "Get the current weather of a city.", inputSchema }];
    globalThis.returned = { ...exactly, tools, expectedOutputs: [{ type: "tool-call" }],
                            expectedInputs: [{ type: "tool-call" }, { type: "tool-response" }] };
    globalThis.callWith = (given) =>
        [{ type: "tool-call", value: new LanguageModelToolCall({ callID: "c1", name, arguments: given }) }];
    globalThis.respond = (result, callID = "c1") =>
        [{ type: "tool-response", value: new LanguageModelToolSuccess({ callID, name, result }) }];
    globalThis.circle = {};
    circle.self = circle;
}"""


@pytest.fixture(scope="module")
def page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    """A page with `globalThis.LanguageModel`, and SET_UP's."""
    with open_prompt_page(chromium(None), server) as page:
        page.evaluate(SET_UP)
        yield page


def test_inputs_are_converted_as_web_idl_does(page: Page) -> None:
    answers, usages, wrong = run(
        page,
        """const session = await LanguageModel.create(exactly);
        const inputs = [null, undefined, 5, {}, "", [], [{ role: "user", content: [] }], new Set([]),
                        [{ role: "user", content: [{ type: "text", value: "" }] }], [{ role: "user", content: null }]];
        const usages = [session.contextUsage];
        await session.append([]);
        usages.push(session.contextUsage);
        for (const input of inputs) usages.push(await session.measureContextUsage(input));
        const limited = { responseConstraint: /[a-z]{1,3}/, omitResponseConstraintInput: true };
        const answers = [];
        for (const input of inputs) answers.push(typeof (await session.prompt(input, limited)));
        return [answers, usages, await failed((async () => session.prompt(Symbol()))())];""",
    )
    assert answers == ["string"] * 10
    assert usages[:2] == [0, 0]
    assert all(usage > 0 for usage in usages[2:])
    assert usages[5] > usages[4]  # "[object Object]" is longer than "5"
    assert usages[6] == usages[7] == usages[8]
    assert wrong == "TypeError"


def test_a_system_prompt_comes_first(page: Page) -> None:
    assert run(
        page,
        """const system = { role: "system", content: "Answer in one word." }, user = { role: "user", content: "Hi" };
        const first = await LanguageModel.create(exactly);
        const measured = await first.measureContextUsage([system]);
        const accepted = first.append([system]);
        const second = await failed(first.append([system])); // while the first is under way
        await accepted;
        const equal = first.contextUsage === measured && measured === await first.measureContextUsage([system]);
        const word = await first.prompt("What is the opposite of hot?");
        const other = await LanguageModel.create({ initialPrompts: [system] });
        return [second, equal, word.toLowerCase().replace(".", ""), other.contextUsage === measured,
                await failed(first.prompt([system])), await failed(other.append([system])),
                await failed(other.prompt([user, system])),
                await failed(LanguageModel.create({ initialPrompts: [system, system] }))];""",
    ) == ["TypeError", True, "cold", True, "TypeError", "TypeError", "TypeError", "TypeError"]


def test_an_appended_system_prompt_stays_when_the_context_overflows(page: Page) -> None:
    overflows, old_name, word = run(
        page,
        """const session = await Small.create(exactly);
        let overflows = 0, oldName = 0;
        session.oncontextoverflow = () => overflows++;
        session.onquotaoverflow = () => oldName++;
        await session.append([{ role: "system", content: "Answer in one word." }]);
        for (let i = 0; i < 12; i++) await session.append([{ role: "user", content: `I own ${i} red cars and a boat.` },
                                                          { role: "assistant", content: "That is good to know." }]);
        return [overflows, oldName, await session.prompt("What is the opposite of hot?")];""",
    )
    assert overflows == old_name > 0
    assert word.lower().strip(".") == "cold"


def test_too_large_inputs_state_what_they_need(page: Page) -> None:
    assert run(
        page,
        """const session = await Small.create();
        const long = "many words ".repeat(300);
        const usage = await session.measureContextUsage(long);
        const results = [];
        for (const promise of [session.prompt(long), session.append(long)])
            results.push(await promise.catch(({ name, requested, quota }) =>
                [name, requested === usage, quota === session.contextWindow]));
        return [...results, await session.prompt("Hi", { responseConstraint: /ok/ })];""",
    ) == [["QuotaExceededError", True, True]] * 2 + ["ok"]


def test_options(page: Page) -> None:
    modes, own, clone, legacy, results = run(
        page,
        """const modes = [];
        for (const samplingMode of ["most-predictable", "predictable", "slightly-predictable", "balanced",
                                    "slightly-creative", "creative", "most-creative"]) {
            const session = await LanguageModel.create({ samplingMode });
            modes.push([session.samplingMode === samplingMode, session.temperature, session.topK]);
        }
        const session = await LanguageModel.create({ temperature: 0.6, topK: 2.5 });
        const own = [session.temperature === Math.fround(0.6), session.topK, session.samplingMode];
        const copy = await session.clone();
        const { defaultTopK, maxTopK, defaultTemperature, maxTemperature } = await LanguageModel.params();
        const usual = await LanguageModel.create({ topK: 10 * maxTopK });
        const usualMode = await LanguageModel.create();
        const legacy = [usualMode.topK === defaultTopK && usualMode.samplingMode === "balanced", usual.topK === maxTopK,
                        usual.temperature === defaultTemperature, maxTemperature,
                        usual.inputUsage, usual.inputQuota === usual.contextWindow,
                        await usual.measureInputUsage("Hi") === await usual.measureContextUsage("Hi")];
        const results = [];
        for (const options of [{ samplingMode: "wild" }, { samplingMode: "creative", topK: 3 },
                               { samplingMode: "creative", temperature: 1 }, { expectedInputs: [{ type: "soup" }] },
                               { expectedInputs: [{ type: "text", languages: ["en-abc-invalid"] }] },
                               { topK: 0 }, { temperature: NaN }, { expectedOutputs: [{ type: "image" }] },
                               { expectedOutputs: [{ type: "text", languages: ["en", "unk"] }] },
                               { expectedInputs: [{ type: "text", languages: ["EN", "de-ch"] }] }])
            results.push([await LanguageModel.availability(options).catch(({ name }) => name),
                          await failed(LanguageModel.create(options))]);
        return [modes, own, [copy.temperature === session.temperature, copy.topK], legacy, results];""",
    )
    assert all(mode[0] for mode in modes)
    assert [mode[1:] for mode in modes] == sorted(mode[1:] for mode in modes)  # from predictable to creative
    assert own == [True, 2, None]
    assert clone == [True, 2]
    assert legacy == [True, True, True, 2, 0, True, True]
    assert results == [
        *[["TypeError"] * 2] * 4,
        ["RangeError"] * 2,
        *[["unavailable", "RangeError"]] * 2,
        *[["unavailable", "NotSupportedError"]] * 2,
        ["available", None],
    ]


def test_progress_is_reported_in_steps_until_the_session_is_there(page: Page) -> None:
    steps, aborted = run(
        page,
        """const events = [];
        let created = false;
        const monitor = (m) => m.addEventListener("downloadprogress",
            ({ loaded, total, lengthComputable }) => events.push([loaded, total, lengthComputable, created]));
        await LanguageModel.create({ monitor });
        created = true;
        const aborted = [];
        for (const part of [0, 1]) {
            const controller = new AbortController();
            const reached = new Promise((resolve) => aborted.push(LanguageModel.create({ signal: controller.signal,
                monitor: (m) => m.addEventListener("downloadprogress", ({ loaded }) => loaded === part && resolve()),
            }).then(() => "created", ({ message }) => message)));
            await reached;
            controller.abort(new Error("mine"));
        }
        const thrown = LanguageModel.create({ monitor() { throw new Error("monitor"); } });
        return [events, [...await Promise.all(aborted), await thrown.catch(({ message }) => message)]];""",
    )
    assert [steps[0][0], steps[-1][0]] == [0, 1]
    assert all(loaded * 0x10000 % 1 == 0 for loaded, *_ in steps)
    assert all(rest == [1, True, False] for _, *rest in steps)
    assert aborted == ["mine", "mine", "monitor"]


def test_signals_end_sessions_and_streams(page: Page) -> None:
    assert run(
        page,
        """const controller = new AbortController(), reason = (promise) => promise.then(() => null, (e) => e.message);
        const session = await LanguageModel.create({ signal: controller.signal });
        const clone = await session.clone();
        const underWay = reason(session.prompt("Tell me a long story."));
        controller.abort(new Error("ended"));
        const ended = [await underWay, await reason(session.append("x")), await reason(session.clone())];
        const other = new AbortController();
        const stream = clone.promptStreaming("Tell me a long story.", { signal: other.signal });
        const piped = stream.pipeTo(new WritableStream());
        other.abort(new Error("stream"));
        let thrown;
        try { clone.promptStreaming("x", { signal: other.signal }); } catch ({ message }) { thrown = message; }
        return [...ended, await reason(piped), thrown, await clone.prompt("Hi", { responseConstraint: /ok/ })];""",
    ) == ["ended", "ended", "ended", "stream", "stream", "ok"]


def test_a_clone_can_be_aborted_after_the_call(page: Page) -> None:
    assert run(
        page,
        """const controller = new AbortController();
        const session = await LanguageModel.create();
        const cloning = session.clone({ signal: controller.signal });
        controller.abort(new Error("mine"));
        return [await cloning.then(() => null, ({ message }) => message), (await session.clone()).contextUsage];""",
    ) == ["mine", 0]


def test_what_is_appended_is_computed_before_the_next_prompt(page: Page) -> None:
    appended, cached, aborted, late = run(
        page,
        """const session = await LanguageModel.create(exactly);
        const { Wisp } = await import("/wisp.js"), engine = await Wisp.create();
        await session.append("Seven wizards bought eleven umbrellas on a windy Tuesday. ".repeat(12));
        const appended = session.contextUsage;
        await session.prompt("Hi", { responseConstraint: /ok/, omitResponseConstraintInput: true });
        const cached = (await engine.stats()).last.cached_tokens;
        const controller = new AbortController();
        const appending = session.append("more", { signal: controller.signal });
        controller.abort();
        const aborted = await failed(appending);
        const later = new AbortController(), before = session.contextUsage;
        const added = session.append("Nine more. ".repeat(100), { signal: later.signal });
        while (session.contextUsage === before) await new Promise((resolve) => setTimeout(resolve));
        later.abort(); // while the messages are computed, which the session has already
        return [appended, cached, aborted, await failed(added)];""",
    )
    assert late is None
    assert appended > 128
    assert appended - cached < 64  # a page of the cache
    assert aborted == "AbortError"


def test_a_prefix_may_begin_a_constrained_answer(page: Page) -> None:
    rating, matched, deviates, circular = run(
        page,
        """const session = await LanguageModel.create(exactly);
        const schema = { type: "object", required: ["Rating"], additionalProperties: false,
                         properties: { Rating: { type: "number", minimum: 0, maximum: 5 } } };
        const begun = (content) => [{ role: "user", content: "Hello!" }, { role: "assistant", content, prefix: true }];
        const start = '{ "Rating": ';
        const rating = start + await session.prompt(begun(start), { responseConstraint: schema });
        const expression = /^Greetings and salutations, friend[.!]$/;
        const matched = await session.prompt(begun("Greetings and"), { responseConstraint: expression });
        return [JSON.parse(rating).Rating, matched,
                await failed(session.prompt(begun("Hello"), { responseConstraint: expression })),
                await failed(session.prompt("Hi", { responseConstraint: circle }))];""",
    )
    assert 0 <= rating <= 5
    assert matched[:-1] == " salutations, friend"
    assert (deviates, circular) == ("NotSupportedError", "NotSupportedError")


def test_calls_are_returned_to_a_page_that_expects_them(page: Page) -> None:
    answer, streamed, second, grown = run(
        page,
        """const session = await LanguageModel.create(returned);
        const clone = await session.clone();
        const [{ type, value: call }] = (await session.prompt("What is the weather in Paris?")).slice(-1);
        const pieces = [];
        for await (const piece of clone.promptStreaming("What is the weather in Paris?")) pieces.push(piece);
        const streamed = pieces.filter(({ type }) => type === "tool-call").map(({ value }) => value.name);
        const before = session.contextUsage;
        const content = respond([{ type: "text", value: "sunny, 21 degrees" }], call.callID);
        const second = await session.prompt([{ role: "user", content }]);
        const made = [type, call instanceof LanguageModelToolCall, typeof call.callID, call.name, call.arguments];
        return [made, streamed, second, session.contextUsage > before];""",
    )
    assert answer == ["tool-call", True, "string", "get_weather", {"city": "Paris"}]
    assert streamed == ["get_weather"]
    assert isinstance(second, str)
    assert "21" in second or "sunny" in second
    assert grown


def test_a_history_of_calls_can_be_given(page: Page) -> None:
    usages = run(
        page,
        """const session = await LanguageModel.create(returned);
        const error = new LanguageModelToolError({ callID: "c1", name: "get_weather", errorMessage: "no such city" });
        const usages = [];
        for (const messages of [
            [{ role: "user", content: "What is the weather in Paris?" }],
            [{ role: "assistant", content: callWith({ city: "Paris" }) }],
            [{ role: "user", content: respond([{ type: "text", value: { degrees: 21, sky: ["sunny"] } }]) }],
            [{ role: "assistant", content: callWith(undefined) }],
            [{ role: "user", content: [{ type: "tool-response", value: error }] }],
        ]) {
            await session.append(messages);
            usages.push(session.contextUsage);
        }
        return usages;""",
    )
    assert usages == sorted(set(usages))
    assert usages[0] > 0


def test_a_response_is_not_parted_from_its_question(page: Page) -> None:
    """Where a quarter of the context is not left for the answer."""
    overflows, usage, window = run(
        page,
        """const session = await Small.create({ ...returned, tools: [] });
        let overflows = 0;
        session.oncontextoverflow = () => overflows++;
        await session.append([{ role: "user", content: "What is the weather in Paris?" },
                              { role: "assistant", content: callWith({ city: "Paris" }) }]);
        let value = "sunny", content;
        const fill = () => [{ role: "user", content: respond([{ type: "text", value }]) }];
        while (session.contextUsage + (await session.measureContextUsage(fill())) < 200) value += " and sunny";
        await session.prompt(fill(), { responseConstraint: /ok/ });
        return [overflows, session.contextUsage, session.contextWindow];""",
    )
    assert window == 256
    assert (overflows, usage > 3 / 4 * window) == (0, True)


def test_wrong_calls_and_responses(page: Page) -> None:
    results, unexpected = run(
        page,
        """const session = await LanguageModel.create(returned);
        const bitmap = await createImageBitmap(new ImageData(4, 4));
        const results = [];
        for (const [role, content] of [
            ["assistant", callWith([])],
            ["assistant", callWith(circle)],
            ["user", callWith({})],
            ["assistant", respond([])],
            ["user", respond([{ type: "text", value: circle }])],
            ["user", respond([{ type: "text", value() {} }])],
            ["user", respond([{ type: "text", value: 5n }])],
            ["user", respond([{ type: "object", value: bitmap }])],
            ["user", respond([{ type: "image", value: bitmap }])],
        ])
            results.push(await failed(session.prompt([{ role, content }])));
        const other = await LanguageModel.create({ ...returned, expectedInputs: [] });
        return [results, await failed(other.prompt([{ role: "assistant", content: callWith({}) }]))];""",
    )
    assert results[:4] == ["DataError", "DataError", "TypeError", "TypeError"]
    assert results[4:] == ["DataError", "DataError", "DataError", "DataError", "NotSupportedError"]
    assert unexpected == "NotSupportedError"


def test_wrong_tools(page: Page) -> None:
    assert run(
        page,
        """const good = { name: "x", description: "y", inputSchema: { type: "object" }, execute() {} };
        const endless = { type: "object", circle };
        const throwing = { type: "object", toJSON() { throw new EvalError("mine"); } };
        const proxy = new Proxy({ type: "object" }, { get(target, name) {
            if (name === "properties") throw new EvalError("mine");
            return target[name]; } });
        const results = [];
        for (const wrong of [{ inputSchema: null }, { inputSchema: {} }, { inputSchema: "x" },
                             { inputSchema: { type: "string" } }, { inputSchema: { type: "object", properties: "x" } },
                             { inputSchema: { type: "object", required: "x" } }, { name: "" }, { description: "" },
                             { inputSchema: undefined }, { inputSchema: endless }, { execute: undefined },
                             { inputSchema: throwing }, { inputSchema: proxy }])
            results.push(await failed(LanguageModel.create({ tools: [{ ...good, ...wrong }] })));
        results.push(await failed(LanguageModel.create({ tools: [good, good] })));
        results.push(await failed(LanguageModel.create({ tools: [good], expectedOutputs: [{ type: "text" }] })));
        results.push(await failed(LanguageModel.create({ tools: [], expectedOutputs: [{ type: "tool-call" }] })));
        return results;""",
    ) == [*["TypeError"] * 11, "EvalError", "EvalError", "TypeError", None, None]
