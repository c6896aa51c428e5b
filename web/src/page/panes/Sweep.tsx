// Which place decides: every part at every token patched from another sentence, or switched off, one at a time.

import { batch } from "@preact/signals";
import { useMemo, useState } from "preact/hooks";
import { visible } from "../marks/colour";
import { widthOf } from "../marks/columns";
import { Lens, LensCell } from "../marks/lens";
import { reach } from "../marks/plain";
import { glass } from "../marks/theme";
import { largest } from "../rows";
import { edits, origin, shown, sweepFrom, sweepHeads, sweepPair } from "../state";
import { Answer, answer, asCsv, headsOf, madeOf, other, proposal, toggleCell } from "../sweep";
import { N, language, number, plural, rich, t } from "../words";
import { Figure } from "./Figure";
import { Group } from "./Group";
import { columns, gutter, narrow, tokens } from "./layout";
import { contributionName, Field, Live, pythonic, quoted, Rivals, Token } from "./pieces";

/** Tokens to choose from, the likeliest after each sentence. */
const OFFERED = 8;
/** From these widths on a cell has its number, and a second digit after the separator. */
const [LEGIBLE, WIDE] = [27, 40];

export function Sweep() {
  const [from, now] = [sweepFrom.value, answer.value];
  const pressed = (name: string, isChosen: boolean, onClick: () => void) => <button aria-pressed={isChosen} onClick={onClick}>{name}</button>;
  const open = (text: string | null) => batch(() => ([sweepFrom.value, sweepPair.value] = [text, null]));
  const [isBusy, setBusy] = useState(false);
  const propose = async () => {
    const asked = shown.value;
    setBusy(true);
    const text = await proposal().catch(() => null); // the map, which asks the same server, says why
    if (text && shown.value?.ids === asked?.ids && sweepFrom.value === from) open(text);
    setBusy(false);
  };
  return (
    <section class="sweep" aria-labelledby="sweep" aria-busy={isBusy}>
      <div class="prose">
        <h2 id="sweep">{t("Which place decides?")}</h2>
        <p>{t("Change what one part of the model makes of one token, and see how far the choice between two next tokens moves: put in what that part makes of another sentence, or zero. The map does so for every part and every token.")}</p>
      </div>
      <div class="controls">
        <span>{t("What is put in:")}</span>
        <Group class="steps" label={t("What is put in:")}>
          {pressed(t("nothing"), from === null, () => open(null))}
          {pressed(t("another sentence"), Boolean(from), () => from || void propose())}
          {pressed(t("zeros"), from === "", () => from === "" || open(""))}
        </Group>
        {from !== null && headsOf(origin.value!.about).length > 0 && (
          <Group class="steps" label={t("Rows of the map")}>
            {pressed(t("layers"), !sweepHeads.value, () => (sweepHeads.value = false))}
            {pressed(t("heads"), sweepHeads.value, () => (sweepHeads.value = true))}
          </Group>
        )}
      </div>
      {from && <TheOther text={from} />}
      {from !== null && now && <Picture now={now} />}
    </section>
  );
}

function TheOther({ text }: { text: string }) {
  const known = other.value?.text === text ? other.value.encoded : null;
  const missing = known ? shown.value!.ids.length - known.ids.length : 0;
  return (
    <p class="controls">
      <Field label={t("the other sentence")} text={text} onText={(typed) => {
        if (typed) sweepFrom.value = typed; // an empty field is not yet a sentence
      }} />
      <span role="status">
        {known && known.unseen.length > 0 ? t("The model has never seen {which}.", { which: known.unseen.join(" ") })
          : missing > 0 ? plural(missing, "{n} token is missing: both sentences have equally many.", "{n} tokens are missing: both sentences have equally many.")
          : missing < 0 && plural(-missing, "{n} token is too many: both sentences have equally many.", "{n} tokens are too many: both sentences have equally many.")}
      </span>
    </p>
  );
}

