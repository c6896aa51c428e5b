// The page: a heading that asks, one sentence that answers, and the panes.

import type { ComponentChildren } from "preact";
import { told } from "./edits";
import { isDark, listed } from "./keys";
import { EMPTY } from "./marks/colour";
import { useMeasured } from "./marks/drawn";
import { goTo } from "./numbers/opened";
import { Boundary } from "./panes/Boundary";
import { Choice } from "./panes/Choice";
import { Colophon, Worth } from "./panes/Colophon";
import { Film, Framed } from "./panes/Film";
import { Write } from "./panes/Continuation";
import { Gaps, Labels } from "./panes/Gaps";
import { Group } from "./panes/Group";
import { Heads } from "./panes/Heads";
import { Keys } from "./panes/Keys";
import { Numbers } from "./panes/Numbers";
import { Overview } from "./panes/Overview";
import { Passages } from "./panes/Passages";
import { Readers, areTwo } from "./panes/Readers";
import { Introduction, Sentence, SentenceLine, Surprise } from "./panes/Sentence";
import { Source, SourceField } from "./panes/Source";
import { Stream } from "./panes/Stream";
import { Sweep } from "./panes/Sweep";
import { TakeTour, Tour } from "./panes/Tour";
import { Worked } from "./panes/Worked";
import { narrow, width } from "./panes/layout";
import { Trouble, readText } from "./panes/pieces";
import type { About } from "./source";
import { edits, fault, figure, guessing, isZero, language, origin, shown, theme, tour } from "./state";
import { GAP } from "./tokens";
import { asking } from "./tour";
import { LANGUAGES, N, Sentence as Written, number, plural, t } from "./words";

/** Letters of the sentence that the heading shows. */
const MOST_ASKED = 60;
const continues = ({ task }: About) => !task;
/** The headings along the page, and which models have them. */
const ALONG: [string, Written, ((about: About) => unknown)?][] = [
  ["gaps", N("gaps"), ({ fills }) => fills], ["labels", N("labels"), ({ labels }) => labels], ["alignment", N("source"), ({ source }) => source], ["readers", N("two readers"), areTwo],
  ["overview", N("overview")], ["heads", N("heads")], ["worked", N("attention in steps"), ({ contributions }) => contributions.some((part) => part.endsWith(".attn.out"))], ["numbers", N("one number")],
  ["stream", N("stream"), ({ labels }) => !labels], ["sweep", N("sweep"), continues], ["choice", N("next token"), continues], ["going-on", N("text"), continues], ["film", N("film"), ({ film, task }) => film && !task], ["about", N("about")],
];

export function App({ children }: { children?: ComponentChildren }) {
  const { about } = origin.value!;
  // Without width the page is hidden, or measured by a program: what it shows stays, and with it what was chosen there.
  const page = useMeasured((across) => (width.value = across || width.value));
  const alone = figure.value !== "";
  const titled = !alone || figure.value === about.openings?.[0]?.figure;
  const isDrawn = shown.value !== null && width.value > 0;
  const asked = shown.value ? [...(about.task ? readText.value.replaceAll(GAP, EMPTY) : readText.value)] : [];
  return (
    <div class={["page", alone && "alone", narrow.value && "narrow", guessing.value && "guessing", !alone && tour.value && "touring", !alone && asking.value === "token guessed" && "asking"].filter(Boolean).join(" ")} ref={page}>
      {titled && <header>
        <p class="name">
          {about.name} · {plural(about.parameters, "{n} parameter", "{n} parameters")} ·{" "}
          {about.trained !== undefined ? t("step {step} of {steps}", { step: about.step, steps: about.film!.last }) : about.loss === undefined ? plural(about.step, "{n} step", "{n} steps") : t("test loss {loss}", { loss: number(about.loss, 3) })}
        </p>
        <Group class="settings" label={t("Language, light and keys")}>
          {Object.entries(LANGUAGES).map(([code, name]) => (
            <button lang={code} aria-pressed={language.value === code} onClick={() => (language.value = code)}>
              {name}
            </button>
          ))}
          <button onClick={() => (theme.value = isDark() ? "light" : "dark")}>{isDark() ? t("light") : t("dark")}</button>
          <button aria-haspopup="dialog" onClick={() => (listed.value = true)}>
            {t("keys")} <kbd>?</kbd>
          </button>
        </Group>
        <h1>
          {about.source && shown.value ? <>{t("What does it answer to")} <em>“{shown.value.from.decode(shown.value.from.given!)}”</em>?</>
            : asked.length ? <>{t(about.labels ? "Which label fits" : !about.task ? "What comes after" : asked.indexOf(EMPTY) < asked.lastIndexOf(EMPTY) ? "What fills the gaps in" : asked.includes(EMPTY) ? "What fills the gap in" : "What could be hidden in")} <em>“{asked.length > MOST_ASKED && "… "}{asked.slice(-MOST_ASKED).join("")}”</em>?</>
            : t(about.task ? "What does it say?" : "What comes next?")}
        </h1>
      </header>}
      {children}
      {titled && <Introduction alone={alone} />}
      {titled && <TakeTour />}
      <SourceField />
      <Sentence />
      {!alone && <Write />}
      {!alone && <Passages />}
      <div class="stays">
        {isDrawn && !alone && (
          <nav class="along" aria-label={t("Along the page")}>
            <Group label={t("Along the page")}>
              {ALONG.filter(([, , has]) => !has || has(about)).map(([id, name]) => <button onClick={() => goTo(id)}>{t(name)}</button>)}
            </Group>
          </nav>
        )}
        {isDrawn && <Boundary of={shown.value} key={about.run}><SentenceLine /></Boundary>}
        {edits.value.length > 0 && <Changes />}
        <Framed />
      </div>
      <Trouble of={fault.value} />
      {isDrawn && (
        <Boundary of={shown.value} key={about.run}>
          <Labels />
          <Gaps />
          <Surprise />
          <Source />
          <Readers />
          <Overview />
          <Heads />
          <Worked />
          <Numbers />
          {!about.labels && <Stream />}
          {!about.task && <Sweep />}
          {!about.task && <Choice />}
          <Film />
        </Boundary>
      )}
      {!alone && <Worth />}
      {!alone && <Colophon />}
      {!alone && <Tour />}
      <Keys />
      {alone && <p class="whole"><button onClick={() => (figure.value = "")}>{t("show the whole page")}</button></p>}
    </div>
  );
}

/** What the person has changed in the model: parts that are switched off, or other edits, each as a line. */
function Changes() {
  const all = edits.value;
  const isOff = all.every(isZero);
  return (
    <p class="edits" role="status">
      {isOff ? plural(all.length, "{n} part is switched off.", "{n} parts are switched off.") : `${plural(all.length, "{n} value is changed:", "{n} values are changed:")} ${all.map(told).join("; ")}.`}{" "}
      <button onClick={() => (edits.value = [])}>{isOff ? t("switch all on") : t("undo all changes")}</button>
    </p>
  );
}
