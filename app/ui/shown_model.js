/** Tells which model answers, where it runs, and whether one is being loaded. */
import { t } from "../language/phrase.js";
import { byId } from "./dom.js";
import { icon } from "./icons.js";
import { say, show } from "./texts.js";

/** @param {Pick<import("./engine.js").Engine, "loaded" | "isLoading">} engine */
export function tellModel({ loaded, isLoading }) {
  say(byId("model-name"), loaded?.name ?? (isLoading ? t("Loading…") : t("No model")));
  byId("model-dot").className = isLoading ? "dot busy" : loaded ? "dot ready" : "dot";
  const badge = byId("model-badge");
  badge.hidden = !loaded;
  const upstream = loaded?.choice.upstream;
  const backend = loaded?.stats.backend === "webgpu" ? "WebGPU" : "CPU";
  badge.replaceChildren(...(upstream ? [icon("away"), upstream] : [backend]));
  badge.className = upstream ? "badge away" : backend === "WebGPU" ? "badge" : "badge slow";
  show(badge, "title", upstream ? t("Leaves this computer: goes to {server}", { server: upstream }) : "");
  const away = t("What you write in this chat leaves this computer: it goes to {server}.", { server: upstream ?? "" });
  const here = t("A language model, here in this tab. Nothing you write leaves this computer.");
  say(byId("welcome-text"), upstream ? away : here);
}
