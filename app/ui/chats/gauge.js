/** The gauge under the message field: how much of the context the chat fills. */
import { byId } from "../dom.js";
import { plural } from "../format.js";

/**
 * @typedef {{ used: number, context: number, dropped: number }} Usage in tokens; `dropped`: turns that are not sent
 * @param {() => Promise<Usage | null>} usage of the shown chat
 */
export function startGauge(usage) {
  const gauge = byId("gauge");
  let shown = 0;

  const draw = (/** @type {Usage | null} */ found) => {
    gauge.hidden = !found?.used;
    if (!found) return;
    const { used, context, dropped } = found;
    const part = Math.min(1, used / context);
    gauge.setAttribute("aria-valuemax", String(context));
    gauge.setAttribute("aria-valuenow", String(Math.min(used, context)));
    gauge.setAttribute("aria-valuetext", `${used} of ${plural(context, "token")}`);
    gauge.classList.toggle("full", part > 0.9);
    byId("gauge-bar").style.width = `${Math.round(100 * part)}%`;
    byId("gauge-text").textContent = `${short(used)} / ${short(context)}`;
    const unsent = dropped && `${plural(dropped, "older question")} with their answers are not sent.`;
    byId("gauge-tip").textContent = [
      `This chat fills ${plural(used, "token")} of the ${context.toLocaleString()} that the context holds.`,
      unsent || "When it is full, the oldest questions are left out.",
      "Settings has the context length.",
    ].join(" ");
  };

  return {
    /** Shows the usage again, once the page is idle. */
    update() {
      const mine = ++shown;
      requestIdleCallback(async () => {
        const found = mine === shown ? await usage().catch(() => null) : null;
        if (mine === shown) draw(found);
      });
    },
  };
}

/** @param {number} tokens */
function short(tokens) {
  return tokens < 10_000 ? tokens.toLocaleString() : `${Math.round(tokens / 1000).toLocaleString()}k`;
}
