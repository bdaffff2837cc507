/**
 * What the system opens the installed page with: files, shared texts and files, and the icon's shortcuts
 * (manifest.webmanifest). The user is asked before a model is loaded or a shared file is added: any site can share.
 */
import { listed, t } from "../language/phrase.js";
import { openSharedForms, sharedFormUrl } from "../shared_forms.js";
import { handleChoice } from "./handles.js";
import { choiceOfFiles } from "./models.js";
import { notify } from "./notices.js";

/**
 * @typedef {import("./engine.js").Choice} Choice
 * @typedef {{ files?: readonly FileSystemFileHandle[], targetURL?: string | null }} Launch
 *
 * @typedef {object} Actions
 * @property {Record<string, () => void>} shortcuts by the name in the address
 * @property {(text: string) => void} write into the message field
 * @property {(file: File) => boolean} isMedium @property {(files: File[]) => void} addMedia to the next question
 * @property {(file: File) => boolean} isDocument
 * @property {(files: File[]) => void} addDocuments
 * @property {(choice: Choice) => void} load
 */

/** @param {Actions} actions */
export async function startLaunch(actions) {
  const opened = location.href;
  const { searchParams } = new URL(opened);
  if (location.search) history.replaceState(null, "", location.pathname + location.hash); // not repeated by a reload
  follow(searchParams, actions);
  const shared = searchParams.get("shared");
  if (shared) await takeShared(shared, actions);
  let first = true;
  const queue = /** @type {any} */ (globalThis).launchQueue; // Chromium's; elsewhere each launch opens a page
  queue?.setConsumer(async (/** @type {Launch} */ { files = [], targetURL }) => {
    const followed = first && targetURL === opened; // the queue begins with the launch that opened this page
    if (targetURL && !followed) follow(new URL(targetURL).searchParams, actions);
    first = false;
    await takeHandles([...files], actions);
  });
}

/** Runs the shortcuts that an address names. @param {URLSearchParams} searchParams @param {Actions} actions */
function follow(searchParams, { shortcuts }) {
  for (const [name, run] of Object.entries(shortcuts)) if (searchParams.has(name)) run();
}

/** Files that the user opened with Wisp. @param {FileSystemFileHandle[]} handles @param {Actions} actions */
async function takeHandles(handles, { isDocument, addDocuments, load }) {
  const files = await Promise.all(handles.map((handle) => handle.getFile()));
  const documents = files.filter(isDocument);
  const models = handles.filter((_, index) => !isDocument(files[index]));
  if (documents.length) addDocuments(documents);
  if (models.length) offerModel(await handleChoice(models), load);
}

/** What was shared with Wisp. @param {string} id @param {Actions} actions */
async function takeShared(id, { write, isMedium, addMedia, isDocument, addDocuments, load }) {
  const scope = new URL("./", document.baseURI).href;
  const url = sharedFormUrl(id, scope);
  const cache = await openSharedForms(scope).catch(() => null);
  const stored = await cache?.match(url).catch(() => null);
  if (!cache || !stored) {
    const more = t("Share it again. If that does not help, the storage of this browser is full.");
    return notify({ key: "shared", text: t("What was shared with Wisp did not arrive."), more, kind: "error" });
  }
  const form = await stored.formData().catch(() => null); // any site may post what is no form
  await cache.delete(url);
  if (!form) return;
  const texts = ["title", "text", "url"].map((name) => String(form.get(name) ?? "").trim());
  const text = texts.filter((one, index) => one && texts.indexOf(one) === index).join("\n");
  if (text) write(text);
  const shared = form.getAll("files").filter((file) => file instanceof File);
  addMedia(shared.filter(isMedium));
  const files = shared.filter((file) => !isMedium(file));
  const documents = files.filter(isDocument);
  const model = choiceOfFiles(files.filter((file) => !isDocument(file)));
  if (documents.length) {
    const names = listed(documents.map(({ name }) => name));
    const actions = [{ label: t("Add"), run: () => addDocuments(documents) }];
    notify({ key: "shared", text: t("{names} were shared with Wisp.", { names, n: documents.length }), actions });
  }
  if (model) offerModel(model, load);
}

/** @param {Choice} choice @param {Actions["load"]} load */
function offerModel(choice, load) {
  notify({
    key: "opened",
    text: t("{name} was opened with Wisp.", { name: choice.name }),
    more: t("Loading it replaces the model that answers now."),
    actions: [{ label: t("Load"), run: () => load(choice) }],
  });
}
