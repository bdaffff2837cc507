"""A CPU engine as slow as a phone's, so that a test can act before an answer of the embedded model is over."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from playwright.sync_api import Error, Page

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


@contextmanager
def slowed(page: Page, ms: int = 200) -> Iterator[None]:
    """Delay what compute workers answer: one page lends its own to all pages. A reload of that page ends the delay."""
    assert _delay(page, ms), [worker.url for one in page.context.pages for worker in one.workers]
    try:
        yield
    finally:
        _delay(page, 0)


def _delay(page: Page, ms: int) -> int:
    """Set the delay in all pages of a profile; return in how many."""
    count = 0
    for one in page.context.pages:
        with suppress(Error):  # a page that has crashed, or whose worker ends
            one.evaluate("true")  # Playwright hears of workers while it waits for something
            compute = (worker for worker in one.workers if "compute" in worker.url)
            if worker := next(compute, None):  # later ones are its threads
                worker.evaluate(SLOW, ms)
                count += 1
    return count
