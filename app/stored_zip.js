/** Reads the zips that the build packs: their files are stored, not compressed (tools/python_zip.py). */

const END = 0x06054b50; // "PK\5\6"
const END_BYTES = 22; // without a comment
const ENTRY_BYTES = 46; // of the directory, before its name
const LOCAL_BYTES = 30; // before the name of a file's own header

/**
 * The files of a zip, by name.
 * @param {ArrayBuffer} zip @returns {Generator<[string, Uint8Array]>}
 */
export function* filesOf(zip) {
  const view = new DataView(zip);
  const end = zip.byteLength - END_BYTES;
  if (end < 0 || view.getUint32(end, true) !== END) throw new Error("this is no zip of the build");
  const count = view.getUint16(end + 10, true);
  const decoder = new TextDecoder();
  for (let i = 0, at = view.getUint32(end + 16, true); i < count; i++) {
    const [nameBytes, extra, comment] = [28, 30, 32].map((field) => view.getUint16(at + field, true));
    const [method, size] = [view.getUint16(at + 10, true), view.getUint32(at + 24, true)];
    const local = view.getUint32(at + 42, true);
    const name = decoder.decode(new Uint8Array(zip, at + ENTRY_BYTES, nameBytes));
    if (method !== 0) throw new Error(`${name} is compressed`);
    const start = local + LOCAL_BYTES + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    yield [name, new Uint8Array(zip, start, size)];
    at += ENTRY_BYTES + nameBytes + extra + comment;
  }
}

/**
 * Writes the files into a folder of Python's file system, much faster than Python's zipfile. The files keep the zip's
 * memory: it must not be changed later.
 * @param {any} FS pyodide.FS @param {ArrayBuffer} zip @param {string} folder
 */
export function unpack(FS, zip, folder) {
  const made = new Set();
  for (const [name, data] of filesOf(zip)) {
    const path = `${folder}/${name}`;
    const parent = path.slice(0, path.lastIndexOf("/"));
    if (!made.has(parent)) FS.mkdirTree(parent);
    made.add(parent);
    FS.writeFile(path, data, { canOwn: true });
  }
}
