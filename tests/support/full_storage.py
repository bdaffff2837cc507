"""A storage that is full until the prompt cache is removed."""

# Browsers' own quotas do not do for tests: they let some more be written, depending on when they last counted.
# (names of object stores) -> nothing. Workers tell each other on this channel that the prompt cache is removed.
FULL_UNTIL_FREED = """(names) => {
    const { put } = IDBObjectStore.prototype;
    let isFull = true;
    new BroadcastChannel("wisp-prefixes").onmessage = ({ data }) => (isFull &&= data !== "");
    IDBObjectStore.prototype.put = function (...args) {
        if (!isFull || !names.includes(this.name)) return put.apply(this, args);
        throw new DOMException("", "QuotaExceededError");
    };
}"""
