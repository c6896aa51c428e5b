// What the model says of a sentence that it does not continue: what fills each gap, or which label fits.

import { useMemo } from "preact/hooks";
import { softmax } from "../decoding/filters";
import { BarList } from "../marks/bars";
import { visible } from "../marks/colour";
import { largest, rowOf } from "../rows";
import { About, Values, offset } from "../source";
import { Shown, fillIn, gapAt, gapsIn, hide, inText, origin, position, shown } from "../state";
import { number, ordinal, plural, rich, t } from "../words";
import { Figure } from "./Figure";
import { width } from "./layout";
import { Live, Token, command, quoted, traced } from "./pieces";

/** Fillings of a gap, as many as `vitral fill` lists; tokens on both sides that say which gap it is. */
const [MOST_ROWS, AROUND] = [5, 4];
const WIDEST = 340;

/** The probability of each token in a gap, as of `vitral fill`; −1 of those that fill none. */
export function fillings(about: About, values: Values, gap: number): Float64Array {
  const shares = softmax(rowOf(values, "logits", gap - offset(about)));
  for (const id of [...about.specials, about.fills!.mask]) shares[id] = -1;
  return shares;
}

/** The likeliest, and by a tick what the unchanged model says. */
function Ranked({ label, names, shares, before, onPick }: { label: string; names: string[]; shares: Float64Array; before: Float64Array | null; onPick?(id: number): void }) {
  const order = largest(shares, MOST_ROWS).filter((id) => shares[id] >= 0);
  const rows = order.map((id) => ({ token: names[id], value: shares[id], after: number(shares[id], 3), tick: before?.[id] }));
  return (
    <BarList label={label} rows={rows} width={Math.min(WIDEST, width.value - 16)} onPick={onPick && (({ row }) => onPick(order[row]))}
      say={(at) => t("{token}: {probability}", { token: visible(rows[at].token), probability: rows[at].after })} />
  );
}

export function Gaps() {
  const now = shown.value!;
  const { about } = now.from;
  const gaps = gapsIn(about, now.ids);
  if (!about.fills) return null;
  const spot = gapAt(position.value) ?? position.value;
  return (
    <section aria-labelledby="gaps">
      <div class="prose">
        <h2 id="gaps">{gaps.length ? plural(gaps.length, "What fills the gap?", "What fills the gaps?") : t("Hide a token: what would fill the gap?")}</h2>
        <p>
          {about.fills.ahead ? t("This model continues a text. Where there is a gap, every token sees all others, and a hidden token is predicted at the place before it.")
            : t("It was trained to say which token is hidden, from what stands around it. [MASK] in the text is a gap, too.")}{" "}
          {inText(spot) && now.truth[spot] !== about.fills.mask && (
            <button class="said" onClick={() => hide(spot)}>{rich(gaps.includes(spot) ? "show {token} again" : "hide {token}", { token: <Token id={now.truth[spot]} /> })}</button>
          )}
        </p>
      </div>
      {gaps.length > 0 && (
        <Figure id="gaps" label={t("The likeliest fillings. Enter puts one into the sentence.")} command={command("fill")} python={`run.fill(${quoted()})`}
          caption={<>{t("Probability, with all gaps empty.")} {now.compared && t("The tick: the unchanged model.")}</>}>
          <div class="controls fillings">{gaps.map((gap) => <Gap now={now} gap={gap} key={gap} />)}</div>
        </Figure>
      )}
    </section>
  );
}

function Gap({ now, gap }: { now: Shown; gap: number }) {
  const { from: { about }, ids, truth, values, compared } = now;
  const shares = useMemo(() => fillings(about, values, gap), [about, values, gap]);
  const before = useMemo(() => compared && fillings(about, compared, gap), [about, compared, gap]);
  const own = shares[truth[gap]];
  return (
    <div>
      <p>{ids.slice(Math.max(0, gap - AROUND), gap + AROUND + 1).map((id) => <Token id={id} />)}</p>
      {own >= 0 && <p>{rich("Hidden is {token}: p = {probability}, its {rank} guess.", { token: <Token id={truth[gap]} />, probability: <Live value={own} digits={3} token={about.tokens[truth[gap]]} />, rank: ordinal(1 + shares.filter((each) => each > own).length) })}</p>}
      <Ranked label={t("What fills the gap at position {position}", { position: gap })} names={about.tokens} shares={shares} before={before} onPick={(id) => fillIn(gap, id)} />
    </div>
  );
}

export function Labels() {
  const { labels } = origin.value!.about;
  const { values, compared } = shown.value!;
  if (!labels) return null;
  const [shares, before] = [values, compared].map((each) => each && softmax(each.logits.data));
  const label = t("Which label fits?");
  return (
    <section aria-labelledby="labels">
      <div class="prose">
        <h2 id="labels">{label}</h2>
        <p>{t("The head reads the mean of all last panes: each token has a share in the answer.")}</p>
      </div>
      <Figure id="labels" label={label} command={command("generate", "--source")} python={`${traced("logits", "0")}.softmax(-1)`} caption={before && t("The tick: the unchanged model.")}>
        <div class="controls"><Ranked label={label} names={labels} shares={shares!} before={before} /></div>
      </Figure>
    </section>
  );
}
