// The page's list of MCP servers and its questions, for tests/e2e/test_page_mcp.py.
export { McpServers } from "../../../app/ui/mcp/servers.js";
export { askUser } from "../../../app/ui/mcp/question.js";
export { read, write } from "../../../app/text_store.js";
