// The stream read off as a token after every half-layer, its length, and what each part says of one token rather than another.

import { useCallback, useMemo } from "preact/hooks";
import { attribution, lengthAt } from "../compute/readings";
import { visible } from "../marks/colour";
import { Lens } from "../marks/lens";
import { Walk } from "../marks/walk";
import { show } from "../numbers/opened";
import { largest, rowOf } from "../rows";
import { LENS, offset } from "../source";
import { chosen, position, rivals, shown, origin } from "../state";
import { saidBy } from "../wanted";
import { language, number, plural, rich, t } from "../words";
import { Figure } from "./Figure";
import { columns, gutter, margin, narrow, tokens, width } from "./layout";
import { contributionName, explained, Live, placeName, quoted, Rivals, Token, traced } from "./pieces";

export { placeName } from "./pieces";

const OFFERED = 12;

export function Stream() {
  const { about } = origin.value!;
  const { ids, truth: real, values, compared } = shown.value!;
  const at = position.value;
  const [far, isGaps] = [offset(about), about.task === "gaps"];
  const last = about.stream.length - 1;
  // What the lens reads off the last stream are the logits.
  const read = useCallback((name: string) => (name === about.stream[last] && !values[LENS + name] ? "logits" : name), [about, last, values]);
  const lines = useMemo(() => about.stream.map((name) => saidBy(values, read(name), ids.length, at)), [about, values, read, ids, at]);
  const before = useMemo(() => compared && about.stream.map((name) => saidBy(compared, read(name), ids.length, at)), [about, compared, read, ids, at]);
  const isWhole = lines.every((line) => line.ids.every((id) => id >= 0));
  const lengths = useMemo(() => about.stream.map((name) => lengthAt(values, name, at)), [about, values, at]);
  const rows = useMemo(() => about.stream.map((name, line) => ({
    name: placeName(name),
    note: `${number(lines[line].shares[at])}   ‖${number(lengths[line], 1)}‖`,
    cells: ids.map((_, place) => ({
      token: about.tokens[lines[line].ids[place]] ?? "", probability: lines[line].shares[place] || 0, right: lines[line].ids[place] === real[place + far] && real[place + far] !== about.fills?.mask,
      changed: before !== null && before[line].ids[place] !== lines[line].ids[place],
    })),
  })), [about, ids, real, far, lengths, lines, before, at, language.value]);
  const truth = useMemo(() => [...real.slice(far).map((id) => (id === about.fills?.mask ? "" : about.tokens[id])), ...Array<string>(far).fill("")], [real, far, about]);
  const right = ids.slice(1).filter((id, place) => lines[last].ids[place] === id).length;
  const late = ids.slice(1).filter((id, place) => lines[last].ids[place] === id && lines.slice(0, -1).every((line) => line.ids[place] !== id)).length;
  const label = t("What the stream says after every half-layer, read by the model's own head.");
  return (
    <section aria-labelledby="stream">
      <div class="prose">
        <h2 id="stream">{t("When does it know?")}</h2>
        <p>
          {t("Read the stream off as a token after every half-layer, and watch it make up its mind.")}{" "}
          {isGaps ? t("Outlined: the token that stands there. Only of hidden tokens has the model learned what they are.") : t("Outlined: the token that really came.")}{" "}
          {ids.length > 1 && !isGaps && (isWhole
            ? plural(ids.length - 1, "{right} of {n} token ends right, {late} only in the last half-layer.", "{right} of {n} tokens end right, {late} of them only in the last half-layer.", { right, late })
            : plural(ids.length - 1, "{right} of {n} token ends right.", "{right} of {n} tokens end right.", { right }))}{" "}
          {rich(far ? "After {token} it first says {first}, and ends with {end} {probability}." : "At {token} it first says {first}, and ends with {end} {probability}.", {
            token: <Token id={ids[at]} />, first: <Token id={lines[0].ids[at]} />, end: <Token id={lines[last].ids[at]} />, probability: <Live value={lines[last].shares[at]} token={about.tokens[lines[last].ids[at]]} />,
          })}
        </p>
      </div>
      <Figure id="lens" command={explained()} label={label} python={isGaps ? undefined : `run.inspect(${quoted()})["lens"]`}
        caption={<>{t("Each cell is the likeliest token there, in its glass, as strong as it is likely. At the right of the chosen column: the probability, and between bars the length of the stream.")}{" "}{t("Choose a cell to choose its column, and once more to open its sum.")}{" "}{before && t("A dark corner marks a cell that says something else in the unchanged model.")}</>}>
        <div class="in-gutter">
          <Lens label={label} rows={rows} columns={columns.value} truth={truth} chosen={at} gutter={gutter.value} margin={narrow.value ? 0 : margin.value + 34} after={isGaps ? t("what stands there") : t("what came next")}
            tall={narrow.value ? 42 : 30} picked={{ row: last, column: at }} onPick={({ row, column }) => {
              const name = LENS + about.stream[row];
              if (column === at) show(name, [0, at, lines[row].ids[at]]);
              else chosen.value = column;
            }}
            say={(line, column) => t(lines[line].ids[column] < 0 ? "{place}, after {token}" : far ? "{place}, after {token}: {said} with {probability}" : "{place}, at {token}: {said} with {probability}", { place: placeName(about.stream[line]), token: visible(tokens.value[column]), said: visible(about.tokens[lines[line].ids[column]] ?? ""), probability: number(lines[line].shares[column]) })} />
        </div>
      </Figure>
      <Rather />
    </section>
  );
}

