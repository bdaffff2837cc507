/** The download queue in the model dialog: progress, pause, resume, order and how many run at once. */
import { joined, t } from "../language/phrase.js";
import { byId, h, iconButton } from "./dom.js";
import { bytes, duration, speed as speedOf } from "./format.js";
import { isProjector } from "../hub/files.js";
import { LongList } from "./long_list.js";
import { rememberProjector } from "./media/known_projectors.js";
import { announce, notify } from "./notices.js";
import { say } from "./texts.js";

/**
 * @typedef {import("../sdk/types.d.ts").QueuedDownload} QueuedDownload
 * @typedef {import("./engine.js").Choice} Choice
 */

/**
 * @param {object} actions
 * @param {() => Promise<import("../wisp.js").Wisp>} actions.wisp
 * @param {(choice: Choice) => void} actions.choose
 * @param {(() => void) | null} actions.openFile opens a file of this computer, which stays where it is
 */
export function startDownloads({ wisp, choose, openFile }) {
  const list = new LongList(byId("downloads-list"));
  const limit = /** @type {HTMLSelectElement} */ (byId("downloads-limit"));
  /** @type {Map<string, (download: QueuedDownload) => void>} changes the row of each, in place: a focused button stays */
  const updates = new Map();
  /** @type {Map<string, string>} the last state of each */
  const states = new Map();
  /** @type {Promise<import("../wisp.js").Wisp["downloads"]> | null} */
  let watching = null;

  /** The queue, whose changes are shown from now on. */
  const queue = () =>
    (watching ??= wisp().then(async ({ downloads, models }) => {
      models.onUpdate(({ model, url }) => offer(models, model, url));
      downloads.onChange(show);
      show(await downloads.list(), await downloads.getLimit());
      return downloads;
    }));
  const run = (/** @type {(downloads: import("../wisp.js").Wisp["downloads"]) => Promise<unknown>} */ action) =>
    void queue()
      .then(action)
      .catch((error) => notify({ key: "downloads", text: error.message, kind: "error" }));

  /** @param {import("../wisp.js").Wisp["models"]} models @param {string} model @param {string} url */
  function offer(models, model, url) {
    const key = `update ${url}`;
    const update = async () => {
      notify({ key, text: t("{name} is being updated …", { name: model }) });
      try {
        await models.update(url);
        const run = () => choose({ model: url, name: model, keep: url });
        const text = t("{name} is updated.", { name: model });
        notify({ key, text, actions: [{ label: t("Load it"), run }] });
      } catch (/** @type {any} */ error) {
        const text = t("{name} was not updated.", { name: model });
        notify({ key, text, more: error.message, kind: "error" });
      }
    };
    const actions = [{ label: t("Update"), run: () => void update() }];
    notify({ key, text: t("There is a newer version of {name}.", { name: model }), actions });
  }

  /** @param {QueuedDownload[]} downloads @param {number} atOnce set here, in another tab or on an earlier visit */
  function show(downloads, atOnce) {
    byId("downloads").hidden = downloads.length === 0;
    limit.value = `${atOnce}`;
    const ids = new Set(downloads.map(({ id }) => id));
    for (const id of states.keys())
      if (!ids.has(id)) {
        updates.delete(id);
        states.delete(id);
      }
    list.show(downloads.map((download) => ({ key: download.id, draw: () => itemOf(download) })));
    for (const download of downloads) {
      updates.get(download.id)?.(download);
      tell(download);
    }
  }

  /** @param {QueuedDownload} download */
  function tell(download) {
    const { id, model, state, error } = download;
    const before = states.get(id);
    states.set(id, state);
    if (before === undefined || before === state) return;
    const key = `download ${id}`;
    if (state === "done") {
      const actions = [{ label: t("Run"), run: () => choose(choiceOf(download)) }];
      notify({ key, text: t("{name} is stored.", { name: model }), actions });
    }
    if (state === "failed") {
      const unstored = ["quota_exceeded", "storage_failed"].includes(error?.code ?? "");
      const actions = unstored ? [{ label: t("Run without storing"), run: () => choose(choiceOf(download)) }] : [];
      if (unstored && openFile) actions.push({ label: t("Open a file instead"), run: openFile });
      const text = t("{name} was not stored.", { name: model });
      notify({ key, text, more: error?.message, kind: "error", actions });
    }
  }

  /** @param {QueuedDownload} download */
  function itemOf(download) {
    const { id, model } = download;
    const about = h("small", {});
    const bar = h("progress", { max: 1, "aria-label": t("Download of {name}", { name: model }) });
    const buttons = h("div", { class: "download-actions" });
    const item = h("li", {}, h("div", {}, h("span", {}, model), bar, about), buttons);
    let shown = "";
    /** @param {QueuedDownload} download */
    const update = (download) => {
      const { state, loaded, total } = download;
      say(about, textOf(download));
      bar.value = total ? Math.min(1, loaded / total) : 0;
      bar.hidden = state === "done";
      if (shown === state) return; // else a focused button would be replaced
      shown = state;
      buttons.replaceChildren(...actionsOf(download));
    };
    /** @param {QueuedDownload} download */
    const actionsOf = (download) => {
      const { state } = download;
      const away = iconButton("close", t("Remove {name} from the queue", { name: model }), () =>
        run((queue) => queue.remove(id)),
      );
      if (state === "done" && isProjector(download.urls[0])) return [away];
      if (state === "done") {
        const use = h(
          "button",
          { type: "button", class: "text-button", on: { click: () => choose(choiceOf(download)) } },
          t("Run"),
        );
        return [use, away];
      }
      if (state === "loading") return [away];
      const waits = state === "paused" || state === "failed";
      const name = { name: model };
      const first = iconButton("first", t("Download {name} first", name), () => run((queue) => queue.move(id, 0)));
      const turn = waits
        ? iconButton("again", t("Resume the download of {name}", name), () => run((queue) => queue.resume(id)))
        : iconButton("pause", t("Pause the download of {name}", name), () => run((queue) => queue.pause(id)));
      return [...(state === "queued" ? [first] : []), turn, away];
    };
    updates.set(id, update);
    update(download);
    return item;
  }

  limit.addEventListener("change", () => run((queue) => queue.setLimit(Number(limit.value))));
  addEventListener("online", () => {
    for (const [id, state] of states) if (state === "failed") run((queue) => queue.resume(id));
  });

  return {
    /** Continues what an earlier visit has left. */
    resume: () => run(() => Promise.resolve()),
    /** @param {Choice} choice a model at addresses */
    add({ model, sha256, name, foundProjector }) {
      const urls = /** @type {string | string[]} */ (model);
      run((queue) => queue.add({ model: urls, name, sha256 }));
      if (foundProjector) {
        rememberProjector(urls, foundProjector);
        run((queue) => queue.add({ model: foundProjector, name: `${name} (mmproj)` }));
      }
      announce(t("{name} is in the download queue.", { name }));
    },
  };
}

/** @param {QueuedDownload} download @returns {Choice} */
function choiceOf({ urls, model: name }) {
  const model = urls.length > 1 ? urls : urls[0];
  return { model, name, keep: model };
}

const WAITING = { queued: t("waits"), paused: t("paused"), loading: t("loading") };

/** @param {QueuedDownload} download */
function textOf({ state, loaded, total, speed, seconds_left, error }) {
  const amount = total ? t("{part} of {whole}", { part: bytes(loaded), whole: bytes(total) }) : null;
  if (state === "done") return joined([bytes(total), t("stored")]);
  if (state === "failed") return error?.message ?? t("failed");
  if (state !== "running") return joined([amount, WAITING[state]]);
  const left = seconds_left !== null && speed > 0 && t("{time} left", { time: duration(seconds_left) });
  return joined([amount ?? t("Starting"), speed > 0 && speedOf(speed), left]);
}
