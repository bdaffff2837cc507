/** Names of tools for a request, which may have each name once. A server may give a tool the name that another one gets. */

const LONGEST = 64; // characters, as chat requests have it

/** The names, cut to 64 characters; those that were there already get a number. @param {string[]} names */
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
