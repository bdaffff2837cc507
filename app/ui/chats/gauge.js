/** The gauge under the message field: how much of the context the chat fills. */
import { joined, number, sentences, t } from "../../language/phrase.js";
import { byId, whenIdle } from "../dom.js";
import { say, show } from "../texts.js";

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
    show(gauge, "aria-valuetext", t("{used} of {n} tokens", { used, n: context }));
    gauge.classList.toggle("full", part > 0.9);
    byId("gauge-bar").style.width = `${Math.round(100 * part)}%`;
    say(byId("gauge-text"), joined([short(used), short(context)], " / "));
    const unsent = dropped && t("{n} older questions with their answers are not sent.", { n: dropped });
    const tip = sentences(
      t("This chat fills {n} tokens of the {context} that the context holds.", { n: used, context }),
      unsent || t("When it is full, the oldest questions are left out."),
      t("Settings has the context length."),
    );
    say(byId("gauge-tip"), tip);
  };

  return {
    /** Shows the usage again, once the page is idle. */
    update() {
      const mine = ++shown;
      whenIdle(async () => {
        const found = mine === shown ? await usage().catch(() => null) : null;
        if (mine === shown) draw(found);
      });
    },
  };
}

/** @param {number} tokens */
function short(tokens) {
  return tokens < 10_000 ? number(tokens) : t("{count}k", { count: Math.round(tokens / 1000) });
}
