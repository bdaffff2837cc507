/** Reads a file of chats and stores them, all or none. Runs beside the page, which stays quick; ended, it stores nothing. */
import { setLanguage } from "../../../language/phrase.js";
import { listChats, saveChats } from "../database.js";
import { conversationsOf, isArchive } from "./archive.js";
import { chatsOf } from "./read.js";

onmessage = async ({ data: { file, language } }) => {
  try {
    setLanguage(language); // of the errors
    const texts = (await isArchive(file)) ? await conversationsOf(file) : [await file.text()];
    postMessage(await add(texts.flatMap(chatsOf)));
  } catch (error) {
    postMessage({ error: error instanceof Error ? error.message : `${error}` });
  }
};

/** Chats that are there already stay as they are. @param {import("./tree.js").Stored[]} chats */
async function add(chats) {
  const there = new Map((await listChats()).map((info) => [info.id, info]));
  const isThere = (/** @type {import("../database.js").ChatInfo} */ { id, updated }) =>
    there.get(id)?.updated === updated;
  const added = chats
    .filter(({ info, messages }) => messages.length && !isThere(info))
    .map(({ info, messages }) => ({
      info: there.has(info.id) ? { ...info, id: crypto.randomUUID() } : info,
      messages,
    }));
  await saveChats(added, (done) => postMessage({ progress: { done, total: added.length } }));
  return { added: added.length, skipped: chats.length - added.length };
}
