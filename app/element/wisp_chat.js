/**
 * <wisp-chat>: a chat with a model, for any page of the origin that serves Wisp's files.
 *
 *   <script type="module" src="/wisp-chat.js"></script>
 *   <wisp-chat model="/model.gguf" system="Answer briefly."></wisp-chat>
 *
 * The model loads when the user first sends a message. Answers are text, never HTML. Attributes are read when they are
 * needed; docs/chat-element.md lists them with the parts to style, and the events.
 */

const STYLE = new CSSStyleSheet(); // which a policy without inline styles allows
STYLE.replaceSync(`
  :host { display: grid; grid-template-rows: 1fr auto auto; gap: 0.5rem; height: 24rem; font: inherit; }
  [part="log"] { overflow-y: auto; overflow-wrap: anywhere; white-space: pre-wrap; }
  [part~="message"] { margin: 0 0 0.75rem; padding: 0.5rem 0.75rem; border-radius: 0.5rem; }
  [part~="user"] { background: color-mix(in srgb, currentColor 10%, transparent); margin-inline-start: 15%; }
  [part~="error"] { border: 1px solid currentColor; }
  [part="status"] { min-height: 1.2em; font-size: 0.85em; }
  form { display: flex; gap: 0.5rem; }
  textarea { flex: 1; resize: none; font: inherit; padding: 0.5rem; }
  button { font: inherit; padding: 0 1rem; }
`);

/** @typedef {import("../wisp.js").Wisp} Wisp */

