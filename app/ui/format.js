/** @param {number} bytes */
export function bytes(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  const units = ["kB", "MB", "GB"];
  let value = bytes / 1000;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${value < 10 ? value.toFixed(1) : value.toFixed(0)} ${units[unit]}`;
}

/** @param {number} ms */
export function seconds(ms) {
  if (ms < 1000) return `${Math.max(1, Math.round(ms))} ms`;
  return ms < 9950 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 1000)} s`;
}

/** @param {number} perSecond */
export function rate(perSecond) {
  return perSecond < 9.95 ? perSecond.toFixed(1) : String(Math.round(perSecond));
}

/** @param {number} count @param {string} noun */
export function plural(count, noun) {
  return `${count.toLocaleString()} ${noun}${count === 1 ? "" : "s"}`;
}

/** A rough time, such as "2 min". @param {number} seconds */
export function duration(seconds) {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
