/** The GGUF files of a repository: parts of a split model as one entry, with quantisation, size and hashes. */

/**
 * @typedef {object} ModelFile
 * @property {string} name without folder, part and ending
 * @property {string | null} quantization as the name has it, such as Q4_K_M
 * @property {number} size bytes of all parts
 * @property {string[]} urls of the parts, in order
 * @property {string[] | null} sha256 of each part, if the hub has them
 * @property {string | null} projector the URL of the file with which it sees or hears
 *
 * @typedef {{ rfilename: string, size?: number, lfs?: { sha256?: string, size?: number } | null }} Sibling as the hub's API has it
 */

const PART = /-(\d{5})-of-(\d{5})$/;
const QUANTIZATION = /(?:^|[-_.])((?:I?Q\d(?:_[0-9A-Z]+)*|TQ\d_\d|(?:MX|NV)FP4(?:_MOE)?|BF16|F16|F32))(?=[-_.]|$)/gi;
const OTHER = /mmproj|imatrix/i; // GGUF files that are no language models
const PROJECTOR = /mmproj[^/]*\.gguf$/i;
const PREFERRED = ["F16", "Q8_0", "BF16", "F32"]; // types of projectors: small and exact first

/** Whether a file is a projector, by its name. @param {string} path */
export const isProjector = (path) => PROJECTOR.test(path);

/** @param {string} name of a file, without its ending @returns {string | null} */
function quantizationOf(name) {
  return [...name.matchAll(QUANTIZATION)].at(-1)?.[1].toUpperCase() ?? null;
}

/**
 * The models among a repository's files, smallest first. Sets with missing parts are left out.
 * @param {Sibling[]} siblings @param {(path: string) => string} address of a file @returns {ModelFile[]}
 */
export function modelFiles(siblings, address) {
  /** @type {Map<string, { count: number, parts: Map<number, Sibling> }>} */
  const sets = new Map();
  for (const sibling of siblings) {
    const path = String(sibling.rfilename ?? "");
    if (!/\.gguf$/i.test(path) || OTHER.test(path)) continue;
    const stem = path.replace(/\.gguf$/i, "");
    const [, number = "1", count = "1"] = stem.match(PART) ?? [];
    const key = stem.replace(PART, "");
    const set = sets.get(key) ?? { count: Number(count), parts: new Map() };
    set.parts.set(Number(number), sibling);
    sets.set(key, set);
  }
  const projector = projectorOf(siblings.map(({ rfilename }) => String(rfilename ?? "")));
  const files = [...sets]
    .filter(([, { count, parts }]) => parts.size === count)
    .map(([key, set]) => entry(key, set.parts));
  return files.sort((a, b) => a.size - b.size);

  /** @param {string} key @param {Map<number, Sibling>} parts @returns {ModelFile} */
  function entry(key, parts) {
    const ordered = [...parts].sort(([a], [b]) => a - b).map(([, sibling]) => sibling);
    const hashes = ordered.map(({ lfs }) => lfs?.sha256 ?? "");
    const name = key.split("/").at(-1) ?? key;
    return {
      name,
      quantization: quantizationOf(name),
      size: ordered.reduce((sum, { size, lfs }) => sum + (size ?? lfs?.size ?? 0), 0),
      urls: ordered.map(({ rfilename }) => address(rfilename)),
      sha256: hashes.every((hash) => /^[0-9a-f]{64}$/.test(hash)) ? hashes : null,
      projector: projector && address(projector),
    };
  }
}

/** The projector beside models that is small and exact; null: there is none. @param {string[]} paths */
function projectorOf(paths) {
  const rank = (/** @type {string} */ path) => {
    const at = PREFERRED.indexOf(quantizationOf(path.replace(/\.gguf$/i, "")) ?? "");
    return at < 0 ? PREFERRED.length : at;
  };
  return paths.filter(isProjector).sort((a, b) => rank(a) - rank(b))[0] ?? null;
}
