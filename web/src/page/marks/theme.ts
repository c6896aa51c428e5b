// Light or dark: the page's attribute data-theme, else the system's wish; paper is always light.

import { signal } from "@preact/signals";
import { css, Inks, INKS, pane, Theme } from "./colour";

const asked = (query: string) => typeof matchMedia === "function" && matchMedia(query).matches;

function current(): Theme {
  if (typeof document === "undefined" || asked("print")) return "light";
  const said = document.documentElement.dataset.theme;
  return said === "light" || said === "dark" ? said : asked("(prefers-color-scheme: dark)") ? "dark" : "light";
}

/** The theme that marks are drawn in. */
export const theme = signal<Theme>(current());

const ON_PAPER = 3;
/** The page's width in print, which a browser fits to the paper's. */
const PAPER = "1040px";
const pixels = () => (typeof devicePixelRatio === "number" ? Math.max(asked("print") ? ON_PAPER : 1, devicePixelRatio) : 1);

/** Pixels of a canvas for a pixel of the page: those of the screen, and more on paper. */
export const fineness = signal(pixels());

/** Whether things may move. */
export const still = (): boolean => asked("(prefers-reduced-motion: reduce)");

export const inks = (): Inks => INKS[theme.value];

/** A pane's colours as HTML wants them. */
export function glass(token: string, strength = 1): { fill: string; ink: string } {
  const { fill, ink } = pane(token, strength, theme.value);
  return { fill: css(fill), ink: css(ink) };
}

if (typeof document !== "undefined") {
  const look = () => {
    theme.value = current();
    fineness.value = pixels();
  };
  for (const query of ["print", "(prefers-color-scheme: dark)"]) matchMedia(query).addEventListener("change", look);
  addEventListener("resize", look);
  new MutationObserver(look).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  addEventListener("beforeprint", () => {
    theme.value = "light";
    fineness.value = ON_PAPER;
    document.body.style.width = PAPER;
  });
  addEventListener("afterprint", () => {
    document.body.style.width = "";
    look();
  });
}
