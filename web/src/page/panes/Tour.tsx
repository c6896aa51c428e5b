// The tour as the reader meets it: a button that begins it, and a card beside what the stop speaks of.

import { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { glass, still } from "../marks/theme";
import { block, figure, head, origin, shown, tour } from "../state";
import { begin, enter, here, isDone, isPossible, leave, present, stop, stops } from "../tour";
import { number, plural, t } from "../words";
import { ratings, saidBy } from "../wanted";
import { Group } from "./Group";
import { width } from "./layout";
import { Token } from "./pieces";

/** Seconds that a stop takes, about. */
const PACE = 45;
const MINUTE = 60;
/** Free room around what is highlighted, in pixels. */
const AROUND = 26;
/** Below this share, percent have a decimal. */
const SMALL = 0.01;

/** What a stop speaks of: a figure or a list by its name, else the section of the heading. */
function partOf(highlight: string): HTMLElement | null {
  const named = document.getElementById(`figure-${highlight}`) ?? document.getElementById(highlight);
  return named && /^H\d$/.test(named.tagName) ? named.closest("section, figure, footer") : named;
}

/** Where the card stands: over the lower edge of the window where there is no room beside the page. */
const isBelow = (card: HTMLElement): boolean => card.offsetWidth > innerWidth / 2;

/** Scrolls so that a part is seen whole, or from its beginning on, and puts the card beside it. */
function reveal(part: HTMLElement, card: HTMLElement): void {
  const box = part.getBoundingClientRect();
  const above = document.querySelector<HTMLElement>(".stays")!.offsetHeight + AROUND;
  const below = innerHeight - (isBelow(card) ? card.offsetHeight : 0) - AROUND;
  const end = document.documentElement.scrollHeight - innerHeight;
  const top = Math.min(end, Math.max(0, scrollY + box.top - above - (isBelow(card) ? 0 : Math.max(0, (below - above - box.height) / 2))));
  const beside = Math.max(AROUND, Math.min(scrollY + box.top - top, innerHeight - card.offsetHeight - AROUND));
  card.style.top = isBelow(card) ? "" : `${beside}px`;
  scrollTo({ top, behavior: still() ? "auto" : "smooth" });
}

export function TakeTour() {
  const count = present.value.length;
  const minutes = Math.max(1, Math.round((count * PACE) / MINUTE));
  if (!count && !figure.value) return null;
  return (
    <p class="take-tour">
      <button class="button" onClick={tour.value ? leave : begin}>
        {tour.value ? t("leave the tour") : figure.value ? t("Take the tour") : plural(minutes, "Take the tour: {stops}, one minute", "Take the tour: {stops}, {n} minutes", { stops: plural(count, "one stop", "{n} stops") })}
      </button>
    </p>
  );
}

export function Tour() {
  const card = useRef<HTMLDivElement>(null);
  const heading = useRef<HTMLHeadingElement>(null);
  const wasHere = useRef(false);
  const now = stop.value;
  const at = now ? here.value : -1;
  // Panes come and go: the stops are those whose part is on the page.
  useEffect(() => {
    const look = () => {
      const found = stops.value.map((each) => (isPossible(each) ? partOf(each.highlight) : null));
      const there = found.flatMap((part, place) => (part ? [place] : []));
      if (String(there) !== String(present.peek())) present.value = there;
      const [before, after] = [document.querySelector("[data-toured]"), found[here.peek()] ?? null];
      if (before !== after) before?.removeAttribute("data-toured");
      after?.setAttribute("data-toured", "");
    };
    look();
    const observer = new MutationObserver(look);
    observer.observe(document.getElementById("page")!, { childList: true, subtree: true });
    return () => observer.disconnect();
  }, [at, origin.value]);
  useEffect(() => {
    const part = now && partOf(now.highlight);
    if (part && card.current) reveal(part, card.current);
  }, [now, tour.value?.at, at, isDone.value, width.value]);
  useEffect(() => {
    if (now) heading.current?.focus({ preventScroll: true });
    else if (wasHere.current && document.activeElement === document.body) document.querySelector<HTMLElement>(".take-tour button")?.focus({ preventScroll: true });
    wasHere.current = Boolean(now);
  }, [now, at]);
  if (!now) return null;
  const place = present.value.indexOf(at);
  const [before, next] = [present.value[place - 1], present.value[place + 1]];
  const says = (text: string) => <p>{written(t(text))}</p>;
  return (
    <div class="tour" role="region" aria-labelledby="tour" ref={card}>
      <Group class="tour-stops" label={t("The stops of the tour")}>
        {present.value.map((each, which) => (
          <button aria-label={`${which + 1}: ${t(stops.value[each].title)}`} aria-current={each === at ? "step" : undefined} onClick={() => enter(each)}>
            <i style={each <= at ? { background: glass(PANES[which % PANES.length]).fill } : undefined} />
          </button>
        ))}
      </Group>
      <button class="tour-leave" aria-label={t("leave the tour")} title={t("leave the tour")} onClick={leave}>×</button>
      <p class="remark">
        {t("{place} of {count}", { place: place + 1, count: present.value.length })}
        {now.wait && <> · {isDone.value ? t("done") : t("your turn")}</>}
      </p>
      <h2 id="tour" tabIndex={-1} ref={heading}>{t(now.title)}</h2>
      <div aria-live="polite">
        {now.then && now.wait && isDone.value ? says(now.then) : says(now.sentence)}
        {now.then && !now.wait && says(now.then)}
      </div>
      <p>
        <button class="button" disabled={before === undefined} onClick={() => enter(before)}>{t("back")}</button>{" "}
        <button class={isDone.value ? "button on" : "button"} onClick={() => (next === undefined ? leave() : enter(next))}>{next === undefined ? t("finish") : t("next")}</button>{" "}
        <button class="said" onClick={() => goToPart(now.highlight, card.current!)}>{t("take me there")}</button>
      </p>
    </div>
  );
}

/** Letters whose glass the stops have. */
const PANES = "eatnhois";

/** Takes the reader to what can be used in a part. */
function goToPart(highlight: string, card: HTMLElement): void {
  const part = partOf(highlight);
  if (!part) return;
  reveal(part, card);
  part.querySelector<HTMLElement>("textarea, [tabindex='0'], button:not([tabindex='-1']), input")?.focus({ preventScroll: true });
}

/** A text of a stop: `code`, *emphasis*, and in braces what the model says now. */
const written = (text: string): ComponentChildren =>
  text.split(/(`[^`]+`|\*[^*]+\*|\{\w+\})/).map((piece, turn) => (turn % 2 === 0 ? piece : piece[0] === "{" ? said(piece.slice(1, -1)) : piece[0] === "*" ? <em>{piece.slice(1, -1)}</em> : <code>{piece.slice(1, -1)}</code>));

/** A token and how probable it is. */
const rated = (id: number, share: number) => <><Token id={id} /> (<span class="live">{number(100 * share, share < SMALL ? 1 : 0)} %</span>)</>;

/** What a place in braces says. */
function said(place: string): ComponentChildren {
  const { about } = origin.value!;
  if (place === "heads") return number(about.layers * about.heads, 0);
  if (place === "head") return <b>{`${block.value}.${head.value}`}</b>;
  if (!shown.value) return "…";
  const { ids, values, compared } = shown.value;
  const last = ids.length - 1;
  if (place === "last") return last ? rated(ids[last], Math.exp(-ratings(values, ids).losses[last])) : <Token id={ids[last]} />;
  const at = place === "expected" ? last - 1 : last;
  const { ids: first, shares } = saidBy((place === "unchanged" && compared) || values, "logits", ids.length, last);
  return first[at] >= 0 ? rated(first[at], shares[at]) : "…";
}
