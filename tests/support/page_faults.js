// Finds elements that overflow the window and buttons that are too small. axe-core finds the rest.
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
  return [...new Set(faults)];
};
