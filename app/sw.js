/**
 * The service worker: opens the page without a network, answers the API below v1/ (sw/api.js), and receives what is
 * shared with the installed page (sw/share.js).
 *
 * The build lists every file of the page in `__WISP_PRECACHE__`. Each version of the page has a cache of its own, with the
 * headers that make the page cross-origin isolated: of hosts that send none, too (sw/isolated.js). A new version waits until the last
 * tab of the old one has closed, or until the page sends "take over". Other tabs then go on with the old version, so its
 * cache stays until they are closed (sw/older.js). Models are in IndexedDB, not here.
 */
/// <reference lib="webworker" />
import { fetchEncoded } from "./encoded.js";
import { answerApi, isApi } from "./sw/api.js";
import { isolated } from "./sw/isolated.js";
import { Older } from "./sw/older.js";
import { isShared, receive } from "./sw/share.js";

const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));
const PREFIX = `wisp ${worker.registration.scope} `; // another Wisp of this origin has a scope of its own
const CACHE = PREFIX + __WISP_PRECACHE__.version;

/** @param {string} path relative to the service worker */
const address = (path) => new URL(path, worker.registration.scope).href;
const INDEX = () => address("index.html");
const PRECACHED = new Set(__WISP_PRECACHE__.files.map(address));
const ON_USE = new Set(__WISP_PRECACHE__.onUse.map(address)); // cached when they are first used
const older = new Older(PREFIX, CACHE);

worker.addEventListener("install", (event) => event.waitUntil(install()));
worker.addEventListener("activate", (event) => event.waitUntil(activate()));
worker.addEventListener("message", (event) => {
  if (event.data === "take over") worker.skipWaiting();
  if (event.data === "tidy") event.waitUntil(Promise.all([older.remove(), refill()]));
});
worker.addEventListener("fetch", (event) => {
  const { request } = event;
  if (isApi(request)) return event.respondWith(answerApi(event));
  if (isShared(request)) return event.respondWith(receive(request));
  if (request.method !== "GET" || request.headers.has("range")) return;
  const url = request.url.split(/[?#]/)[0];
  const wanted = url === worker.registration.scope ? INDEX() : url;
  if (PRECACHED.has(wanted) || ON_USE.has(wanted)) event.respondWith(answer(wanted, event));
  else if (isAsset(url)) event.respondWith(older.answer(request, url));
});

/** Whether a file may be one of an older version: models are not. @param {string} url */
const isAsset = (url) => url.startsWith(address("assets/")) && !url.startsWith(address("assets/models/"));

/**
 * Fetches the new version. Files that an older version has are copied from it: their names contain a hash. So are those
 * that were cached when they were first used: the older version's cache will be removed.
 */
async function install() {
  const isNew = !(await caches.has(CACHE));
  try {
    await fill(await caches.open(CACHE));
  } catch (error) {
    if (isNew) await caches.delete(CACHE); // a part of it would only take space
    throw error;
  }
}

/** @param {Cache} cache */
async function fill(cache) {
  await older.note(cache);
  await add(cache, [...PRECACHED]);
  const used = async (/** @type {string} */ url) => {
    const old = await caches.match(url);
    if (old) await cache.put(url, isolated(old)).catch(() => {}); // without a copy it is fetched again
  };
  await Promise.all([...ON_USE].map(used));
}

/** @param {Cache} cache @param {string[]} urls */
async function add(cache, urls) {
  const one = async (/** @type {string} */ url) => {
    const old = url.includes("/assets/") ? await caches.match(url) : undefined;
    const response = old ?? (await fetched(url));
    if (!response.ok) throw new Error(`${url}: HTTP status ${response.status}`);
    await cache.put(url, isolated(response));
  };
  await Promise.all(urls.map(one));
}

/**
 * Fetches what the browser, or its user, has removed from this version's cache. Files with a hash in their name first: a
 * host that lacks them has a newer version, whose pages would not suit.
 */
async function refill() {
  const cache = await caches.open(CACHE);
  const cached = new Set((await cache.keys()).map(({ url }) => url));
  const missing = [...PRECACHED].filter((url) => !cached.has(url));
  const isHashed = (/** @type {string} */ url) => url.includes("/assets/");
  try {
    await add(cache, missing.filter(isHashed));
    await add(
      cache,
      missing.filter((url) => !isHashed(url)),
    );
  } catch {
    // Without a network, for example: the next visit tries again.
  }
}

/** From the network, or from the browser's cache: the page has loaded most files already. @param {string} url */
function fetched(url) {
  const address = url === INDEX() ? worker.registration.scope : url; // as the page was opened
  if (!url.includes("/assets/")) return fetch(address, { cache: "no-cache" }); // asks whether it is still the same
  return /\.(bin|zip)$/.test(url) ? fetchEncoded(url) : fetch(url); // boot.js fetches these so, too
}

async function activate() {
  await older.noteTabs();
  await older.remove();
  await worker.clients.claim();
}

/** @param {string} url @param {FetchEvent} event */
async function answer(url, event) {
  const { request } = event;
  const cache = await caches.open(CACHE);
  const found = await cache.match(url);
  if (found || !ON_USE.has(url)) return found ?? fetch(request);
  const old = await caches.match(url); // of an older version: its name contains its hash
  const response = old ?? (await fetch(request));
  if (!response.ok) return response;
  const stored = cache.put(url, isolated(response.clone())); // fails where the storage is full: then there is no copy
  event.waitUntil(stored.catch(() => {}));
  return isolated(response);
}
