/** Takes a photo: a dialog with the camera's picture. */
import { t } from "../../language/phrase.js";
import { byId } from "../dom.js";
import { notify } from "../notices.js";

/** @typedef {import("../chats/database.js").Medium} Medium */

/** @param {(medium: Medium) => void} taken */
export function startCamera(taken) {
  const dialog = /** @type {HTMLDialogElement} */ (byId("camera-dialog"));
  const video = /** @type {HTMLVideoElement} */ (byId("camera-picture"));
  const shutter = /** @type {HTMLButtonElement} */ (byId("camera-take"));

  let asking = false; // the browser asks the user for the camera

  const end = () => {
    for (const track of /** @type {MediaStream | null} */ (video.srcObject)?.getTracks() ?? []) track.stop();
    video.srcObject = null;
  };
  dialog.addEventListener("close", end);
  shutter.onclick = async () => {
    const canvas = new OffscreenCanvas(video.videoWidth, video.videoHeight);
    canvas.getContext("2d")?.drawImage(video, 0, 0);
    dialog.close();
    taken({
      kind: "image",
      name: `${t("Photo")}.jpg`,
      blob: await canvas.convertToBlob({ type: "image/jpeg", quality: 0.92 }),
    });
    byId("prompt").focus();
  };

  return {
    async open() {
      if (asking || dialog.open) return; // a second stream would leave the camera of the first one on
      asking = true;
      try {
        const facing = { facingMode: "environment", width: { ideal: 1920 }, height: { ideal: 1440 } };
        video.srcObject = await navigator.mediaDevices.getUserMedia({ video: facing });
      } catch (error) {
        return notify({ key: "camera", text: t("No camera can be used."), more: `${error}`, kind: "error" });
      } finally {
        asking = false;
      }
      shutter.disabled = true;
      dialog.showModal();
      await video.play().catch(() => {}); // the dialog was closed at once
      shutter.disabled = false;
      shutter.focus();
    },
  };
}
