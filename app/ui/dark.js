/** Whether the page is dark: by the user's choice, or as the system is. */

const SYSTEM = matchMedia("(prefers-color-scheme: dark)");

export function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : SYSTEM.matches;
}

/** Calls `listener` when the page becomes dark or light. Returns a function that ends it. @param {() => void} listener */
export function onDark(listener) {
  let was = isDark();
  const check = () => {
    if (isDark() === was) return;
    was = !was;
    listener();
  };
  const observer = new MutationObserver(check);
  observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  SYSTEM.addEventListener("change", check);
  return () => {
    observer.disconnect();
    SYSTEM.removeEventListener("change", check);
  };
}
