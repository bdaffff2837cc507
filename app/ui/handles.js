/**
 * Files of this computer that a later visit opens again (File System Access): the browser stores a handle to each, not its
 * bytes. It may ask the user once more whether the page may read them.
 */
import { openDB } from "idb";
import { t } from "../language/phrase.js";
import { nameOf } from "./address.js";

/** @typedef {import("./engine.js").Choice} Choice */
/** @typedef {FileSystemFileHandle & { queryPermission?: (options: { mode: "read" }) => Promise<PermissionState>, requestPermission?: (options: { mode: "read" }) => Promise<PermissionState> }} Handle */

const PREFIX = "file:"; // begins `keep` of a choice whose files are remembered
const ACCEPT = { "application/octet-stream": [".gguf"] };

const opened = () => openDB("wisp-files", 1, { upgrade: (db) => void db.createObjectStore("handles") });

/** Whether this browser can remember files. */
export const canRemember = "showOpenFilePicker" in globalThis;

/** Whether a choice's files are remembered. @param {Choice["keep"]} keep @returns {keep is string} */
export const isRemembered = (keep) => typeof keep === "string" && keep.startsWith(PREFIX);

/** Has the user choose the files of a model, and remembers them. @returns {Promise<Choice | null>} null if the user chose none */
export async function chooseFiles() {
  const pick = /** @type {any} */ (globalThis).showOpenFilePicker;
  const types = [{ description: `${t("GGUF models")}`, accept: ACCEPT }];
  /** @type {Handle[]} */
  const handles = await pick({ multiple: true, types, id: "models" }).catch(() => []);
  return handles.length ? handleChoice(handles) : null;
}

/** Remembers the files of a model. @param {Handle[]} handles one at least @returns {Promise<Choice>} */
export async function handleChoice(handles) {
  handles.sort((a, b) => a.name.localeCompare(b.name));
  const name = nameOf(handles[0].name);
  const keep = PREFIX + name;
  await (await opened()).put("handles", handles, keep);
  return { model: await filesOf(handles), name, keep };
}

/**
 * The files of a choice that an earlier visit remembered. Rejects if they were moved.
 * @param {string} keep @param {boolean} [ask] whether the user may be asked; only in answer to a click
 * @returns {Promise<File | File[] | null>} null: the user must allow it
 */
export async function rememberedFiles(keep, ask = false) {
  /** @type {Handle[]} */
  const handles = (await (await opened()).get("handles", keep)) ?? [];
  if (!handles.length) throw new Error(`${t("The file is not known any more.")}`);
  for (const handle of handles) {
    const mode = { mode: /** @type {const} */ ("read") };
    const state = await (ask ? handle.requestPermission?.(mode) : handle.queryPermission?.(mode));
    if ((state ?? "granted") !== "granted") return null;
  }
  return filesOf(handles);
}

/** @param {Handle[]} handles @returns {Promise<File | File[]>} */
async function filesOf(handles) {
  const files = await Promise.all(handles.map((handle) => handle.getFile()));
  return files.length > 1 ? files : files[0];
}
