/** Connects the parts of the page. They reach models only through wisp.js. */
import "./ui/unframed.js";
import "./ui/storage_fallback.js";
import { sentences, t } from "./language/phrase.js";
import { adviceFor, explain } from "./ui/advice.js";
import { startWords } from "./ui/answer/words.js";
import { startBridge, takeTicket } from "./ui/bridge.js";
import { startCached } from "./ui/cached.js";
import { ChatAddresses } from "./ui/chats/addresses.js";
import { startAssistants } from "./ui/chats/assistants.js";
import { Chat } from "./ui/chats/chat.js";
import { startChatList } from "./ui/chats/list.js";
import { startGauge } from "./ui/chats/gauge.js";
import { chooseOther, otherChoices } from "./ui/chats/other_model.js";
import { startPrivate } from "./ui/chats/private.js";
import { SecondModel } from "./ui/chats/second_model.js";
import { startSnippets } from "./ui/chats/snippets.js";
import { startComposer } from "./ui/composer.js";
import { startTitles } from "./ui/chats/titles.js";
import { saveChat, startTransfer } from "./ui/chats/transfer/transfer.js";
import { startDocuments } from "./ui/documents.js";
import { byId, placeIcons, whenIdle } from "./ui/dom.js";
import { Engine } from "./ui/engine.js";
import { startExamples } from "./ui/examples.js";
import { startDownloads } from "./ui/downloads.js";
import { canRemember, chooseFiles } from "./ui/handles.js";
import { startHub } from "./ui/hub.js";
import { startLanguage } from "./ui/language.js";
import { loadFirst, rememberModel } from "./ui/last_model.js";
import { startLaunch } from "./ui/launch.js";
import { Loading } from "./ui/loading.js";
import { startModels } from "./ui/models.js";
import { startMcp } from "./ui/mcp/panel.js";
import { startMonitor } from "./ui/monitor.js";
import { announce, dismiss, notify } from "./ui/notices.js";
import { startPrefetch } from "./ui/prefetch.js";
import { startQuality } from "./ui/quality.js";
import { startPwa } from "./ui/pwa.js";
import { contextLengthFor, startSettings } from "./ui/settings.js";
import { startAttachments } from "./ui/media/attachments.js";
import { rememberProjector } from "./ui/media/known_projectors.js";
import { isKey, startShortcuts } from "./ui/shortcuts.js";
import { tellModel } from "./ui/shown_model.js";
import { startSidebar } from "./ui/sidebar.js";
import { translated } from "./ui/texts.js";
import { startTheme } from "./ui/theme.js";
import { Thread } from "./ui/thread.js";
import { offeredIn, startTools } from "./ui/tools.js";
import { startUpstreams } from "./ui/upstreams.js";
import { tools } from "./tools/registry.js";

/** @typedef {import("./ui/engine.js").Choice} Choice */

const READ_NOTICE = "wisp.notice"; // a dismissed notice about this device: its text, not shown again

startLanguage(() => privateChats.show(chat.conversation.info)); // the window's title
placeIcons();
startTheme();
startShortcuts();
const loading = new Loading();

const engine = new Engine({
  loading(choice, booted) {
    dismiss("load");
    dismiss("unsuited");
    loading.start(choice.name, booted);
    announce(t("Loading {name}.", { name: choice.name }));
    showModel();
  },
  progress: (progress) => loading.update(progress),
  loaded({ name, choice, stats }) {
    if (choice.keep) {
      rememberModel(choice, name);
      rememberProjector(choice.keep, choice.projector ?? choice.foundProjector);
    }
    prefetch.loaded(choice.keep);
    announce(t("{name} is ready.", { name }));
    dismiss("backend");
    const lines = /** @type {string[]} */ (stats.notices ?? []);
    const text = sentences(...lines.map(translated));
    const gist = lines.join(" ").replace(/\d+/g, ""); // measured times differ between loads
    const onDismiss = () => localStorage.setItem(READ_NOTICE, gist);
    if (gist && gist !== localStorage.getItem(READ_NOTICE)) notify({ key: "backend", text, onDismiss });
    models.show(engine.loaded);
    tellContext(name, stats.context_length, contextLengthFor(name));
  },
  failed: loadFailed,
  unsuited(error, { name }) {
    const text = t("{name} reads text alone: it could not be loaded with its projector.", { name });
    notify({ key: "unsuited", text, more: explain(error).message });
  },
  left: (text) => upstreams.left(text),
  noticed(text) {
    monitor.note(text);
    notify({ key: "backend", text });
  },
  idle() {
    loading.end();
    showModel();
  },
});

const monitor = startMonitor(engine);
const thread = new Thread({
  regenerate: (message) => chat.regenerate(message),
  other: (message, button) => void chooseOther(button, message, otherModel),
  continue: () => chat.continue(),
  edit: (message, text) => chat.edit(message, text),
  switchVersion: (message, step) => chat.switchVersion(message, step),
  branch: (message, word, token) => chat.branchAt(message, word, token),
});
const otherModel = {
  list: () => engine.models(),
  load,
  regenerate: (/** @type {import("./ui/chats/database.js").Message} */ message) => chat.regenerate(message),
  more: () => byId("model-button").click(),
};
const documents = startDocuments(engine);
const loadBeside = (/** @type {Choice} */ choice) =>
  engine.beside(choice, { contextLength: contextLengthFor(choice.name) });
