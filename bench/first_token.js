/**
 * Runs in the engine's worker, before its own code: notes when it calls the browser on the way to a first token, and posts
 * the notes to the page that asks for them.
 */
{
  /** @type {[string, number, number][]} what, when, and a command's device */
  let notes = [];
  const note = (/** @type {string} */ what, device = 0) =>
    notes.push([what, performance.timeOrigin + performance.now(), device]);
  /** @type {unknown[]} in the order of their first commands */
  const devices = [];

  /** @param {unknown} device */
  function deviceOf(device) {
    if (!devices.includes(device)) devices.push(device);
    return devices.indexOf(device);
  }

  /** @param {any} type @param {string} name @param {string} [before] @param {string} [after] */
  function watch(type, name, before, after) {
    const own = type.prototype[name];
    type.prototype[name] = function (/** @type {any[]} */ ...args) {
      if (before) note(before, type === GPUDevice ? deviceOf(this) : 0);
      const result = own.apply(this, args);
      if (after) note(after);
      return result;
    };
  }

  watch(GPUDevice, "createCommandEncoder", "encode");
  watch(GPUQueue, "submit", undefined, "submitted");
  watch(GPUBuffer, "unmap", undefined, "read");
  watch(GPUBuffer, "getMappedRange", undefined, "mapped");
  watch(MessagePort, "postMessage", "posted");

  const { set: setHandler, ...rest } = /** @type {any} */ (
    Object.getOwnPropertyDescriptor(MessagePort.prototype, "onmessage")
  );
  Object.defineProperty(MessagePort.prototype, "onmessage", {
    ...rest,
    set(handler) {
      setHandler.call(this, (/** @type {MessageEvent} */ event) => {
        if (event.data?.request) note("received");
        return handler.call(this, event);
      });
    },
  });

  /** @type {() => Promise<any>} imports py_engine/media/media.js */
  let load;
  const noted = async () => {
    const media = await load();
    return {
      ...media,
      async decode(/** @type {any[]} */ ...args) {
        note("decode");
        const picture = await media.decode(...args);
        note("decoded");
        return picture;
      },
      follow(/** @type {any[]} */ ...args) {
        const cuts = media.follow(...args);
        note("resized");
        return cuts;
      },
    };
  };
  Object.defineProperty(globalThis, "wispMedia", { get: () => noted, set: (own) => (load = own) });

  const channel = new BroadcastChannel("wisp.first_token");
  channel.onmessage = () => {
    channel.postMessage(notes);
    notes = [];
  };
}
