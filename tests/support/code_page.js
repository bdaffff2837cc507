/** In a page: the code tools, without an engine. */
export { open } from "./answer_page.js";
export { CallCard } from "../../app/ui/answer/call_card.js";
export { codeTools } from "../../app/tools/code.js";
export { fetchParts, Sandbox } from "../../app/tools/sandbox/sandbox.js";
export { allowPackages, wheelsOf } from "../../app/tools/packages.js";
