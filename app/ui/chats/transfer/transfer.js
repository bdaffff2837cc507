/** Saves chats as files, and reads chats from files. */
import { sentences, t } from "../../../language/phrase.js";
import { byId, h } from "../../dom.js";
import { announce, dismiss, notify } from "../../notices.js";
import * as database from "../database.js";
import { openMenu } from "../menu.js";
import { conversationsOf, isArchive } from "./archive.js";
import { chatsOf } from "./read.js";
import { fileName, FRAME, WRITE } from "./write.js";

/** @typedef {import("./write.js").Form} Form */

const SHOWN = 100; // chats after which the progress is shown, and shown again

/**
 * @param {{ imported: () => Promise<void>, presets: () => void }} actions `presets` opens the assistants and snippets
 */
export function startTransfer({ imported, presets }) {
  const input = /** @type {HTMLInputElement} */ (byId("import-input"));
  const button = byId("chats-more");
  button.onclick = () =>
    openMenu(button, [
      { label: t("Import chats"), icon: "file", run: () => input.click() },
      { label: t("Save all as JSON"), icon: "down", run: () => saveAll("json") },
      { label: t("Save all as Markdown"), icon: "down", run: () => saveAll("markdown") },
      { label: t("Assistants and snippets"), icon: "person", run: presets },
    ]);
  input.addEventListener("change", async () => {
    const files = [...(input.files ?? [])];
    input.value = "";
    for (const file of files)
      await importFile(file).catch((error) => failed(t("{name} was not imported.", { name: file.name }), error));
    await imported();
  });
}

/** Saves one chat. @param {string} id @param {Form} form */
export async function saveChat(id, form) {
  try {
    const info = await database.readChat(id);
    if (info) await save([info], fileName(info.title, form), form);
  } catch (error) {
    failed(t("The chat was not saved."), error);
  }
}

/** @param {Form} form */
async function saveAll(form) {
  try {
    const name = `wisp-chats-${new Date().toISOString().slice(0, 10)}`;
    await save(await database.listChats(), fileName(name, form), form);
  } catch (error) {
    failed(t("The chats were not saved."), error);
  }
}

/** @param {database.ChatInfo[]} infos @param {string} name @param {Form} form */
async function save(infos, name, form) {
  let isCancelled = false;
  const cancel = { label: t("Cancel"), run: () => (isCancelled = true) };
  const [start, end, between] = FRAME[form];
  const parts = [start];
  for (const [index, info] of infos.entries()) {
    if (index % SHOWN === SHOWN - 1) {
      const text = t("Saving chats: {done} of {total}", { done: index + 1, total: infos.length });
      notify({ key: "transfer", text, actions: [cancel] });
    }
    if (isCancelled) return;
    parts.push((index ? between : "") + (await WRITE[form]({ info, messages: await database.readMessages(info.id) })));
  }
  dismiss("transfer");
  const url = URL.createObjectURL(new Blob([...parts, end], { type: "application/octet-stream" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
  announce(t("{name} is saved.", { name }));
}

/** Adds the chats of a file, all or none. Chats that are there already stay as they are. @param {File} file */
async function importFile(file) {
  notify({ key: "transfer", text: t("Reading {name} …", { name: file.name }) });
  try {
    const texts = (await isArchive(file)) ? await conversationsOf(file) : [await file.text()];
    const chats = texts.flatMap(chatsOf);
    const there = new Map((await database.listChats()).map((info) => [info.id, info]));
    const isThere = (/** @type {database.ChatInfo} */ { id, updated }) => there.get(id)?.updated === updated;
    const added = chats
      .filter(({ info, messages }) => messages.length && !isThere(info))
      .map(({ info, messages }) => ({
        info: there.has(info.id) ? { ...info, id: crypto.randomUUID() } : info,
        messages,
      }));
    await database.saveChats(added);
    const skipped = chats.length - added.length;
    const more = skipped ? t("{n} chats were empty or there already.", { n: skipped }) : "";
    notify({ key: "imported", text: t("{n} chats imported.", { n: added.length }), more, seconds: 10 });
  } finally {
    dismiss("transfer");
  }
}

/** @param {import("../../texts.js").Text} text @param {unknown} error */
function failed(text, error) {
  const message = error instanceof Error ? error.message : String(error);
  notify({ key: `${text}`, text, more: sentences(message, t("Your chats are as they were.")), kind: "error" });
}
