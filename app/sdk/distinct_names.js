/** Makes the names of a request's tools unique: tools of several servers may have the same one. */

const LONGEST = 64; // characters, as chat requests have it

/** The names, cut to 64 characters. The second of two equal ones gets the number 2, and so on. @param {string[]} names */
export function distinct(names) {
  /** @type {Set<string>} */
  const taken = new Set();
  return names.map((name) => {
    let made = name.slice(0, LONGEST);
    for (let n = 2; taken.has(made); n++) made = `${name.slice(0, LONGEST - `_${n}`.length)}_${n}`;
    taken.add(made);
    return made;
  });
}
