/** The field for the address of one more file: of a projector, or of an embedding model. */
import { t } from "../language/phrase.js";
import { fileOf } from "../sdk/address.js";
import { completed, isAddress } from "./address.js";
import { byId } from "./dom.js";
import { say } from "./texts.js";

/**
 * @param {string} id of the field; what is wrong with the address is said in the element `${id}-error`
 */
export function addressField(id) {
  const field = /** @type {HTMLInputElement} */ (byId(id));
  const error = byId(`${id}-error`);
  const mark = (/** @type {boolean} */ wrong) => {
    field.setAttribute("aria-invalid", String(wrong));
    error.hidden = !wrong;
    if (wrong) say(error, t("That is no address. Write one that ends in .gguf."));
  };
  return {
    /** The file's address; null if what was typed is none, which the page then says. */
    read() {
      const address = completed(field.value.trim());
      const wrong = !isAddress(address);
      mark(wrong);
      if (!wrong) return fileOf(new URL(address, document.baseURI).href);
      field.focus();
      error.scrollIntoView({ block: "nearest" });
      return null;
    },
    /** Hides what was said. */
    clear: () => mark(false),
    focus: () => field.focus(),
  };
}