const chat = new Chat({
  engine,
  thread,
  second: new SecondModel(engine, loadBeside),
  documents,
  assistant: (chosen) => assistants.current(chosen),
  tools: offeredIn,
  changed: showChat,
  failed: answerFailed,
});
const ticket = takeTicket();
const addresses = new ChatAddresses(chat);
const isPrivate = () => chat.conversation.info.private ?? false;
const titles = startTitles({ chat, engine });
const privateChats = startPrivate(newChat);
const gauge = startGauge(() => chat.usage());
const assistants = startAssistants({
  chosen: () => chat.assistant,
  choose: (assistant) => chat.change(chat.conversation.id, { assistant }),
});
const attachments = startAttachments(engine, {
  changed: () => composer.check(),
  addProjector: () => models.addProjector(),
  load,
  usesTools: () => offeredIn(chat.conversation.info).length > 0,
  isPrivate,
  take: takeFiles,
});
const composer = startComposer({
  send: (text) => askShown(text, attachments.take()),
  stop: () => chat.stop(),
  hasMedia: () => attachments.size > 0,
  isPrivate,
});
startSnippets();
startTransfer({
  imported: () => chat.reload(),
  presets: () => /** @type {HTMLDialogElement} */ (byId("presets-dialog")).showModal(),
});
const toolsButton = startTools(chat);
const sidebar = startSidebar();
const chatList = startChatList({
  open(id, sought) {
    const opened = chat.open(id);
    sidebar.close();
    if (sought) void opened.then(() => chat.conversation.id === id && thread.find(sought));
    else composer.focus(); // now: the user may be in another field once the chat is read
  },
  change: (id, change) => chat.change(id, change),
  save: (id, form) => void saveChat(id, form),
  remove(id) {
    chat.remove(id);
    byId("new-chat").focus();
  },
});
const models = startModels({
  choose(choice) {
    load(choice);
    composer.focus();
  },
  list: () => engine.models(),
  opened: (loaded, take) => void upstreams.show(loaded, take),
  others: takeFiles,
  repository: (id) => void hub.open(id),
});
const useStored = (/** @type {Choice} */ choice) => {
  models.close();
  load(choice);
  composer.focus();
};
const openRemembered = async () => {
  const choice = await chooseFiles();
  if (choice) useStored(choice);
};
byId("remember-file").hidden = !canRemember;
byId("remember-file").onclick = openRemembered;
const downloads = startDownloads({
  wisp: () => engine.wisp(),
  choose: useStored,
  openFile: canRemember ? openRemembered : null,
});
const prefetch = startPrefetch({ wisp: () => engine.wisp(), busy: () => engine.isLoading || chat.busy });
const hub = startHub({
  wisp: () => engine.wisp(),
  choose: useStored,
  download: (choice) => downloads.add(choice),
  embed(model, name) {
    models.close();
    documents.embed(model, name);
  },
});
const upstreams = startUpstreams({
  wisp: () => engine.wisp(),
  removed: (name) => engine.loaded?.choice.upstream === name && void load(DEFAULT),
});
startQuality({
  engine,
  beside: loadBeside,
  others: async () => (await otherChoices(engine)).filter(({ upstream }) => !upstream),
});
const mcp = startMcp({
  wisp: () => engine.wisp(),
  called: (name) => upstreams.left(`${name}: tools/call`),
  changed: ({ sources }) => tools.replace("mcp-", sources),
  uses: {
    take: takeFiles,
    write(text) {
      document.querySelectorAll("dialog[open]").forEach((dialog) => /** @type {HTMLDialogElement} */ (dialog).close());
      composer.add(text);
    },
  },
});
startCached({
  cached: () => engine.cached(),
  remove: (url) => engine.removeCached(url),
  pin: (url, pinned) => engine.pinCached(url, pinned),
  prompts: () => engine.prompts(),
  clearPrompts: () => engine.clearPrompts(),
});
startWords(/** @type {HTMLInputElement} */ (byId("explore-words")));
startSettings({
  chat: () => chat.conversation.info,
  changeChat: (settings) => chat.change(chat.conversation.id, { settings }),
  model: () => engine.loaded?.name,
  closed() {
    const { current } = engine;
    if (current && contextLengthFor(current.choice.name) !== current.contextLength) void load(current.choice);
  },
});

/** Adds documents to the documents, and pictures and sound to the next question; returns the others. @param {File[]} files */
function takeFiles(files) {
  documents.add(files.filter(documents.isDocument));
  attachments.add(files);
  return files.filter((file) => !documents.isDocument(file) && !attachments.isMedium(file));
}

/**
 * Sends a question to the chat that was chosen before it, or gives it back if another one was chosen meanwhile.
 * @param {string} text @param {import("./ui/chats/database.js").Medium[]} [media]
 */
async function askShown(text, media = []) {
  if (await chat.settled()) return chat.send(text, media);
  composer.add(text);
  attachments.giveBack(media);
}

