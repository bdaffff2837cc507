/**
 * Signs the user in to a server by OAuth: its authorization server asks the user and sends the answer back by a redirect.
 * The official client discovers the authorization server, registers Wisp there and checks the answer's issuer.
 * https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
 */

/**
 * @typedef {import("../sdk/types.d.ts").McpSignIn} McpSignIn
 * @typedef {import("../sdk/types.d.ts").McpGrant} McpGrant
 * @typedef {import("@modelcontextprotocol/client").OAuthClientProvider} OAuthClientProvider
 */

/** @implements {OAuthClientProvider} */
export class SignIn {
  /** @type {McpGrant} */
  #grant;
  #options;
  #verifier = "";
  #state = "";
  /** @type {any} */
  #discovered;
  /** @type {Promise<string> | null} the address at which the user comes back */
  #back = null;

  /** @param {McpSignIn} options */
  constructor(options) {
    this.#options = options;
    this.#grant = { ...options.stored };
  }

  get redirectUrl() {
    return this.#options.redirectUrl;
  }

  get clientMetadata() {
    return {
      client_name: "Wisp",
      redirect_uris: [this.redirectUrl],
      grant_types: ["authorization_code", "refresh_token"],
      response_types: ["code"],
      token_endpoint_auth_method: "none",
    };
  }

  state() {
    return (this.#state = crypto.randomUUID());
  }

  clientInformation() {
    return this.#grant.client;
  }

  /** @param {any} client */
  saveClientInformation(client) {
    return this.#store({ client });
  }

  tokens() {
    return this.#grant.tokens;
  }

  /** @param {any} tokens */
  saveTokens(tokens) {
    return this.#store({ tokens });
  }

  /** @param {string} verifier */
  saveCodeVerifier(verifier) {
    this.#verifier = verifier;
  }

  codeVerifier() {
    return this.#verifier;
  }

  /** @param {any} discovered the authorization server, to which the code that comes back belongs */
  saveDiscoveryState(discovered) {
    this.#discovered = discovered;
  }

  discoveryState() {
    return this.#discovered;
  }

  /** @param {"all" | "client" | "tokens" | "verifier" | "discovery"} what */
  invalidateCredentials(what) {
    if (what === "all" || what === "discovery") this.#discovered = undefined;
    if (what === "all" || what === "client") return this.#store({ client: undefined, tokens: undefined });
    if (what === "tokens") return this.#store({ tokens: undefined });
  }

  /** @param {URL} url of the authorization server */
  redirectToAuthorization(url) {
    this.#back = this.#options.open(url);
    this.#back.catch(() => {}); // answer() reports it
  }

  /** What the user has come back with; null: the user was not asked. @returns {Promise<URLSearchParams | null>} */
  async answer() {
    const back = this.#back;
    this.#back = null;
    if (!back) return null;
    const params = new URL(await back).searchParams;
    if (params.get("state") !== this.#state)
      throw new Error("The answer of the authorization server is for another request.");
    const refused = params.get("error");
    if (refused) throw new Error(`The authorization server refuses: ${params.get("error_description") ?? refused}`);
    return params;
  }

  /** @param {McpGrant} change */
  async #store(change) {
    this.#grant = { ...this.#grant, ...change };
    await this.#options.onStored?.(this.#grant);
  }
}
