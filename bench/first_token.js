/**
 * Runs in the engine's worker, before its own code: notes when it calls the browser on the way to a first token, and posts
 * the notes to the page that asks for them.
 */
{
  const INSTANT = false; // bench/first_token.py sets it: dispatches have no workgroups
  /** @type {[string, number][]} */
  let notes = [];
  const note = (/** @type {string} */ what) => notes.push([what, performance.timeOrigin + performance.now()]);

  /** @param {any} type @param {string} name @param {string} [before] @param {string} [after] @param {(args: any[]) => any[]} [changed] */
  function watch(type, name, before, after, changed = (args) => args) {
    const own = type.prototype[name];
    type.prototype[name] = function (/** @type {any[]} */ ...args) {
      if (before) note(before);
      const result = own.apply(this, changed(args));
      if (after) note(after);
      return result;
    };
  }

  watch(GPUDevice, "createCommandEncoder", "encode");
  watch(GPUQueue, "submit", undefined, "submitted");
  watch(GPUBuffer, "unmap", "read");
  watch(MessagePort, "postMessage", "posted");
  if (INSTANT) watch(GPUComputePassEncoder, "dispatchWorkgroups", undefined, undefined, () => [0, 0, 0]);

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

  const channel = new BroadcastChannel("wisp.first_token");
  channel.onmessage = () => {
    channel.postMessage(notes);
    notes = [];
  };
}
