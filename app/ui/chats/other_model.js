/** Answers a question again with another model, which is loaded first. */
import { t } from "../../language/phrase.js";
import { notify } from "../notices.js";
import { storedModels } from "../stored_models.js";
import { openMenu } from "./menu.js";

/**
 * @typedef {import("../engine.js").Choice} Choice
 * @typedef {import("./database.js").Message} Message
 *
 * @param {HTMLElement} button @param {Message} message the answer
 * @param {object} parts
 * @param {() => Promise<Record<string, any>[]>} parts.list the models of the catalog and of upstreams
 * @param {(choice: Choice) => Promise<boolean>} parts.load
 * @param {(message: Message) => void} parts.regenerate
 * @param {() => void} parts.more opens the model dialog
 */
export async function chooseOther(button, message, { list, load, regenerate, more }) {
  const models = await list().catch(() => []);
  const entries = models.flatMap(choiceOf).map((choice) => ({
    label: choice.name,
    icon: choice.upstream ? "away" : "again",
    run: async () => {
      if (await load(choice)) regenerate(message);
      else
        notify({
          key: "other",
          text: t("{name} does not answer.", { name: choice.name }),
          more: t("The answer stays as it is."),
        });
    },
  }));
  openMenu(button, [...entries, { label: t("Another model"), icon: "more", run: more }]);
}

/**
 * The models of the catalog, of upstreams and of this browser's storage, without the one that answers.
 * @param {import("../engine.js").Engine} engine @returns {Promise<Choice[]>}
 */
export async function otherChoices(engine) {
  const models = await engine.models().catch(() => []);
  const known = models.flatMap(choiceOf).map((choice) => ({ id: choice.model, choice }));
  const stored = storedModels(await engine.cached().catch(() => []))
    .filter(({ id }) => !known.some((other) => other.id === id))
    .map(({ id, url }) => ({ id, choice: { model: url, name: id, keep: url } }));
  const { choice, stats } = engine.loaded ?? {};
  const first = choice?.upstream ? choice.model : stats?.model;
  return [...known, ...stored].filter(({ id }) => id !== first).map((one) => one.choice);
}

/** @param {Record<string, any>} model @returns {Choice | []} */
export function choiceOf({ id, name, owned_by, size }) {
  if (owned_by !== "wisp") {
    return { model: id, name: id.slice(owned_by.length + 1), keep: id, upstream: owned_by };
  }
  return size ? { model: id, name: name ?? id, keep: id } : []; // an opened file has no address to load it from
}
