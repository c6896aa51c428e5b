// What the theme's script adds is made usable by keyboard and by readers of screens.
const mend = () => {
  document.querySelectorAll("nav.md-code__nav").forEach((bar, place) => bar.setAttribute("aria-label", `${place + 1}`));
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap")) wide.tabIndex = 0;
};
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
mend();
