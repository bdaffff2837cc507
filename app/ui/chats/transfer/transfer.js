/** Saves chats as files, and reads chats from files. */
import { sentences, t } from "../../../language/phrase.js";
import { byId, h } from "../../dom.js";
import { dismiss, notify } from "../../notices.js";
import * as database from "../database.js";
import { unstored } from "../unstored.js";
import { saveFile } from "../../save_file.js";
import { openMenu } from "../menu.js";
import { importFile } from "./import.js";
import { fileName, FRAME, WRITE } from "./write.js";

/** @typedef {import("./write.js").Form} Form */

const SHOWN = 100; // chats after which the progress is shown, and shown again
let saves = 0; // of this visit

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
    for (const file of files) {
      const end = await importFile(file).catch((error) =>
        failed(t("{name} was not imported.", { name: file.name }), error),
      );
      if (end === "cancelled") break;
    }
    await imported();
  });
}

/** Saves one chat. @param {string} id @param {Form} form */
export async function saveChat(id, form) {
  try {
    const info = unstored.get(id)?.info ?? (await database.readChat(id));
    if (info) await save([info], fileName(info.title, form), form);
  } catch (error) {
    failed(t("The chat was not saved."), error);
  }
}

/** @param {Form} form */
async function saveAll(form) {
  try {
    const name = `wisp-chats-${new Date().toISOString().slice(0, 10)}`;
    const held = [...unstored.values()].map(({ info }) => info);
    const stored = (await database.listChats()).filter(({ id }) => !unstored.has(id));
    await save([...held, ...stored], fileName(name, form), form);
  } catch (error) {
    failed(t("The chats were not saved."), error);
  }
}

/** @param {database.ChatInfo[]} infos @param {string} name @param {Form} form */
async function save(infos, name, form) {
  const key = `save ${++saves}`;
  let isCancelled = false;
  const cancel = { label: t("Cancel"), run: () => (isCancelled = true) };
  const [start, end, between] = FRAME[form];
  const parts = [start];
  for (const [index, info] of infos.entries()) {
    if (index % SHOWN === SHOWN - 1) {
      const text = t("Saving chats: {done} of {total}", { done: index + 1, total: infos.length });
      notify({ key, text, actions: [cancel] });
    }
    if (isCancelled) return;
    const messages = unstored.get(info.id)?.tree.all ?? (await database.readMessages(info.id));
    parts.push((index ? between : "") + (await WRITE[form]({ info, messages })));
  }
  dismiss(key);
  saveFile(name, [...parts, end]);
}

/** @param {import("../../texts.js").Text} text @param {unknown} error */
function failed(text, error) {
  const message = error instanceof Error ? error.message : String(error);
  notify({ key: `${text}`, text, more: sentences(message, t("Your chats are as they were.")), kind: "error" });
}
