/**
 * The chats whose last write failed. They stay in memory while others are shown, so that nothing of them is lost before the
 * storage works again.
 * @type {Map<string, import("./conversation.js").Conversation>} by id
 */
export const unstored = new Map();

/** @type {Map<string, import("./database.js").ChatInfo>} entries of the list whose last write failed, by id */
export const unstoredInfos = new Map();
