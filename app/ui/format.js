/** Amounts as texts in the page's language. */
import { date, number, t } from "../language/phrase.js";

const UNITS = ["kilobyte", "megabyte", "gigabyte"];

/** @param {number} bytes @param {string} [per] such as "-per-second" */
export function bytes(bytes, per = "") {
  let unit = 0;
  let value = bytes && Math.max(0.1, bytes / 1000);
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit++;
  }
  const digits = value && value < 9.95 ? 1 : 0;
  return number(value, { style: "unit", unit: UNITS[unit] + per, ...fixed(digits) });
}

/** @param {number} bytesPerSecond */
export const speed = (bytesPerSecond) => bytes(bytesPerSecond, "-per-second");

/** @param {number} ms */
export function seconds(ms) {
  if (ms < 999.5) return t("{time} ms", { time: Math.max(1, Math.round(ms)) });
  return t("{time} s", { time: number(ms / 1000, fixed(ms < 9950 ? 1 : 0)) });
}

/** @param {number} perSecond */
export const rate = (perSecond) => number(perSecond, fixed(perSecond < 9.95 ? 1 : 0));

/** @param {number} part of 1 @param {number} [digits] after the point */
export const percent = (part, digits = 0) => number(part, { style: "percent", ...fixed(digits) });

/** A rough time, such as "2 min". @param {number} seconds */
export function duration(seconds) {
  if (seconds < 60) return t("{time} s", { time: Math.max(1, Math.round(seconds)) });
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return t("{minutes} min", { minutes });
  return t("{hours} h {minutes} min", { hours: Math.floor(minutes / 60), minutes: minutes % 60 });
}

/** The length of a clip, such as "1:07". @param {number} seconds */
export function playingTime(seconds) {
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

/** @param {number} n */
export const pictures = (n) => t("{n} pictures", { n });

/** @param {number} tokens */
export const tokens = (tokens) => t("{n} tokens", { n: tokens });

/** A time of the day, such as "14:05". @param {number} time ms since 1970 */
export const clock = (time) => date(time, { timeStyle: "short" });

/** @param {number} time ms since 1970 */
export const day = (time) => date(time, { dateStyle: "medium" });

/** A moment that is near, such as "14:05:09"; with its day where it is not today's. @param {number} time ms since 1970 */
export const moment = (time) => {
  const isToday = new Date(time).toDateString() === new Date().toDateString();
  return date(time, { timeStyle: "medium", ...(!isToday && { dateStyle: "medium" }) });
};

/** @param {number} digits @returns {Intl.NumberFormatOptions} */
const fixed = (digits) => ({ minimumFractionDigits: digits, maximumFractionDigits: digits });
