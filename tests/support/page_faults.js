// Finds elements that overflow the window, buttons that are too small, and texts that lie within others because
// directions are mixed. axe-core finds the rest.
() => {
  const faults = [];
  const visible = (element) =>
    element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) &&
    !element.closest("[inert], .hidden, dialog:not([open])");
  const describe = (element) =>
    `${element.tagName}#${element.id}.${element.className} ${element.textContent.slice(0, 30)}`;
  if (document.documentElement.scrollWidth > innerWidth) faults.push("the page scrolls sideways");
  for (const element of document.querySelectorAll("body *")) {
    if (!visible(element) || element.closest(".code pre, .wide, .columns")) continue;
    const box = element.getBoundingClientRect();
    if (box.width && (box.right > innerWidth + 1 || box.left < -1)) faults.push(`overflows: ${describe(element)}`);
  }
  for (const element of document.querySelectorAll("button")) {
    if (!visible(element)) continue;
    const box = element.getBoundingClientRect();
    if (box.width < 24 || box.height < 24) faults.push(`too small: ${describe(element)}`);
  }
  // Where a text is cut, its end is: a name that is written from left to right is cut at its right end in Arabic, too.
  for (const element of document.querySelectorAll("body *")) {
    const { direction, textOverflow } = getComputedStyle(element);
    if (textOverflow !== "ellipsis" || element.scrollWidth <= element.clientWidth || !visible(element)) continue;
    const first = element.textContent.match(/[A-Za-z]|[\u0600-\u06ff]/)?.[0] ?? "";
    if (first && (direction === "rtl") === /[A-Za-z]/.test(first))
      faults.push(`its beginning is cut: ${describe(element)}`);
  }
  // A size such as "9.6 MB" must not be torn apart by a name beside it: each text of a line is in one place.
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const texts = new Map(); // block -> the texts in it with their boxes
  while (walker.nextNode()) {
    const { currentNode: text } = walker;
    if (!text.data.trim() || !visible(text.parentElement)) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    const block = text.parentElement.closest("li, p, dd, dt, td, th, button, label, div");
    if (block) texts.set(block, [...(texts.get(block) ?? []), { text, boxes: [...range.getClientRects()] }]);
  }
  for (const inside of texts.values())
    for (const { text, boxes } of inside)
      for (const [first, ...others] of boxes.map((box) => boxes.filter(({ top }) => Math.abs(top - box.top) < 4)))
        for (const last of others) {
          const [from, to] = [Math.min(first.right, last.right) - 1, Math.max(first.left, last.left) + 1];
          const between = ({ left, right, top }) => left >= from && right <= to && Math.abs(top - first.top) < 6;
          const other = inside.find((beside) => beside.text !== text && beside.boxes.some(between));
          if (other) faults.push(`“${text.data}” is torn apart by “${other.text.data}”`);
        }
  return [...new Set(faults)];
};
