/** Names of a request's tools: tools of several servers may have the same one. */

/** Characters of a name, as chat requests have it. */
export const LONGEST = 64;

/** A tool's name after that of its server. @param {string} server @param {string} name */
export const ofServer = (server, name) => `${server}_${name}`;

/**
 * Names that differ, of at most 64 characters. Of equal ones, those with a server begin with it; the second of two that are
 * still equal gets the number 2, and so on.
 * @param {{ name: string, server?: string }[]} tools
 */
export function distinct(tools) {
  const names = tools.map(({ name }) => name);
  const shared = new Set(names.filter((name, i) => names.indexOf(name) < i));
  /** @type {Set<string>} */
  const taken = new Set();
  return tools.map(({ name, server }) => {
    const wished = server !== undefined && shared.has(name) ? ofServer(server, name) : name;
    let made = wished.slice(0, LONGEST);
    for (let n = 2; taken.has(made); n++) made = `${wished.slice(0, LONGEST - `_${n}`.length)}_${n}`;
    taken.add(made);
    return made;
  });
}
