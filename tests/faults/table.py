"""The faults: how each is made, what is promised, and how the requests under way may end.

A request under way must get the answer of an undisturbed run. `may_fail` has the exceptions: by its way to the engine
("sdk", "http": the service worker, "bridge"), the codes of clean errors. After the fault every request must work.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from playwright.sync_api import Error as PlaywrightError

from tests.faults.lab import Lab
from tests.faults.requests import GREEDY, OTHER, REQUESTS, differs
from tests.support.waiting import wait_for

Codes = Mapping[str, frozenset[str]]

# What a client of the service worker sees when an answer breaks off: openai's errors, by class if without a code.
BROKEN = frozenset({"engine_gone", "cut", "APIConnectionError", "TypeError", "APIError", "SyntaxError"})
# How requests end when their worker ends: as ever, in the next worker.
WORKER_ENDS: Codes = {}
ABORTED: Codes = dict.fromkeys(("sdk", "http"), frozenset({"aborted", "APIUserAbortError", "cut"}))
NO_MEMORY: Codes = {
    "sdk": frozenset({"out_of_memory"}),
    "http": BROKEN | {"out_of_memory"},
    "bridge": frozenset({"out_of_memory"}),
}
NO_TAB = frozenset({"engine_gone", "no_engine"})  # the tab ended while it answered, or before it was asked
UPDATE_CHECK = 1  # bytes: a load asks the host once a day for a newer version, and evicted storage forgets when
LOADS_MAY_FAIL = frozenset({"out_of_memory", "network_error", "device_lost"})


@dataclass(frozen=True)
class Fault:
    """One fault. `act` makes it while requests run, and returns what was wrong."""

    name: str
    promised: str
    act: Callable[[Lab, Random], list[str] | None]
    may_fail: Codes = field(default_factory=dict)
    refetches: bool = False  # the next load may download again what the fault has destroyed


# -- the GPU


def destroy_device(lab: Lab, dice: Random) -> None:
    """Destroy the device before one of its next submits."""
    lab.tell("arm", "device", dice.randrange(1, 40))


def crash_gpu(lab: Lab, dice: Random) -> None:
    """End the GPU process, as a crash of the driver does."""
    lab.session.send("Browser.crashGpuProcess")


def crash_gpu_in_a_load(lab: Lab, dice: Random) -> list[str]:
    """Destroy the device of a model that is being loaded, or of the one that answers."""
    return load_other(lab, lambda: lab.tell("arm", "device", dice.randrange(1, 12)))


def fail_allocation(lab: Lab, dice: Random) -> None:
    """Let one of the next allocations for requests fail."""
    lab.tell("arm", "memory", dice.randrange(1, 3))


def fail_allocation_in_a_load(lab: Lab, dice: Random) -> list[str]:
    """Let one of a load's allocations fail: buffers, or the mapped memory of uploads."""
    fault, most = dice.choice([("memory", 4), ("map", 7)])
    return load_other(lab, lambda: lab.tell("arm", fault, dice.randrange(1, most)))


# -- workers and tabs


def end_worker(lab: Lab, dice: Random) -> None:
    """End the engine's worker."""
    lab.end_worker()


def throw_in_worker(lab: Lab, dice: Random) -> None:
    """Raise an error that nothing catches in the engine's worker."""
    lab.tell("throw")


def close_tab(lab: Lab, dice: Random) -> None:
    """Close a tab."""
    dice.choice(lab.tabs).close()


def crash_tab(lab: Lab, dice: Random) -> None:
    """End a tab's process."""
    with suppress(PlaywrightError):
        dice.choice(lab.tabs).goto("chrome://crash")


def stop_service_worker(lab: Lab, dice: Random) -> None:
    """Stop the service worker, as the browser may at any time."""
    session = lab.page_session(lab.tabs[0])
    session.send("ServiceWorker.enable")
    session.send("ServiceWorker.stopAllWorkers")
    session.detach()


def abort_all(lab: Lab, dice: Random) -> None:
    """Abort every request of a tab."""
    lab.call(dice.choice(lab.tabs), "abortAll")


def open_another_version(lab: Lab, dice: Random) -> list[str]:
    """Use another version of Wisp in a third tab, on the same stored model."""
    tab = lab.open_tab()
    lab.call(tab, "connect", "/next/wisp.js")
    lab.load(tab)
    found = lab.call(tab, "oneByOne", [REQUESTS[0], REQUESTS[3]])
    expected = lab.call(lab.tabs[0], "oneByOne", [REQUESTS[0], REQUESTS[3]])
    tab.close()
    return [] if found == expected else [f"the other version answers {found}, not {expected}"]


# -- the network, the storage and the clock


def cut_network(lab: Lab, dice: Random) -> list[str]:
    """Cut a download at any byte, once, some times, or for good."""
    file = lab.files[OTHER]

    def cut() -> None:
        file.cut_at, file.cuts = dice.randrange(len(file.data)), dice.choice([1, 2, 1 << 30])

    return load_other(lab, cut)


def exceed_quota(lab: Lab, dice: Random) -> list[str]:
    """Let the storage be full at any write."""
    session = lab.page_session(lab.tabs[0])

    def fill() -> None:
        used = int(lab.tabs[0].evaluate("navigator.storage.estimate().then(({ usage }) => usage)"))
        quota = used + dice.randrange(len(lab.files[OTHER].data))
        session.send("Storage.overrideQuotaForOrigin", {"origin": lab.origin, "quotaSize": quota})

    try:
        return load_other(lab, fill, lambda: session.send("Storage.overrideQuotaForOrigin", {"origin": lab.origin}))
    finally:
        session.detach()


