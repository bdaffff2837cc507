// A program of the client of app/mcp, for the conformance suite: connects to the address in its last argument, signs in
// where it has to, and calls every tool.
import { connect } from "../../app/mcp/client.js";
import { WispError } from "../../app/sdk/error.js";

const { client_id, client_secret } = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? "{}");
const signIn = {
  redirectUrl: "http://localhost:3000/callback",
  open: async (address) => (await fetch(address, { redirect: "manual" })).headers.get("location"),
  ...(client_id && { stored: { client: { client_id, client_secret } } }),
};
const server = await connect(new URL(process.argv.at(-1)), { onInput: () => ({}), signIn }, WispError);
for (const tool of server.tools) {
  const given = Object.fromEntries((tool.function.parameters.required ?? []).map((name, i) => [name, i + 1]));
  await tool.run(given, {}).catch(() => {});
}
await server.close();
