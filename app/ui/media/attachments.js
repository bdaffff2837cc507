/** The pictures and sounds of the next question: chosen, pasted, photographed or recorded, with the tokens that they take. */
import { joined, t } from "../../language/phrase.js";
import { explain } from "../advice.js";
import { partOf, sensesOf, takes, withMedia } from "../chats/media_parts.js";
import { openMenu } from "../chats/menu.js";
import { choiceOf } from "../chats/other_model.js";
import { byId, h, iconButton, whenIdle } from "../dom.js";
import { bytes, pictures, tokens } from "../format.js";
import { announce, dismiss, notify, tellUnusable } from "../notices.js";
import { say } from "../texts.js";
import { startCamera } from "./camera.js";
import { fileMedium, isMedium, mediumOf } from "./medium.js";
import { startRecorder } from "./recorder.js";
import { hasUnsentMedia, keepUnsentMedia, unsentMedia } from "./unsent.js";
import { soundOf } from "./video_sound.js";
import { thumbnail } from "./views.js";

/**
 * @typedef {import("../chats/database.js").Medium} Medium
 * @typedef {import("../engine.js").Engine} Engine
 *
 * @typedef {object} Actions
 * @property {() => void} changed the list has another length
 * @property {() => void} addProjector lets the user add a projector to the model
 * @property {(choice: import("../engine.js").Choice) => void} load
 * @property {() => boolean} usesTools the shown chat's answers may call tools
 * @property {() => boolean} isPrivate the shown chat is
 * @property {(files: File[]) => File[]} take adds media and documents; returns the other files
 */

