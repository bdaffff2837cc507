// Finds elements that overflow the window, lack an accessible name, or have less text contrast than WCAG AA requires.
() => {
  const faults = [];
  const visible = (element) =>
    element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) &&
    !element.closest("[inert], .hidden, dialog:not([open])");
  const describe = (element) =>
    `${element.tagName}#${element.id}.${element.className} ${element.textContent.slice(0, 30)}`;
  if (document.documentElement.scrollWidth > innerWidth) faults.push("the page scrolls sideways");
  for (const element of document.querySelectorAll("body *")) {
    if (!visible(element) || element.closest(".code pre, .wide")) continue;
    const box = element.getBoundingClientRect();
    if (box.width && (box.right > innerWidth + 1 || box.left < -1)) faults.push(`overflows: ${describe(element)}`);
  }
  for (const element of document.querySelectorAll("button, input, textarea, a, [role=button], dialog[open], nav")) {
    if (!visible(element)) continue;
    const named = [
      element.ariaLabel,
      element.innerText,
      element.title,
      ...[...(element.labels ?? [])].map((label) => label.innerText),
      document.getElementById(element.getAttribute("aria-labelledby"))?.innerText,
    ];
    if (!named.some((name) => name?.trim())) faults.push(`no name: ${describe(element)}`);
    const box = element.getBoundingClientRect();
    if (element.matches("button") && (box.width < 24 || box.height < 24))
      faults.push(`too small: ${describe(element)}`);
  }
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (color) => {
    const [r, g, b] = color.map((part) =>
      part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4,
    );
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = rgba(getComputedStyle(at).backgroundColor);
      if (color[3] > 250) return color;
    }
    return rgba(getComputedStyle(document.body).backgroundColor);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !visible(element) || element.closest("button:disabled, .skip, script"))
      continue;
    const [a, b] = [light(rgba(getComputedStyle(element).color)), light(ground(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) faults.push(`contrast ${contrast.toFixed(2)}: ${describe(element)}`);
  }
  return [...new Set(faults)];
};