/** @template {keyof HTMLElementTagNameMap} T @param {T} tag @param {Record<string, string>} attributes @param {(Node | string)[]} children */
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export class WispChat extends HTMLElement {
  /** @type {Promise<{ engine: Wisp, model: string }> | null} the engine, and the model's name in requests */
  #engine = null;
  /** @type {{ role: string, content: string }[]} */
  #messages = [];
  /** @type {AbortController | null} of the answer under way */
  #answering = null;
  #log = make("div", { part: "log", role: "log", "aria-live": "polite", tabindex: "0" });
  #status = make("div", { part: "status", role: "status" });
  #input = make("textarea", { part: "input", rows: "2" });
  #button = make("button", { part: "button" });

  constructor() {
    super();
    const form = make("form", { part: "form" }, this.#input, this.#button);
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [STYLE];
    root.append(this.#log, this.#status, form);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.#answering) this.stop();
      else this.#sendInput();
    });
    this.#input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!this.#answering) this.#sendInput();
    });
  }

  connectedCallback() {
    this.#log.setAttribute("aria-label", this.#text("log-label", "Chat"));
    this.#input.setAttribute("aria-label", this.#text("placeholder", "Message"));
    this.#input.placeholder = this.#text("placeholder", "Message");
    this.#showState();
  }

  disconnectedCallback() {
    this.stop();
  }

  /** The conversation so far, in OpenAI's shape. */
  get messages() {
    return structuredClone(this.#messages);
  }

  /** Ends the answer under way. */
  stop() {
    this.#answering?.abort();
  }

  /**
   * Sends a message, and resolves to the answer once it has ended; to "" where it was stopped before it began. Rejects
   * where the model does not load or answer. Without an answer the message is not part of the conversation.
   * @param {string} text @returns {Promise<string>}
   */
  async send(text) {
    if (this.#answering) throw new DOMException("An answer is under way.", "InvalidStateError");
    const answering = (this.#answering = new AbortController());
    this.#messages.push({ role: "user", content: text });
    const question = this.#show("user", text);
    this.#showState();
    const answer = this.#show("assistant", "");
    try {
      const { engine, model } = await (this.#engine ??= this.#load(answering.signal));
      const system = this.getAttribute("system");
      const messages = [...(system ? [{ role: "system", content: system }] : []), ...this.#messages];
      const temperature = this.hasAttribute("temperature") ? Number(this.getAttribute("temperature")) : undefined;
      const request = { model, messages, temperature, truncation: /** @type {const} */ ("auto") };
      const { signal } = answering;
      for await (const piece of this.hasAttribute("page-tools")
        ? this.#withTools(engine, request, signal)
        : this.#streamed(engine, request, signal)) {
        answer.append(piece);
        this.#log.scrollTop = this.#log.scrollHeight;
      }
      const content = answer.textContent ?? "";
      if (!content) answering.signal.throwIfAborted();
      this.#messages.push({ role: "assistant", content });
      this.dispatchEvent(new CustomEvent("answer", { detail: { content }, bubbles: true, composed: true }));
      return content;
    } catch (/** @type {any} */ error) {
      this.#messages.pop();
      answer.remove();
      this.#input.value ||= text;
      if (answering.signal.aborted) {
        question.remove();
        return "";
      }
      this.#show("error", error.message);
      throw error;
    } finally {
      this.#answering = null;
      this.#showState();
    }
  }

  /** @param {Wisp} engine @param {any} request @param {AbortSignal} signal */
  async *#streamed(engine, request, signal) {
    const stream = await engine.chat.completions.create({ ...request, stream: true }, { signal });
    for await (const { choices } of stream) yield choices[0]?.delta.content ?? "";
  }

  /** An answer that may call the page's tools. The event "call" lets the page refuse. @param {Wisp} engine @param {any} request @param {AbortSignal} signal */
  async *#withTools(engine, request, signal) {
    const tools = (await engine.agents.pageTools()).map((tool) => ({
      ...tool,
      run: (/** @type {Record<string, any>} */ args, /** @type {{ signal?: AbortSignal | null }} */ options) => {
        const detail = { name: tool.function.name, arguments: args };
        if (!this.dispatchEvent(new CustomEvent("call", { detail, cancelable: true, bubbles: true, composed: true })))
          throw new Error("The page does not allow this call.");
        return tool.run(args, options);
      },
    }));
    if (!tools.length) return yield* this.#streamed(engine, request, signal);
    const { message } = await engine.agents.run({ ...request, tools, signal });
    yield message.content ?? "";
  }

  #sendInput() {
    const text = this.#input.value.trim();
    if (!text) return;
    this.#input.value = "";
    this.send(text).catch(() => {}); // the log shows it
  }

  /** @param {AbortSignal} signal */
  async #load(signal) {
    try {
      const { Wisp } = await import(new URL("wisp.js", import.meta.url).href);
      const engine = await Wisp.create();
      const model = this.getAttribute("model");
      const contextLength = Number(this.getAttribute("context-length")) || undefined;
      const loaded = await engine.load(
        { ...(model && { model }), contextLength, default: false },
        {
          signal,
          onProgress: (/** @type {{ loaded: number, total: number }} */ progress) => this.#showProgress(progress),
        },
      );
      return { engine, model: loaded.model };
    } catch (error) {
      this.#engine = null; // the next message tries again
      throw error;
    } finally {
      this.#status.textContent = "";
    }
  }

  /** @param {{ loaded: number, total: number }} progress */
  #showProgress({ loaded, total }) {
    const percent = total ? ` ${Math.floor((100 * loaded) / total)} %` : "";
    this.#status.textContent = this.#text("loading-label", "Loading the model ...") + percent;
  }

  /** @param {"user" | "assistant" | "error"} kind @param {string} text */
  #show(kind, text) {
    const message = make("p", { part: `message ${kind}` }, text);
    this.#log.append(message);
    this.#log.scrollTop = this.#log.scrollHeight;
    return message;
  }

  #showState() {
    this.#button.textContent = this.#answering ? this.#text("stop-label", "Stop") : this.#text("send-label", "Send");
  }

  /** @param {string} name of an attribute @param {string} otherwise */
  #text(name, otherwise) {
    return this.getAttribute(name) ?? otherwise;
  }
}

if (!customElements.get("wisp-chat")) customElements.define("wisp-chat", WispChat);