/** @param {Engine} engine @param {Actions} actions */
export function startAttachments(engine, { changed, addProjector, load, usesTools, isPrivate, take }) {
  const list = byId("attachments");
  const button = byId("attach");
  const input = /** @type {HTMLInputElement} */ (byId("attach-input"));
  /** @type {Map<Medium, HTMLElement>} each with its item in the list */
  const items = new Map();

  /** @param {Medium[]} media */
  function put(...media) {
    for (const medium of media) {
      const tools = iconButton(
        "close",
        t("Remove {name}", { name: medium.name }),
        () => remove(medium),
        "attachment-remove",
      );
      const item = h("li", { class: "attachment" }, thumbnail(medium), h("small"), tools);
      items.set(medium, item);
      list.append(item);
    }
    show();
    for (const medium of media) {
      announce(t("{name} is added.", { name: medium.name }));
      state(medium);
    }
  }

  /** @param {Medium} medium */
  function remove(medium) {
    items.get(medium)?.remove();
    items.delete(medium);
    show();
    byId("prompt").focus();
  }

  function show() {
    list.hidden = !items.size;
    if (!items.size) dismiss("projector");
    store();
    changed();
  }

  /** Stores the media, or deletes those of a private chat. */
  const store = () => keepUnsentMedia([...items.keys()], isPrivate());

  /** States what a medium costs, or why the model does not take it. @param {Medium} medium */
  async function state(medium) {
    const { loaded } = engine;
    const item = items.get(medium);
    const text = item?.querySelector("small");
    if (!loaded || !item || !text) return;
    item.classList.remove("refused");
    say(text, "");
    if (medium.kind === "file") return say(text, bytes(medium.blob.size));
    const { name, choice, stats } = loaded;
    if (choice.upstream) return;
    if (!takes(sensesOf(loaded), medium.kind)) {
      item.classList.add("refused");
      say(text, t("not for this model"));
      return tellLack(name, medium.kind);
    }
    say(text, "…");
    delete medium.tokens; // of another model
    try {
      const n = await tokensOf(medium, await engine.ready(), stats.model);
      if (engine.loaded !== loaded) return;
      if (medium.kind === "video") medium.tokens = n;
      say(text, medium.frames ? joined([pictures(medium.frames.length), tokens(n)]) : tokens(n));
    } catch (error) {
      if (engine.loaded !== loaded || !items.has(medium)) return;
      item.classList.add("refused");
      say(text, t("not usable"));
      const failed = t("{name} cannot be sent.", { name: medium.name });
      notify({ key: `medium ${medium.name}`, text: failed, more: explain(error).message, kind: "error" });
    }
  }

  /** Says that a model does not take a kind of media, and what to do. @param {string} name @param {Medium["kind"]} kind */
  async function tellLack(name, kind) {
    const models = kind === "audio" ? [] : await engine.models();
    const [seeing] = models.filter(({ projector }) => projector).flatMap(choiceOf);
    if (engine.loaded?.name !== name || !items.size) return;
    const text =
      kind === "audio" ? t("{name} does not hear sound.", { name }) : t("{name} does not see pictures.", { name });
    const more = t("If it was trained for them, add its projector, a second file that was published with it.");
    const actions = [{ label: t("Add a projector"), run: addProjector }];
    if (seeing) actions.unshift({ label: t("Use {name}", { name: seeing.name }), run: () => load(seeing) });
    notify({ key: "projector", text, more, actions });
  }

  /** A file as media: of a video also the sound, if the model hears. @param {File} file @returns {Promise<Medium[]>} */
  async function mediaOf(file) {
    const medium = await mediumOf(file);
    const { loaded } = engine;
    const hears = loaded && !loaded.choice.upstream && takes(sensesOf(loaded), "audio");
    return [medium, ...(medium.kind === "video" && hears ? await soundOf(file, medium.seconds ?? 0) : [])];
  }

  /** Adds the media among files; says which were not readable. @param {File[]} files @param {boolean} [asFiles] for tools */
  async function add(files, asFiles = false) {
    for (const file of asFiles ? files : files.filter(isMedium)) {
      const key = `medium ${file.name}`;
      if (file.type.startsWith("video/")) notify({ key, text: t("Reading {name} …", { name: file.name }) });
      try {
        put(...(asFiles ? [await fileMedium(file)] : await mediaOf(file)));
        dismiss(key);
      } catch (error) {
        const text = t("{name} was not added.", { name: file.name });
        notify({ key, text, more: `${error}`, kind: "error" });
      }
    }
  }

  /** Adds files that were chosen or pasted; says which are of no use. @param {File[]} files */
  function addChosen(files) {
    for (const { name } of take(files)) tellUnusable(name);
  }

  const camera = startCamera(put);
  const recorder = startRecorder(put);
  button.onclick = () =>
    openMenu(button, [
      { label: t("Pictures, videos or sound"), icon: "file", run: () => choose(true) },
      { label: t("Take a photo"), icon: "camera", run: () => void camera.open() },
      { label: t("Record sound"), icon: "microphone", run: () => void recorder.record() },
      { label: t("Documents to ask about"), icon: "documents", run: () => byId("documents-input").click() },
      ...(usesTools() ? [{ label: t("Files for tools"), icon: "documents", run: () => choose(false) }] : []),
    ]);
  const mediaTypes = input.accept;
  const choose = (/** @type {boolean} */ media) => {
    input.accept = media ? mediaTypes : "";
    input.click();
  };
  input.addEventListener("change", () => {
    const files = [...(input.files ?? [])];
    if (input.accept) addChosen(files);
    else add(files, true);
    input.value = "";
    byId("prompt").focus();
  });
  document.addEventListener("paste", (event) => {
    if (document.querySelector("dialog[open]")) return;
    const files = [...(event.clipboardData?.files ?? [])];
    if (!files.length || (event.clipboardData && hasFormattedText(event.clipboardData))) return;
    event.preventDefault();
    addChosen(files);
  });

  const restore = async () => {
    const media = await unsentMedia();
    if (media.length) put(...media); // all at once: show() stores those that are there
  };
  if (hasUnsentMedia()) void restore();
  else whenIdle(() => void unsentMedia()); // deletes what closed tabs have left

  return {
    isMedium,
    add,
    store,
    get size() {
      return items.size;
    },
    /** Takes the media for a question. @returns {Medium[]} */
    take() {
      const media = [...items.keys()];
      items.clear();
      list.replaceChildren();
      show();
      return media;
    },
    /** Puts media of a question back that was not sent. @param {Medium[]} media */
    giveBack: (media) => put(...media),
    /** Another model answers: it may take other media, and counts others tokens. */
    check() {
      dismiss("projector");
      for (const medium of items.keys()) state(medium);
    },
  };
}

/** Whether a clipboard has formatted text: programs such as Excel add a picture of it. @param {DataTransfer} clipboard */
const hasFormattedText = (clipboard) =>
  clipboard.types.includes("text/html") && !!clipboard.getData("text/plain").trim();

/** The tokens that a medium adds to a prompt. @param {Medium} medium @param {import("../../wisp.js").Wisp} wisp @param {string} model */
async function tokensOf(medium, wisp, model) {
  const part = partOf(medium.kind, "medium:0/0");
  const count = async (/** @type {any} */ content) => {
    const request = { model, messages: [{ role: "user", content }] };
    const history = /** @type {any} */ ([{ n: 0, media: [medium] }]);
    return (await wisp.countTokens(await withMedia(request, history, false))).tokens;
  };
  const text = { type: "text", text: "." };
  return (await count([part, text])) - (await count([text]));
}
