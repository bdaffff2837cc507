/**
 * Faults inside the engine's worker, which the campaign asks for over a BroadcastChannel. lab.py puts this text before the
 * worker's script. A fault strikes at the n-th call from now on, so at any moment of what the worker does.
 */
(() => {
  /** @type {Map<GPUBuffer, [GPUDevice, number]>} buffers that were not destroyed -> their device and bytes */
  const live = new Map();
  /** @type {Record<string, number>} calls until a fault strikes */
  const left = {};
  /** @type {number | null} faults that have struck since "arm"; null: none was armed */
  let struck = null;

  const strikes = (/** @type {string} */ fault) => {
    if (!(left[fault] > 0) || --left[fault]) return false;
    struck = (struck ?? 0) + 1;
    return true;
  };

  /** Replaces a method by `make(original)`. @param {any} owner @param {string} name @param {(original: any) => any} make */
  const wrap = (owner, name, make) => {
    if (owner) owner[name] = make(owner[name]);
  };
  const { GPUDevice, GPUBuffer, performance, Date } = self;

  wrap(GPUDevice?.prototype, "createBuffer", (create) => {
    return function (/** @type {GPUBufferDescriptor} */ options) {
      if (options.mappedAtCreation && strikes("map")) throw new RangeError("createBuffer failed: injected");
      const buffer = create.call(this, options);
      live.set(buffer, [this, options.size]);
      return buffer;
    };
  });
  wrap(GPUBuffer?.prototype, "destroy", (destroy) => {
    return function () {
      live.delete(this);
      destroy.call(this);
    };
  });
  wrap(GPUDevice?.prototype, "destroy", (destroy) => {
    return function () {
      for (const [buffer, [device]] of live) if (device === this) live.delete(buffer);
      destroy.call(this);
    };
  });
  wrap(GPUDevice?.prototype, "createCommandEncoder", (create) => {
    return function (/** @type {any} */ options) {
      if (strikes("device")) this.destroy();
      return create.call(this, options);
    };
  });

  /** @type {WeakMap<GPUDevice, string[]>} open error scopes */
  const scopes = new WeakMap();
  wrap(GPUDevice?.prototype, "pushErrorScope", (push) => {
    return function (/** @type {string} */ filter) {
      scopes.set(this, [...(scopes.get(this) ?? []), filter]);
      push.call(this, filter);
    };
  });
  wrap(GPUDevice?.prototype, "popErrorScope", (pop) => {
    return async function () {
      const filter = scopes.get(this)?.pop();
      const popped = pop.call(this);
      if (filter === "out-of-memory" && strikes("memory")) {
        await popped;
        return new GPUOutOfMemoryError("injected");
      }
      return popped;
    };
  });

  let [clock, passed] = [0, 0]; // milliseconds that the clocks are ahead
  wrap(Date, "now", (now) => () => now.call(Date) + clock);
  wrap(performance, "now", (now) => () => now.call(performance) + passed);

  /** @type {Record<string, (...args: any[]) => any>} */
  const commands = {
    /** @param {string} fault @param {number} calls */
    arm: (fault, calls) => {
      left[fault] = calls;
      struck = 0;
    },
    reset: () => {
      struck = null;
    },
    /** Ends all faults; returns how many have struck, null if none was armed. */
    disarm: () => {
      for (const fault of Object.keys(left)) left[fault] = 0;
      return struck;
    },
    throw: () => {
      setTimeout(() => {
        throw new Error("injected");
      });
    },
    /** Bytes of GPU buffers that were not destroyed. */
    live: () => [...live.values()].reduce((sum, [, size]) => sum + size, 0),
    /** @param {number} ms of the calendar, in any direction @param {number} sleep of the monotonic clock, ahead */
    jump: (ms, sleep) => {
      clock += ms;
      passed += sleep;
    },
  };
  const channel = new BroadcastChannel("wisp.faults");
  channel.onmessage = ({ data: { id, worker, command, args } }) => {
    if (worker === location.pathname) channel.postMessage({ done: id, result: commands[command](...args) });
  };
})();
