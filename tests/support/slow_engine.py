"""A CPU engine as slow as a phone's, so that a test can act before an answer of the embedded model is over."""

from playwright.sync_api import Page

# Every message with results waits; the engine asks for those of some tokens at a time. The worker sleeps, so that other
# processes have its core: Atomics.wait() needs shared memory.
SLOW = """(ms) => {
  const postMessage = (globalThis.quickly ??= MessagePort.prototype.postMessage);
  const never = new Int32Array(new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }).buffer);
  MessagePort.prototype.postMessage = function (...message) {
    Atomics.wait(never, 0, 0, ms);
    return postMessage.apply(this, message);
  };
}"""


def slow_down(page: Page, ms: int = 200) -> None:
    """Delay what compute workers answer: one page lends its own to all pages. A reload of that page ends the delay, and
    a second call changes it.
    """
    slowed = 0
    for one in page.context.pages:
        one.evaluate("true")  # Playwright hears of workers while it waits for something
        worker = next((worker for worker in one.workers if "compute" in worker.url), None)  # later ones are its threads
        if worker is not None:
            worker.evaluate(SLOW, ms)
            slowed += 1
    assert slowed, [worker.url for one in page.context.pages for worker in one.workers]