function Rather() {
  const { about } = origin.value!;
  const { values, compared } = shown.value!;
  const at = position.value;
  const logits = rowOf(values, "logits", at);
  const offered = largest(logits, OFFERED);
  const known = (id: number) => id >= 0 && id < about.vocabulary;
  const [first, second] = rivals.value;
  const one = known(first) ? first : offered[0];
  const other = known(second) && second !== one ? second : offered.find((id) => id !== one)!;
  const made = useMemo(() => attribution(values, about, at, one, other), [values, about, at, one, other]);
  const before = useMemo(() => compared && attribution(compared, about, at, one, other).total, [compared, about, at, one, other]);
  const terms = useMemo(() => made.terms.map(({ name, value }) => ({ name: name === null ? t("biases") : made.kind === "parts" ? contributionName(name) : placeName(name), value })), [made, language.value]);
  const extreme = (sign: number) => made.terms.reduce((best, term, place) => (sign * term.value > sign * made.terms[best].value ? place : best), 0);
  const [up, down] = [extreme(1), extreme(-1)];
  const named = (id: number) => <Token id={id} />;
  const label = t("What each part of the stream says of one token rather than the other");
  if (other === undefined) return null;
  return (
    <>
      <div class="prose">
        <h3>{rich("Why {one} rather than {other}?", { one: named(one), other: named(other) })}</h3>
        <p>
          {made.kind === "parts" ? t("Each part of the stream pushes.") : t("In this model a norm lies between the parts and the stream, so these are the steps of the lens.")}{" "}
          {made.terms[up].value > 0 && rich(made.terms[down].value < 0 ? "{part} says {one} by {value}," : "{part} says {one} by {value}.", { part: <em>{terms[up].name}</em>, one: named(one), value: <Live value={made.terms[up].value} token={about.tokens[one]} /> })}{" "}
          {made.terms[down].value < 0 && rich("{part} says {other} by {value}.", { part: <em>{terms[down].name}</em>, other: named(other), value: <Live value={-made.terms[down].value} token={about.tokens[other]} /> })}{" "}
          {rich("The sum is {total}: odds of {odds} to 1.", { total: <Live value={made.total} />, odds: <Live value={Math.exp(Math.abs(made.total))} token={about.tokens[made.total >= 0 ? one : other]} /> })}{" "}
          {before !== null && rich("In the unchanged model it is {total}.", { total: <Live value={before} /> })}
        </p>
        <Rivals offered={offered} pair={[one, other]} onPick={(pair) => (rivals.value = pair)} />
      </div>
      <Figure id="rather" command={explained()} label={label} python={`logits = ${traced("logits", `0, ${at}`)}; logits[${one}] - logits[${other}]`}
        caption={made.kind === "parts"
          ? t("A logit is a token's score before softmax makes probabilities of all scores. Here is the logit of one token less that of the other, as a sum of what the embedding and every half-layer wrote to this stream, with the final norm's scale held at this position; the biases of the final norm and of the head are the last step. The terms sum to the difference.")
          : t("Each step is how far the lens moves in that half-layer. The steps sum to the difference of the logits.")}>
        <Walk label={label} terms={terms} total={made.total} width={Math.min(width.value, 1040)} plus={about.tokens[one]} minus={about.tokens[other]}
          gutter={gutter.value} say={(line) => `${terms[line].name}: ${number(terms[line].value, 4)}`} />
      </Figure>
    </>
  );
}
