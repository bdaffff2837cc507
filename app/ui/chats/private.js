/** Private chats: nothing of them is stored. The button above starts one, and a line says that it is. */
import { joined, t } from "../../language/phrase.js";
import { byId } from "../dom.js";

/** @param {(isPrivate: boolean) => void} start starts a chat */
export function startPrivate(start) {
  const button = byId("private-chat");
  button.onclick = () => start(button.getAttribute("aria-pressed") !== "true");
  return {
    /** @param {import("./database.js").ChatInfo} info of the shown chat */
    show({ private: isPrivate = false }) {
      button.setAttribute("aria-pressed", String(isPrivate));
      byId("private-mark").hidden = !isPrivate;
      document.body.classList.toggle("private", isPrivate);
      if (isPrivate) document.title = `${joined([t("Private chat"), "Wisp"])}`; // the browser's history has it
    },
  };
}
