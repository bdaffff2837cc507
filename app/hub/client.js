/**
 * Models on the Hugging Face Hub, or on a mirror with the same API. Requests go to that host only, and only when a method is called.
 * https://huggingface.co/docs/hub/api
 */
import { sentences, t } from "../language/phrase.js";
import { WispError } from "../sdk/error.js";
import { modelFiles } from "./files.js";
import { changeHub, readHub } from "./settings.js";

/**
 * @typedef {import("./files.js").ModelFile} ModelFile
 * @typedef {"trendingScore" | "downloads" | "likes" | "createdAt"} Sort
 *
 * @typedef {object} Query
 * @property {string} [search] words of the name
 * @property {Sort} [sort] the largest first; default: downloads
 * @property {string} [task] such as "text-generation"
 * @property {string} [license] such as "apache-2.0"
 * @property {number} [minParameters]
 * @property {number} [maxParameters]
 *
 * @typedef {object} Repository
 * @property {string} id OWNER/NAME
 * @property {number} downloads
 * @property {number} likes
 * @property {string | null} license
 * @property {string | null} task
 * @property {number | null} parameters
 * @property {string | null} created
 * @property {boolean} gated whether its files need the user's token
 *
 * @typedef {{ models: Repository[], next: string | null }} Page `next`: for more()
 */

const PAGE = 40;
const FIELDS = ["downloads", "likes", "tags", "pipeline_tag", "gated", "createdAt", "gguf"];

export class Hub {
  #settings;

  /** @param {import("./settings.js").Settings} settings use `Hub.open()` */
  constructor(settings) {
    this.#settings = settings;
  }

  /** The hub that is configured in this browser; default: https://huggingface.co. */
  static async open() {
    return new Hub(await readHub());
  }

  /**
   * Stores the address of a mirror, or the user's token, which is sent to that address only.
   * @param {{ baseURL?: string, token?: string }} changes
   */
  static async configure(changes) {
    return new Hub(await changeHub(changes));
  }

  get baseURL() {
    return this.#settings.baseURL;
  }

  get hasToken() {
    return this.#settings.token !== "";
  }

  /** Repositories with GGUF files. @param {Query} [query] @param {{ signal?: AbortSignal }} [options] @returns {Promise<Page>} */
  search(query = {}, options = {}) {
    const { search, sort = "downloads", task, license, minParameters, maxParameters } = query;
    const fields = new URLSearchParams([
      ["filter", "gguf"],
      ["sort", sort],
      ["direction", "-1"],
      ["limit", String(PAGE)],
      ...FIELDS.map((field) => ["expand", field]),
    ]);
    if (search) fields.set("search", search);
    if (task) fields.set("pipeline_tag", task);
    if (license) fields.append("filter", `license:${license}`);
    const limits = [minParameters && `min:${minParameters}`, maxParameters && `max:${maxParameters}`].filter(Boolean);
    if (limits.length) fields.set("num_parameters", limits.join(","));
    return this.more(String(fields), options);
  }

  /** The next results of a search. @param {string} next of the page before @param {{ signal?: AbortSignal }} [options] @returns {Promise<Page>} */
  async more(next, { signal } = {}) {
    const response = await this.#request(`api/models?${next}`, signal);
    const link = response.headers.get("link")?.match(/<([^>]*)>\s*;\s*rel="next"/)?.[1];
    const found = await this.#json(response);
    if (!Array.isArray(found)) throw this.#noAnswer();
    // A mirror may name the original host: only the query counts.
    return {
      models: found.filter((model) => typeof model?.id === "string").map(repository),
      next: link?.split("?")[1] ?? null,
    };
  }

  /** A repository and its models. @param {string} id @param {{ signal?: AbortSignal }} [options] @returns {Promise<Repository & { files: ModelFile[] }>} */
  async files(id, { signal } = {}) {
    const path = id.split("/").map(encodeURIComponent).join("/");
    const found = await this.#json(await this.#request(`api/models/${path}?blobs=true`, signal));
    if (typeof found?.id !== "string" || !Array.isArray(found.siblings)) throw this.#noAnswer();
    const address = (/** @type {string} */ file) =>
      `${this.baseURL}/${path}/resolve/main/${file.split("/").map(encodeURIComponent).join("/")}`;
    return { ...repository(found), files: modelFiles(found.siblings, address) };
  }

  /** The page of a repository, for people. @param {string} id */
  page = (id) => `${this.baseURL}/${id}`;

  /** @param {string} path @param {AbortSignal | undefined} signal */
  async #request(path, signal) {
    const { token } = this.#settings;
    /** @type {Record<string, string>} */
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const host = { host: new URL(this.baseURL).host };
    /** @type {Response} */
    let response;
    try {
      response = await fetch(`${this.baseURL}/${path}`, { headers, signal, credentials: "omit", cache: "no-cache" });
    } catch (error) {
      if (signal?.aborted) throw WispError.aborted();
      throw failure(
        navigator.onLine
          ? t(
              "{host} does not answer, or does not allow this page to read it (CORS). Check its address and the network.",
              host,
            )
          : t("This browser is offline. Connect, and try again."),
        "network_error",
      );
    }
    if (response.ok) return response;
    const { status } = response;
    if (status === 401 || status === 403)
      throw failure(
        sentences(t("{host} refuses the request ({status}).", { ...host, status }), this.#signIn()),
        "http_error",
      );
    if (status === 404) throw failure(t("{host} has no such repository.", host), "not_found", "not_found_error");
    if (status === 429) throw failure(t("{host} allows no more requests now. Wait a minute.", host), "http_error");
    throw failure(t("{host} answered {status}. Try again later.", { ...host, status }), "http_error");
  }

  #signIn() {
    return this.hasToken
      ? t("Check your token, and accept the model's terms on its page.")
      : t("It may be gated: accept the model's terms on its page, and enter your token.");
  }

  /** @param {Response} response @returns {Promise<any>} */
  #json(response) {
    return response.json().catch(() => {
      throw this.#noAnswer();
    });
  }

  #noAnswer() {
    const { host } = new URL(this.baseURL);
    return failure(
      t("{host} does not answer like the Hugging Face Hub. Check its address.", { host }),
      "network_error",
    );
  }
}

/** @param {any} model as the API has it @returns {Repository} */
function repository({ id, downloads, likes, tags, pipeline_tag, gguf, createdAt, gated }) {
  const license = Array.isArray(tags) ? tags.find((tag) => String(tag).startsWith("license:")) : null;
  return {
    id,
    downloads: Number(downloads) || 0,
    likes: Number(likes) || 0,
    license: license ? String(license).slice("license:".length) : null,
    task: typeof pipeline_tag === "string" ? pipeline_tag : null,
    parameters: Number(gguf?.total) || null,
    created: typeof createdAt === "string" ? createdAt : null,
    gated: Boolean(gated),
  };
}

/** @param {import("../language/phrase.js").Phrase} message @param {string} code @param {string} type */
const failure = (message, code, type = "server_error") => new WispError({ message: `${message}`, type, code });
