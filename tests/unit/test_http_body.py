"""Responses that are read in parts, from servers that stop in the middle."""

import pytest

from tests.support.js_modules import Evaluate, evaluator

# Reads a response that stops after some bytes. Timers run 1,000 times as fast.
READ = """(async () => {
    const { setInterval } = globalThis;
    globalThis.setInterval = (run, ms) => setInterval(run, ms / 1000);
    let isCancelled = false;
    const bytes = new ReadableStream({
        pull: (controller) => new Promise((resolve) => {
            if (a[0]-- > 0) { setTimeout(() => { controller.enqueue(new Uint8Array([1])); resolve(); }, 20); }
        }),
        cancel: () => void (isCancelled = true),
    }, { highWaterMark: 0 });
    const body = new m.Body(new Response(bytes, { headers: { "Content-Range": "bytes 7-16/99" }, status: 206 }));
    let counted = 0;
    const target = new ArrayBuffer(10);
    const reached = await body.fill(target, 2, 10, (n) => (counted += n));
    return [reached, counted, isCancelled, body.start, body.size, [...new Uint8Array(target)]];
})()"""


# Requests a file of a server that never answers.
ASK = """(async () => {
    const { setInterval } = globalThis;
    globalThis.setInterval = (run, ms) => setInterval(run, ms / 1000);
    globalThis.fetch = (url, { signal }) => new Promise((_, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason));
    });
    const user = new AbortController();
    if (a[0]) setTimeout(() => user.abort(), 10);
    return m.request("https://a.test/", 0, 9, user.signal).catch((error) => error.name);
})()"""


@pytest.fixture(scope="module")
def js(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return evaluator(tmp_path_factory.mktemp("js"), ["py_engine/files/http.js"])


@pytest.mark.timeout(120)
def test_a_response_that_brings_nothing_more_counts_as_lost(js: Evaluate) -> None:
    assert js(READ, 3) == [5, 3, True, 7, 99, [0, 0, 1, 1, 1, 0, 0, 0, 0, 0]]


def test_a_slow_response_is_read_to_its_end(js: Evaluate) -> None:
    assert js(READ, 8)[:3] == [10, 8, False]


@pytest.mark.timeout(120)
def test_a_server_that_never_answers_is_given_up(js: Evaluate) -> None:
    assert js(ASK, False) == "TimeoutError"
    assert js(ASK, True) == "AbortError"
