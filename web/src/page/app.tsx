// The page: a heading that asks, and the panes.

import type { ComponentChildren } from "preact";
import { Choice } from "./panes/Choice";
import { Colophon } from "./panes/Colophon";
import { Heads } from "./panes/Heads";
import { Keys } from "./panes/Keys";
import { Numbers } from "./panes/Numbers";
import { Overview } from "./panes/Overview";
import { Passages } from "./panes/Passages";
import { Sentence, SentenceLine, Surprise } from "./panes/Sentence";
import { Stream } from "./panes/Stream";
import { isDark, listed } from "./keys";
import { useMeasured } from "./marks/drawn";
import { edits, fault, figure, language, shown, source, text, theme } from "./state";
import { narrow, width } from "./panes/layout";
import { LANGUAGES, number, plural, t } from "./words";

export function App({ children }: { children?: ComponentChildren }) {
  const { about } = source.value!;
  // Without width the page is hidden, or measured by a program: what it shows stays, and with it what was chosen there.
  const page = useMeasured((across) => (width.value = across || width.value));
  const alone = figure.value !== "";
  return (
    <div class={`page${alone ? " alone" : ""}${narrow.value ? " narrow" : ""}`} ref={page}>
      <header>
        <p class="name">
          {about.name} · {plural(about.parameters, "{n} parameter", "{n} parameters")} ·{" "}
          {about.loss === undefined ? plural(about.step, "{n} step", "{n} steps") : t("test loss {loss}", { loss: number(about.loss, 3) })}
        </p>
        <p class="settings">
          {Object.entries(LANGUAGES).map(([code, name]) => (
            <button lang={code} aria-pressed={language.value === code} onClick={() => (language.value = code)}>
              {name}
            </button>
          ))}
          <button onClick={() => (theme.value = isDark() ? "light" : "dark")}>{isDark() ? t("light") : t("dark")}</button>
          <button aria-haspopup="dialog" onClick={() => (listed.value = true)}>
            {t("keys")} <kbd>?</kbd>
          </button>
        </p>
        <h1>
          {t("What comes after")} <em>“{text.value.slice(-60)}”</em>?
        </h1>
      </header>
      {children}
      <Sentence />
      {!alone && <Passages />}
      <div class="stays">
        {shown.value && width.value > 0 && <SentenceLine />}
        {edits.value.length > 0 && (
          <p class="edits" role="status">
            {plural(edits.value.length, "{n} part is switched off.", "{n} parts are switched off.")}{" "}
            <button onClick={() => (edits.value = [])}>{t("switch all on")}</button>
          </p>
        )}
      </div>
      {fault.value && <p role="alert">{t("The numbers could not be computed: {reason}", { reason: fault.value })}</p>}
      {shown.value && width.value > 0 && (
        <>
          <Surprise />
          <Overview />
          <Heads />
          <Numbers />
          <Stream />
          <Choice />
        </>
      )}
      {!alone && <Colophon />}
      <Keys />
      {alone && <p class="whole"><button onClick={() => (figure.value = "")}>{t("show the whole page")}</button></p>}
    </div>
  );
}
