"""Records that wait to be stored in IndexedDB, with a store that the test controls."""

from playwright.sync_api import Page

# Stores ten records of 100 bytes with a store that the test releases, one call at a time.
BACKGROUND_STORE = """async () => {
  const limit = 550; // bytes
  Object.defineProperty(navigator, "deviceMemory", { value: (4 * limit) / 2 ** 30, configurable: true });
  const { BackgroundStore } = await import("/repo/py_engine/files/background_store.js?small");
  const seen = {};
  const pending = [];
  const store = (url, offset) => new Promise((resolve, reject) => pending.push({ offset, resolve, reject }));
  const background = new BackgroundStore(store);
  const tick = () => new Promise((resolve) => setTimeout(resolve));
  const entry = () => ({ sha256: "", data: new Blob([new Uint8Array(100)]) });
  let added = 0;
  (async () => { for (let i = 0; i < 10; i++) { await background.add("a", i, entry()); added += 1; } })();
  await tick();
  seen.running = pending.length;
  seen.added = added; // the sixth exceeds the limit: it waits for room
  seen.found = [Boolean(background.find("a", 5)), Boolean(background.find("a", 6)), Boolean(background.find("b", 0))];
  pending.shift().resolve();
  await tick();
  seen.later = [added, Boolean(background.find("a", 0)), pending.length];
  pending.shift().reject(Object.assign(new Error("full"), { name: "QuotaExceededError" }));
  await tick();
  seen.error = await background.stored("a").catch((error) => error.name);
  seen.kept = Boolean(background.find("a", 1));
  background.retry("a");
  let stored = false;
  background.stored("a").then(() => { stored = true; });
  const order = [];
  while (!stored) {
    for (const { offset, resolve } of pending.splice(0)) { order.push(offset); resolve(); }
    await tick();
  }
  seen.order = [...new Set(order)].sort((a, b) => a - b);
  background.add("b", 0, entry());
  background.add("b", 1, entry());
  background.drop("b", 0);
  seen.dropped = background.of("b").map(({ offset }) => offset);
  background.drop("b");
  await background.stored("b");
  pending.length = 0;
  const lost = { size: 100, slice: () => ({ arrayBuffer: () => Promise.reject(new Error("gone")) }) };
  background.add("c", 0, { sha256: "", data: lost });
  background.add("c", 1, entry());
  await tick();
  for (const { offset, resolve, reject } of pending) offset ? resolve() : reject(new Error("unreadable"));
  seen.lost = await background.stored("c").then(() => "given up", (error) => error.message);
  return seen;
}"""


def test_records_that_wait_to_be_stored(engine_page: Page) -> None:
    """They can be read; four are stored at once; the limit of bytes holds; an error stops one model until a retry.

    A record whose bytes ended with a page is given up.
    """
    seen = engine_page.evaluate(BACKGROUND_STORE)
    assert seen["running"] == 4
    assert (seen["added"], seen["found"]) == (5, [True, False, False])
    assert seen["later"] == [6, False, 4]
    assert (seen["error"], seen["kept"]) == ("QuotaExceededError", True)
    assert seen["order"] == list(range(1, 10))
    assert seen["dropped"] == [1]
    assert seen["lost"] == "given up"