function Picture({ now }: { now: Answer }) {
  const { about } = origin.value!;
  const { ids, from, others, pair, places, own, theirs, effects, isSame } = now;
  const count = ids.length;
  const names = useMemo(() => places.map(({ at, head }) => (head === undefined ? contributionName(at) : t("head {head}", { head: `${at.split(".")[1]}.${head}` }))), [places, language.value]);
  const most = reach(effects, others ? 1 : 1e-6);
  const made = useMemo(() => Array.from(effects.keys()).filter((cell) => madeOf(now, cell)), [now, effects, edits.value]);
  const rows = useMemo(() => {
    const line = (row: readonly number[]) => row.map((id, at): LensCell => ({ token: about.tokens[id], probability: !others || ids[at] !== others[at] ? 1 : 0.1 }));
    const written = (value: number, room: number) => {
      const digits = room < WIDE ? 1 : 2;
      return room < LEGIBLE || Math.abs(value) < 0.5 * 10 ** -digits ? "" : number(value, digits);
    };
    const cell = (value: number, at: number): LensCell | null => Number.isNaN(value) ? null : {
      token: written(value, widthOf(columns.value, at % count)), glass: glassFor(value), probability: strength(value, most), right: made.includes(at),
    };
    return [
      ...(others ? [{ name: t("the other sentence"), cells: line(others) }] : []), { name: t("this sentence"), cells: line(ids) },
      ...names.map((name, row) => ({ name, cells: Array.from(effects.subarray(row * count, (row + 1) * count), (value, at) => cell(value, row * count + at)) })),
    ];
  }, [about, ids, others, names, effects, made, most, count, columns.value, language.value]);
  if (count !== tokens.value.length) return null;
  const above = rows.length - places.length;
  const label = others ? t("How much of the other sentence's difference each place restores") : t("How far the difference moves without each place");
  return (
    <>
      <div class="prose">
        <Rivals offered={[...largest(own, OFFERED), ...largest(theirs, OFFERED)]} pair={pair} onPick={(next) => next[0] !== next[1] && (sweepPair.value = next)} />
        <p><Told now={now} names={names} /></p>
      </div>
      {!isSame && (
        <Figure id="sweep" label={label} csv={() => asCsv(now, about)}
          python={`run.sweep(${quoted()}${others ? `, ${pythonic(from)}` : ""}, tokens=(${pair.map((id) => pythonic(origin.value!.decode([id]))).join(", ")})${places[0].head === undefined ? "" : ', by="head"'})`}
          caption={<>
            {[-1, -0.5, 0, 0.5, 1].map((share) => {
              const { fill, ink } = glass(glassFor(share), strength(share, 1));
              return <b class="glass" style={{ background: fill, color: ink }}>{number(share * most)}</b>;
            })}{" "}
            {others ? t("A cell is (difference with the patch − difference here) / (difference there − difference here): 0 where nothing is restored, 1 where all is, more where it goes beyond.")
              : t("A cell is the difference with that part zero at that token, less the difference as it is.")}{" "}
            {t("Choose a cell to make its change in the whole page, and again to undo it.")}{" "}
            {edits.value.length > 0 && t("The map is of the unchanged model.")}
          </>}>
          <div class="in-gutter">
            <Lens label={label} rows={rows} columns={columns.value} gutter={gutter.value} tall={narrow.value ? 42 : 30} picked={{ row: above + places.length - 1, column: count - 1 }}
              onPick={({ row, column }) => row >= above && toggleCell(now, (row - above) * count + column)}
              say={(row, column) => row < above ? visible(rows[row].cells[column]!.token) : t("{place}, {token}: {value}", { place: rows[row].name, token: visible(tokens.value[column]), value: number(effects[(row - above) * count + column], 3) })} />
          </div>
        </Figure>
      )}
    </>
  );
}

/** Cobalt is more, amber is less. */
const glassFor = (value: number): string => (value < 0 ? "i" : "t");
const strength = (value: number, most: number): number => Math.min(1, Math.abs(value) / most) ** 0.75;

/** What is compared, and where most of it is decided. */
function Told({ now: { ids, pair, others, places, before, after, effects, isSame }, names }: { now: Answer; names: readonly string[] }) {
  const { tokens } = origin.value!.about;
  const known = effects.reduce((count, each) => count + (Number.isNaN(each) ? 0 : 1), 0);
  const size = (cell: number) => (others ? effects[cell] : Math.abs(effects[cell]));
  const best = (first: number) => effects.reduce((most, _, cell) => (cell > first && size(cell) > size(most) ? cell : most), first);
  const [all, later] = [best(0), best(places[0].at === "embed" ? ids.length : 0)];
  const told = (cell: number) => ({ place: <em>{names[Math.floor(cell / ids.length)]}</em>, token: <Token id={ids[cell % ids.length]} />, value: <Live value={effects[cell]} token={tokens[ids[cell % ids.length]]} /> });
  const pane = { one: <Token id={pair[0]} />, other: <Token id={pair[1]} />, before: <Live value={before} />, after: <Live value={after} /> };
  return (
    <>
      {others ? rich("The logit of {one} less that of {other} is {before} after this sentence and {after} after the other.", pane) : rich("The logit of {one} less that of {other} is {before}.", pane)}{" "}
      {isSame ? t("These are equal, so nothing can be restored: choose other tokens, or another sentence.")
        : known < effects.length ? t("{known} of {all} cells are computed.", { known, all: effects.length })
        : <>{rich(others ? N("Most is restored by {place} at {token}: {value}.") : N("It changes most without {place} at {token}: by {value}."), told(all))}{" "}
            {later !== all && rich("Of the parts after it, {place} at {token} has the largest effect: {value}.", told(later))}</>}
    </>
  );
}
