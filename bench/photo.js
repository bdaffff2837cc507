/**
 * Asks about photos, with builds of Wisp by turns in one page, and collects what bench/first_token.js notes in their workers.
 *
 * @typedef {object} Asked
 * @property {Record<string, string>} builds addresses of copies of dist/, by name
 * @property {{ model: string, projector?: string }} load addresses, or the id of a model of the catalog
 * @property {[number, number]} size width and height in pixels
 * @property {number} runs
 *
 * @typedef {{ begun: number, first: number, notes: unknown[] }} Run  times since 1970, in milliseconds
 */

const WARM = 3; // runs before those that count: they compile what a prompt with pictures needs
const PAUSE_MS = 50;

/** @param {Asked} asked @returns {Promise<Record<string, Run[]>>} runs by build */
export async function measurePhotos(asked) {
  /** @type {Record<string, any>} */
  const engines = {};
  for (const [name, address] of Object.entries(asked.builds)) {
    const { Wisp } = await import(`${address}/wisp.js`);
    engines[name] = await Wisp.create({ shared: false });
    await engines[name].load(asked.load);
  }
  /** @type {Record<string, Run[]>} */
  const found = {};
  for (let run = 0; run < WARM + asked.runs; run++) {
    const order = Object.entries(engines);
    for (const [name, engine] of run % 2 ? order.reverse() : order) {
      const url = URL.createObjectURL(await photo(...asked.size)); // another one each time: answers are cached
      await pause();
      const times = await firstToken(engine, url);
      await pause();
      const notes = await notesOf(name);
      if (run >= WARM) (found[name] ??= []).push({ ...times, notes });
      URL.revokeObjectURL(url);
    }
  }
  return found;
}

const pause = () => new Promise((done) => setTimeout(done, PAUSE_MS));

/** @param {any} engine @param {string} url */
async function firstToken(engine, url) {
  const now = () => performance.timeOrigin + performance.now();
  const content = [
    { type: "image_url", image_url: { url } },
    { type: "text", text: "What is this?" },
  ];
  const request = { messages: [{ role: "user", content }], stream: true, max_tokens: 1, temperature: 0 };
  const begun = now();
  let first = 0;
  for await (const { choices } of await engine.chat.completions.create(request))
    if (choices[0]?.delta?.content || choices[0]?.finish_reason) first ||= now();
  return { begun, first };
}

/** What a build's worker has noted since it was last asked. @param {string} name @returns {Promise<unknown[]>} */
function notesOf(name) {
  const channel = new BroadcastChannel(`wisp.first_token ${name}`);
  return new Promise((done) => {
    channel.onmessage = ({ data }) => (channel.close(), done(data));
    channel.postMessage(null);
  });
}

/** A JPEG file of random colours and rectangles. @param {number} width @param {number} height */
export async function photo(width, height) {
  const canvas = new OffscreenCanvas(width, height);
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const random = (/** @type {number} */ below) => Math.random() * below;
  const colour = () => `rgb(${random(256)} ${random(256)} ${random(256)} / 0.4)`;
  const sky = context.createLinearGradient(0, 0, width, height);
  sky.addColorStop(0, colour());
  sky.addColorStop(1, colour());
  context.fillStyle = sky;
  context.fillRect(0, 0, width, height);
  for (let i = 0; i < (width * height) / 800; i++) {
    context.fillStyle = colour();
    context.fillRect(random(width), random(height), random(40), random(40));
  }
  return canvas.convertToBlob({ type: "image/jpeg", quality: 0.9 });
}