/** @param {Choice} choice */
function load(choice) {
  return engine.load(choice, { contextLength: contextLengthFor(choice.name) });
}

/** Says that the context is shorter than the settings have it. @param {string} name @param {number} has @param {number} [wanted] */
function tellContext(name, has, wanted) {
  if (!wanted || !has || has >= wanted) return dismiss("context");
  const text = t("The context of {name} has {n} tokens.", { name, n: has });
  notify({ key: "context", text, more: t("It was trained for no more; Settings asks for {wanted}.", { wanted }) });
}

/** @type {Choice} */
const DEFAULT = { name: "Wisp Mini" };

/** @param {unknown} error @param {Choice} choice */
function loadFailed(error, choice) {
  const { code, message } = explain(error);
  const again = { label: t("Try again"), run: () => void load(choice) };
  if (code === "aborted") {
    if (!engine.loaded)
      notify({ key: "load", text: t("No model is loaded."), actions: [{ ...again, label: t("Load") }] });
    return;
  }
  const fallback = { label: t("Use Wisp Mini"), run: () => void load(DEFAULT) };
  const still = engine.loaded && t("{name} still answers.", { name: engine.loaded.name });
  const actions = engine.loaded || choice === DEFAULT ? [again] : [again, fallback];
  const more = sentences(message, adviceFor(code), still);
  notify({ key: "load", text: t("{name} was not loaded.", { name: choice.name }), more, kind: "error", actions });
}

/** @param {unknown} error of a request */
function answerFailed(error) {
  const { code } = explain(error);
  const choice = lastChoice;
  if (code === "worker_crashed" && choice) {
    const restart = { label: t("Restart"), run: () => void load(choice) };
    notify({
      key: "load",
      text: t("The engine stopped."),
      more: t("Your chats are stored."),
      kind: "error",
      actions: [restart],
    });
  }
  showModel();
}

/** @type {Choice | null} the model that answered before the engine stopped */
let lastChoice = null;

function showModel() {
  lastChoice = engine.loaded?.choice ?? lastChoice;
  tellModel(engine);
  documents.show();
  attachments.check();
  gauge.update();
  titles.consider();
}

function showChat() {
  const { conversation, all, busy } = chat;
  const empty = conversation.messages.length === 0;
  byId("welcome").hidden = !empty;
  byId("chat-title").hidden = empty;
  byId("chat-title").textContent = conversation.title;
  document.body.classList.toggle("empty", empty);
  document.title = conversation.title ? `${conversation.title} · Wisp` : "Wisp";
  addresses.show();
  privateChats.show(conversation.info);
  chatList.show(all, conversation.id);
  composer.setBusy(busy);
  if (!busy) gauge.update(); // an answer that begins changes nothing yet, and should not wait for the count
  assistants.show();
  toolsButton.show();
  titles.consider();
}

function newChat(isPrivate = false) {
  chat.startNew(isPrivate);
  composer.store(); // or delete: nothing of a private chat is stored
  attachments.store();
  sidebar.close();
  composer.focus();
}

for (const id of ["new-chat", "top-new-chat"]) byId(id).onclick = () => newChat();
const helpDialog = /** @type {HTMLDialogElement} */ (byId("help-dialog"));
byId("help-button").onclick = () => helpDialog.showModal();
byId("loading-cancel").onclick = () => engine.cancel();
startExamples((prompt) => void (chat.busy || askShown(prompt)));
for (const dialog of document.querySelectorAll("dialog")) {
  for (const button of dialog.querySelectorAll("[data-close]")) button.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
}
document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  const typing = event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
  if (isKey("stop", event) && chat.busy) chat.stop();
  else if (isKey("write", event) && !typing) composer.focus();
  else if (isKey("help", event) && !typing) helpDialog.showModal();
  else if (isKey("newChat", event)) newChat();
  else if (isKey("search", event)) sidebar.search();
  else if (isKey("settings", event)) byId("settings-button").click();
  else return;
  event.preventDefault();
});

const firstLoad = loadFirst(load, DEFAULT);
firstLoad.then(() => startBridge(ticket, (servers) => void mcp.relay(servers))).then(downloads.resume);
await addresses.restore();
await startLaunch({
  shortcuts: { new: () => newChat(), private: () => newChat(true), models: () => byId("model-button").click() },
  write: (text) => composer.add(text),
  isMedium: attachments.isMedium,
  addMedia: attachments.add,
  isDocument: documents.isDocument,
  addDocuments(files) {
    byId("documents-button").click();
    documents.add(files);
  },
  load: useStored,
});
// The service worker fetches the whole page again. Wait for the model first, so that its load is not slowed down.
const FIRST_LOAD_MS = 20_000; // tests that load no model skip this wait
await Promise.race([firstLoad, new Promise((resolve) => setTimeout(resolve, FIRST_LOAD_MS))]);
startPwa();
/** Reads the search index while nothing else needs the processor. */
const prepareSearch = () =>
  void (engine.isLoading || chat.busy ? setTimeout(prepareSearch, 1000) : chatList.prepareSearch());
whenIdle(prepareSearch);
