/** Turns photos upright: cameras store them as the sensor has them, and models see the stored rows. */

const EXIF = 0x45786966; // "Exif"
const APP1 = 0xffe1;
const ORIENTATION = 0x0112;
const MOST = 1 << 24; // pixels of a canvas on a phone

/** A photo as it is shown; a picture that is stored upright stays as it is. @param {Blob} blob @returns {Promise<Blob>} */
export async function upright(blob) {
  if (orientationOf(await blob.arrayBuffer()) === 1) return blob;
  const bitmap = await createImageBitmap(blob); // turned
  const scale = Math.min(1, Math.sqrt(MOST / (bitmap.width * bitmap.height)));
  const canvas = new OffscreenCanvas(Math.floor(bitmap.width * scale), Math.floor(bitmap.height * scale));
  canvas.getContext("2d")?.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return canvas.convertToBlob({ type: "image/jpeg", quality: 0.95 });
}

/** How a JPEG file's EXIF data say that it is shown: 1 to 8, 1 for upright and for all other files. @param {ArrayBuffer} data */
function orientationOf(data) {
  const view = new DataView(data);
  try {
    if (view.getUint16(0) !== 0xffd8) return 1;
    for (let at = 2; view.getUint8(at) === 0xff; at += 2 + view.getUint16(at + 2))
      if (view.getUint16(at) === APP1 && view.getUint32(at + 4) === EXIF) return inTiff(new DataView(data, at + 10));
  } catch {
    // A segment goes beyond the end: the decoder will say what is wrong.
  }
  return 1;
}

/** The orientation in the first directory of EXIF data, which are a TIFF file. @param {DataView} tiff */
function inTiff(tiff) {
  const little = tiff.getUint16(0) === 0x4949;
  const first = tiff.getUint32(4, little);
  for (let i = 0; i < tiff.getUint16(first, little); i++) {
    const entry = first + 2 + 12 * i;
    if (tiff.getUint16(entry, little) === ORIENTATION) return tiff.getUint16(entry + 8, little);
  }
  return 1;
}
