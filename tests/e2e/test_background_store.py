"""Records that wait to be stored in IndexedDB, with a store that the test controls."""

from playwright.sync_api import Page

# Stores ten records of 100 bytes with a store that the test releases, one transaction at a time.
BACKGROUND_STORE = """async () => {
  const limit = 550; // bytes
  Object.defineProperty(navigator, "deviceMemory", { value: (4 * limit) / 2 ** 30, configurable: true });
  const { BackgroundStore } = await import("/repo/py_engine/files/background_store.js?small");
  const seen = {};
  const pending = [];
  const store = (records) =>
    new Promise((resolve, reject) => pending.push({ offsets: records.map(({ offset }) => offset), resolve, reject }));
  const background = new BackgroundStore(store);
  const tick = () => new Promise((resolve) => setTimeout(resolve));
  const entry = () => ({ sha256: "", data: new Blob([new Uint8Array(100)]) });
  const full = () => Object.assign(new Error("full"), { name: "QuotaExceededError" });
  let added = 0;
  (async () => { for (let i = 0; i < 10; i++) { await background.add("a", i, entry()); added += 1; } })();
  await tick();
  seen.transactions = [pending.map(({ offsets }) => offsets)];
  seen.added = [added]; // the sixth exceeds the limit: it waits for room
  seen.found = [Boolean(background.find("a", 5)), Boolean(background.find("a", 6)), Boolean(background.find("b", 0))];
  pending.shift().resolve();
  await tick();
  seen.added.push(added);
  seen.later = Boolean(background.find("a", 0));
  const next = async (settle) => {
    seen.transactions.push(pending.map(({ offsets }) => offsets));
    settle(pending.shift());
    await tick();
  };
  await next(({ reject }) => reject(full())); // of all that arrived meanwhile
  await next(({ resolve }) => resolve()); // the first of them has room
  await next(({ reject }) => reject(full()));
  seen.error = await background.stored("a").catch((error) => error.name);
  seen.kept = Boolean(background.find("a", 2));
  seen.transactions.push(pending.map(({ offsets }) => offsets));
  background.retry("a");
  while (pending.length) await next(({ resolve }) => resolve());
  await background.stored("a");
  background.add("b", 0, entry());
  background.add("b", 1, entry());
  background.drop("b", 0);
  seen.dropped = background.of("b").map(({ offset }) => offset);
  background.drop("b");
  await background.stored("b");
  pending.splice(0).forEach(({ resolve }) => resolve());
  await tick();
  const lost = { size: 100, slice: () => ({ arrayBuffer: () => Promise.reject(new Error("gone")) }) };
  background.add("d", 0, entry());
  background.add("c", 0, { sha256: "", data: lost });
  background.add("c", 1, entry());
  pending.shift().resolve();
  await tick();
  seen.lost = [];
  while (pending.length) {
    const { offsets, resolve, reject } = pending.shift();
    seen.lost.push(offsets);
    offsets.includes(0) ? reject(new Error("unreadable")) : resolve();
    await tick();
  }
  seen.others = await background.stored("c").then(() => "stored", (error) => error.message);
  return seen;
}"""


def test_records_that_wait_to_be_stored(engine_page: Page) -> None:
    """They can be read; those that wait share a transaction; the limit of bytes holds.

    Where a transaction fails, its records are stored one by one. An error stops one model until a retry. A record whose
    bytes ended with a page is given up.
    """
    seen = engine_page.evaluate(BACKGROUND_STORE)
    assert seen["transactions"][0] == [[0]]
    assert (seen["added"], seen["found"], seen["later"]) == ([5, 6], [True, False, False], False)
    assert seen["transactions"][1:5] == [[[1, 2, 3, 4, 5]], [[1]], [[2]], []]
    assert (seen["error"], seen["kept"]) == ("QuotaExceededError", True)
    retried = [offset for transactions in seen["transactions"][5:] for offset in transactions[0]]
    assert retried == [2, 3, 4, 5, 6, 7, 8, 9]
    assert seen["transactions"][5][0][:2] == [2, 3], "together again"
    assert seen["dropped"] == [1]
    assert seen["lost"] == [[0, 1], [0], [1]]
    assert seen["others"] == "stored"
