/**
 * The result of work, or the signal's reason as soon as it is aborted.
 * @template T @param {Promise<T>} work @param {AbortSignal | undefined} signal @returns {Promise<T>}
 */
export function withSignal(work, signal) {
  if (!signal) return work;
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    work
      .then(resolve, (error) => reject(signal.aborted ? signal.reason : error))
      .finally(() => signal.removeEventListener("abort", abort));
  });
}
