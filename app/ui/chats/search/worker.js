/** Searches the chats, and updates the index with those that changed since. Runs beside the page, which stays quick. */
import { opened as database, readChat, readMessages } from "../database.js";
import { merged, Opened, segmentOf, terms } from "./segment.js";

const BATCH = 200; // chats that are read and indexed at once
const GROWS_MS = 5000; // an answer that has not grown for so long has ended, with its tab, or waits
const MERGED = 8; // segments of about the same size become one

/** @type {Map<number, Opened>} in the order of their numbers */
let segments = new Map();
/** @type {Map<string, Opened>} chat -> the newest segment that has it */
const newest = new Map();

/** Reads the segments that this tab or another one has written since. */
async function load() {
  const db = await database();
  const numbers = (await db.getAllKeys("index")).map(Number);
  segments = new Map([...segments].filter(([number]) => numbers.includes(number)));
  const read = await Promise.all(numbers.filter((n) => !segments.has(n)).map((n) => db.get("index", n)));
  for (const segment of read) add(new Opened(segment));
}

/** @param {Opened} segment */
function add(segment) {
  segments.set(/** @type {number} */ (segment.segment.segment), segment);
  for (const id of segment.segment.chats) newest.set(id, segment);
}

/** Indexes the chats that changed. */
async function update() {
  const db = await database();
  const total = await db.count("unindexed");
  for (let done = 0; done < total;) {
    const marks = (await db.getAll("unindexed", null, BATCH)).filter(({ at = 0 }) => Date.now() - at > GROWS_MS);
    if (!marks.length) return;
    const ids = new Set(marks.map(({ id, chat = id }) => chat));
    const chats = await Promise.all([...ids].map(textOf));
    const segment = segmentOf(chats);
    const writing = db.transaction(["index", "unindexed"], "readwrite");
    segment.segment = Number(await writing.objectStore("index").add(segment));
    const store = writing.objectStore("unindexed");
    for (const { id, mark } of marks) {
      if ((await store.get(id))?.mark === mark) store.delete(id); // else it changed again meanwhile
    }
    await writing.done;
    add(new Opened(segment));
    await merge();
    done += marks.length;
    if (total > BATCH) postMessage({ progress: { done, total } });
  }
}

/** The title and all messages of a chat. @param {string} id */
async function textOf(id) {
  const [info, messages] = await Promise.all([readChat(id), readMessages(id)]);
  return { id, text: info ? [info.title, ...messages.map(({ content }) => content)].join("\n") : "" };
}

/** Replaces segments of about the same size by one, so that there are few, and a chat is seldom written again. */
async function merge() {
  const levels = Map.groupBy(segments.values(), ({ segment }) => Math.floor(Math.log2(segment.chats.length) / 3));
  for (const group of levels.values()) {
    if (group.length < MERGED) continue;
    const one = merged(group, (id, segment) => newest.get(id) === segment);
    const old = group.map(({ segment }) => /** @type {number} */ (segment.segment));
    const writing = (await database()).transaction("index", "readwrite");
    for (const number of old) writing.store.delete(number);
    one.segment = Number(await writing.store.add(one));
    await writing.done;
    segments = new Map([...segments].filter(([number]) => !old.includes(number)));
    add(new Opened(one));
  }
}

/** @param {string} text @returns {string[]} ids */
function search(text) {
  const prefixes = terms(text);
  if (!prefixes.length) return [];
  return [...segments.values()].flatMap((segment) =>
    segment.search(prefixes).filter((id) => newest.get(id) === segment),
  );
}

/** @type {Promise<unknown>} the updates, one after the other */
let updating = Promise.resolve();

onmessage = async ({ data: { number, text } }) => {
  try {
    await (updating = updating.then(() =>
      navigator.locks.request("wisp-search", async () => (await load(), update())),
    ));
    postMessage({ number, ids: search(text) });
  } catch (error) {
    updating = Promise.resolve();
    postMessage({ number, error: `${error}` });
  }
};
