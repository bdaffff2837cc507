/** Which model the user is likely to choose next: the one that was looked at last, else the next larger good one. */
import { Hub } from "./client.js";
import { CHAT, CURATED } from "./curated.js";
import { best, fitBySize, likely } from "./fit.js";

const VIEWED = "wisp.hub.viewed";
const REPOSITORY = /^[\w.-]+\/[\w.-]+$/;

/** @param {string} repository OWNER/NAME that the user has opened */
export const remember = (repository) => localStorage.setItem(VIEWED, repository);

/**
 * Repositories to try, in order. One whose file is stored is not wanted again.
 * @param {string | null} viewed @param {(repository: string) => boolean} isStored @returns {string[]}
 */
export function candidates(viewed, isStored) {
  const chats = CURATED.filter(({ kind }) => kind === CHAT);
  const largest = Math.max(0, ...chats.filter((model) => isStored(model.repository)).map((model) => model.parameters));
  const larger = chats.filter(({ parameters }) => parameters > largest).sort((a, b) => a.parameters - b.parameters);
  const all = [...(viewed && REPOSITORY.test(viewed) ? [viewed] : []), ...larger.map(({ repository }) => repository)];
  return [...new Set(all)].filter((repository) => !isStored(repository));
}

/**
 * The best file for this device of the first repository with one that fits. Only headers travel.
 * @param {import("../wisp.js").Wisp} wisp @param {AbortSignal} signal
 * @returns {Promise<{ repository: string, file: import("./files.js").ModelFile } | null>}
 */
export async function nextModel(wisp, signal) {
  const hub = await Hub.open();
  const stored = (await wisp.models.cached()).filter(({ complete }) => complete).map(({ url }) => url);
  const isStored = (/** @type {string} */ id) => stored.some((url) => url.startsWith(`${hub.page(id)}/`));
  for (const repository of candidates(localStorage.getItem(VIEWED), isStored).slice(0, 2)) {
    const { files, gated } = await hub.files(repository, { signal });
    if (!files.length || (gated && !hub.hasToken)) continue;
    const first = likely(files);
    const inspected = await wisp.models.inspect(first.urls, { signal });
    const fitOf = (/** @type {import("./files.js").ModelFile} */ file) =>
      file === first ? inspected : fitBySize(inspected, file.size);
    const file = best(files, fitOf, inspected.parameters);
    if (file && fitOf(file).verdict === "fits") return { repository, file };
  }
  return null;
}
