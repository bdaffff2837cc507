/** The message field and its two buttons. */
import { byId } from "./dom.js";
import { isKey } from "./shortcuts.js";
import { keepUnsent, unsent } from "./unsent.js";

/**
 * @param {{ send: (text: string) => unknown, stop: () => void, hasMedia: () => boolean, isPrivate: () => boolean }} actions
 *   `hasMedia`: a question may have no text
 */
export function startComposer({ send, stop, hasMedia, isPrivate }) {
  const field = /** @type {HTMLTextAreaElement} */ (byId("prompt"));
  const sendButton = /** @type {HTMLButtonElement} */ (byId("send"));
  const stopButton = /** @type {HTMLButtonElement} */ (byId("stop"));
  const form = /** @type {HTMLFormElement} */ (byId("composer"));
  let busy = false;

  const fit = () => {
    field.style.height = "auto";
    field.style.height = `${Math.min(field.scrollHeight, 200)}px`;
    sendButton.disabled = !field.value.trim() && !hasMedia();
  };
  const store = () => keepUnsent(field.value, isPrivate());
  const changed = () => {
    fit();
    store();
  };
  field.addEventListener("input", changed);
  field.addEventListener("keydown", (event) => {
    if (!isKey("send", event) || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if ((!text && !hasMedia()) || busy) return;
    field.value = "";
    changed();
    send(text);
  });
  stopButton.onclick = stop;
  field.value ||= unsent(); // what the user has written while the page started comes first
  fit();

  return {
    /** @param {boolean} now an answer is being made */
    setBusy(now) {
      busy = now;
      const moveFocus = document.activeElement === (now ? sendButton : stopButton);
      sendButton.hidden = now;
      stopButton.hidden = !now;
      if (moveFocus) (now ? stopButton : field).focus();
    },
    /** Looks again whether there is something to send. */
    check: fit,
    /** Stores what is written, or deletes it in a private chat. */
    store,
    focus: () => field.focus(),
    /** Adds a text after what is there. @param {string} text */
    add(text) {
      field.value = field.value.trim() ? `${field.value}\n\n${text}` : text;
      changed();
      field.focus();
    },
  };
}
