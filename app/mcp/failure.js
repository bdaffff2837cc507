/** What went wrong with a server of the Model Context Protocol. */
import { OAuthClientFlowError, SdkError, UnauthorizedError } from "@modelcontextprotocol/client";

const UNREACHABLE =
  /fetch failed|Failed to fetch|NetworkError|Load failed|CONNECTION_|socket closed|connection closed/i; // of Node and each browser

const MOST = 300; // characters of what a server says

/**
 * An error's body in OpenAI's shape.
 * @param {any} error of the official client @param {string} host the server's @param {boolean} [aborted]
 * @returns {import("../sdk/error.js").ErrorBody}
 */
export function failure(error, host, aborted) {
  const body = (/** @type {string} */ code, /** @type {string} */ message, type = "server_error") => ({
    message,
    type,
    param: null,
    code,
  });
  if (aborted) return body("aborted", "The request was aborted.", "invalid_request_error");
  const status = error?.data?.status;
  if (error instanceof UnauthorizedError || status === 401 || status === 403)
    return body("mcp_unauthorized", `The MCP server at ${host} needs a valid token.`, "authentication_error");
  if (error instanceof OAuthClientFlowError)
    return body(
      "mcp_unauthorized",
      `The MCP server at ${host} needs a valid token, and signing in to it failed: ${error.message.slice(0, MOST)}`,
      "authentication_error",
    );
  if (error instanceof SdkError && error.code === "REQUEST_TIMEOUT")
    return body("mcp_timeout", `The MCP server at ${host} did not answer in time.`);
  const said = error?.message ?? String(error);
  if (status === undefined && UNREACHABLE.test(`${said} ${error?.code} ${error?.cause?.message ?? ""}`))
    return body(
      "mcp_unreachable",
      `The MCP server at ${host} is not running, or its CORS headers do not allow this page.`,
    );
  return body("mcp_error", `The MCP server at ${host} failed: ${said.slice(0, MOST)}`);
}