DAMAGE = """async ([place, how]) => {
  const done = (asked) => new Promise((resolve, reject) => {
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(asked.error);
  });
  const db = await done(indexedDB.open("wisp-models"));
  const store = () => db.transaction("records", "readwrite").objectStore("records");
  const keys = await done(store().getAllKeys());
  const key = keys[Math.floor(place * keys.length)];
  const entry = await done(store().get(key));
  const bytes = new Uint8Array(await entry.data.arrayBuffer());
  bytes[Math.floor(place * bytes.length)] ^= 4;
  const damaged = { bit: { ...entry, data: new Blob([bytes]) }, short: { ...entry, data: new Blob(["x"]) },
                    strange: { data: 3 }, none: null }[how];
  await done(damaged ? store().put(damaged, key) : store().delete(key));
  db.close();
}"""


def damage_record(lab: Lab, dice: Random) -> None:
    """Damage or delete a stored record."""
    lab.tabs[0].evaluate(DAMAGE, [dice.random(), dice.choice(["bit", "short", "strange", "none"])])


def evict_storage(lab: Lab, dice: Random) -> None:
    """Clear the databases of the site, as browsers do when the disk is full."""
    session = lab.page_session(lab.tabs[0])
    session.send("Storage.clearDataForOrigin", {"origin": lab.origin, "storageTypes": "indexeddb"})
    session.detach()


def jump_clock(lab: Lab, dice: Random) -> None:
    """Set the calendar to another year, and let the machine sleep for an hour."""
    lab.tell("jump", dice.choice([-1, 1]) * dice.randrange(1, 20) * 365 * 86_400_000, dice.choice([0, 3_600_000]))


# -- a load with a fault


def load_other(lab: Lab, begin: Callable[[], Any], end: Callable[[], Any] = lambda: None) -> list[str]:
    """Load a second model with a fault, which `begin` makes and `end` ends; then without it, and from the cache."""
    tab, file, wrong = lab.tabs[1], lab.files[OTHER], list[str]()
    lab.call(tab, "deleteCached", lab.url(OTHER))
    begin()
    outcome = lab.try_load(tab, OTHER)
    end()
    file.cut_at = None
    lab.tell("disarm")
    if "error" in outcome and outcome["error"] not in LOADS_MAY_FAIL:
        wrong.append(f"the load ended with {outcome['error']}: {outcome['message'][:300]}")
    asked = {**REQUESTS[0], "body": {**GREEDY, "model": OTHER}}
    for how in ("with the fault", "without it", "from the cache"):
        wait_for(lambda: not file.under_way)  # requests that the fault has ended
        file.sent = 0
        if how == "with the fault" and "error" in outcome:
            continue
        lab.load(tab, OTHER)
        (found,) = lab.call(tab, "oneByOne", [asked])
        if "error" in found or differs(asked, found["value"], lab.expected_of_other):
            wrong.append(f"loaded {how}, the second model answers {found}")
        lab.call(tab, "unload", OTHER)
    if file.sent > UPDATE_CHECK:
        wrong.append(f"a load from the cache transferred {file.sent} bytes")
    return wrong


FAULTS: list[Fault] = [
    Fault("device destroyed", "every answer goes on with the same text", destroy_device),
    Fault("GPU process killed", "every answer goes on with the same text", crash_gpu),
    Fault("device destroyed during a load", "the load begins again; answers go on", crash_gpu_in_a_load),
    Fault("out of memory for a request", "the request waits, or ends with out_of_memory", fail_allocation, NO_MEMORY),
    Fault(
        "out of memory during a load",
        "less memory is used, or the load ends with out_of_memory; answers go on",
        fail_allocation_in_a_load,
        NO_MEMORY,
    ),
    Fault("worker killed", "answers go on in another worker with the same text", end_worker, WORKER_ENDS),
    Fault("error that nothing catches in the worker", "as for a killed worker", throw_in_worker, WORKER_ENDS),
    Fault(
        "tab closed", "other tabs' answers go on", close_tab,
        {"bridge": NO_TAB},
    ),
    Fault(
        "tab killed", "other tabs' answers go on; those that pass a service worker in its process break off visibly",
        crash_tab, {"bridge": NO_TAB, "http": BROKEN},
    ),
    Fault(
        "service worker stopped", "answers that pass it break off visibly; the engine's own go on",
        stop_service_worker, {"http": BROKEN},
    ),
    Fault("every request aborted", "they end at once; others go on", abort_all, ABORTED),
    Fault("two versions in two tabs", "both answer from the same stored model", open_another_version),
    Fault("network cut at any byte", "the download goes on, or ends with network_error; nothing stored is lost",
          cut_network),
    Fault("quota exceeded at any write", "the load goes on without the cache", exceed_quota),
    Fault("stored record damaged or gone", "it is downloaded again", damage_record, refetches=True),
    Fault("storage evicted", "answers go on; the model is downloaded again", evict_storage, refetches=True),
    Fault("clock jumps", "nothing is noticed", jump_clock),
]  # fmt: skip
