/**
 * Ends the page inside a frame of another page, which could trick its user into clicks. Hosts that send the headers of
 * docs/deployment.md do not show it there at all. Imported first: what follows in page.js does not run then.
 */
if (window.top !== window.self) {
  document.body.replaceChildren("Wisp does not run inside another page. Open it in a tab of its own."); // no language is loaded yet
  throw new Error("framed");
}
