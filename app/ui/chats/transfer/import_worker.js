/** Reads a file of chats and stores them, all or none. Runs beside the page, which stays quick. */
import { setLanguage } from "../../../language/phrase.js";
import { whyNotStored } from "../../../storage/failures.js";
import { listChats, saveChats } from "../database.js";
import { conversationsOf, isArchive } from "./archive.js";
import { chatsOf } from "./read.js";

const cancelling = new AbortController();

onmessage = async ({ data: { cancel, file, language } }) => {
  if (cancel) return cancelling.abort();
  try {
    setLanguage(language); // of the errors
    const texts = (await isArchive(file)) ? await conversationsOf(file) : [await file.text()];
    postMessage({ result: await add(texts.flatMap(chatsOf)) });
  } catch (/** @type {any} */ error) {
    if (cancelling.signal.aborted) postMessage({ result: "cancelled" });
    else postMessage({ error: whyOf(error), name: error?.name });
  }
};

/** Chats that are there already stay as they are. @param {import("./tree.js").Stored[]} chats */
async function add(chats) {
  const times = new Map((await listChats()).map(({ id, updated }) => [id, updated]));
  const added = [];
  for (const { info, messages } of chats) {
    const { id, updated } = info;
    if (!messages.length || times.get(id) === updated) continue;
    added.push({ info: times.has(id) ? { ...info, id: crypto.randomUUID() } : info, messages });
    times.set(id, updated); // a file may have a chat twice
  }
  await saveChats(added, (done) => postMessage({ progress: { done, total: added.length } }), cancelling.signal);
  return { added: added.length, skipped: chats.length - added.length };
}

/** @param {any} error */
function whyOf(error) {
  if (error instanceof DOMException) return `${whyNotStored(error)}`;
  return error?.message || `${error}`;
}
