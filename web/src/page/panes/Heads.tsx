// All heads as thumbnails, one of them large at any step of attention; the picked row as arcs over the sentence.

import { useCallback, useEffect, useLayoutEffect, useMemo, useState } from "preact/hooks";
import { brought, byLength, differences, headMap } from "../compute/readings";
import { Arcs } from "../marks/arcs";
import { visible } from "../marks/colour";
import { Heat } from "../marks/heat";
import { Thumbnail, Thumbnails } from "../marks/thumbnails";
import { STEPS, Step, block, chosen, guessing, head, isOff, looks, origin, position, shown, step, text, toggle, trail } from "../state";
import { anatomy, current, go, goTo, open } from "../numbers/opened";
import { isMap } from "../numbers/saying";
import { digitsOf, leaves } from "../numbers/telling";
import { row } from "../rows";
import { asking } from "../tour";
import { headOf, saidBy } from "../wanted";
import { N, Sentence, language, number, rich, t } from "../words";
import { Remote } from "../numbers/opening";
import { About, BROUGHT, POOLED, Values, seesAll } from "../source";
import { Figure, Line } from "./Figure";
import { Group } from "./Group";
import { columns, gutter, narrow, room, tokens } from "./layout";
import { Equation } from "./Numbers";
import { explained, Live, Said, Token, traced } from "./pieces";

const STEP_NAMES: Record<Step, Sentence> = { scores: N("scores"), scaled: N("scaled"), masked: N("masked"), weights: N("weights") };
const STEP_SENTENCES: Record<Step, Sentence> = {
  scores: N("query times key, summed"),
  scaled: N("scores times the scale"),
  masked: N("later tokens cannot be looked at"),
  weights: N("softmax: each row sums to 1"),
};
/** What heads do, as `vitral.inspection` names it, and in a sentence. */
const KINDS: Record<string, [Sentence, Sentence]> = {
  itself: [N("itself"), N("Head {head} mostly looks at the token itself.")],
  previous: [N("previous"), N("Head {head} mostly looks at the token just before.")],
  near: [N("near"), N("Head {head} mostly looks two to four tokens back.")],
  first: [N("first"), N("Head {head} mostly looks at the first token.")],
  same: [N("same"), N("Head {head} mostly looks for earlier occurrences of the same token.")],
  "after same": [N("after same"), N("Head {head} looks for an earlier occurrence of the same token, and copies what followed it: an induction head.")],
  word: [N("word"), N("Head {head} mostly looks at where the word began.")],
  line: [N("line"), N("Head {head} mostly looks at where the line began.")],
  broad: [N("broad"), N("Head {head} spreads its attention over many tokens.")],
};

/** The tour asks the reader to find a kind: until then no map is named. */
const kindOf = (kind: string | undefined): string | undefined => (kind === undefined || asking.value === "previous head" ? undefined : KINDS[kind] ? t(KINDS[kind][0]) : kind);

/** What the chosen head does, as far as that is known. */
export function Habit() {
  const kind = origin.value!.about.kinds?.[block.value]?.[head.value];
  return kind !== undefined && KINDS[kind] && asking.value !== "previous head" ? <>{t(KINDS[kind][1], { head: `${block.value}.${head.value}` })}</> : null;
}

/** Above so many tokens a head has a map of its own, which can be enlarged: in the grid its cells would be thinner than a letter. */
const MOST_IN_GRID = 72;
const WIDEST_MAP = 720;
/** Room that a pair of tokens needs beside the map, and a number under a column. */
const [LEAST_BESIDE, LEAST_NUMBER] = [210, 36];
/** The weight below which a second token is not named. */
const LEAST_TOLD = 0.005;

export function Heads() {
  const { about } = origin.value!;
  const { ids, values, compared, edits } = shown.value!;
  const small = useCallback((layer: number) => values[`${POOLED}blocks.${layer}.attn.weights`], [values]);
  const layers = useMemo(() => Array.from({ length: about.layers }, (_, layer) => layer).filter((layer) => values[`blocks.${layer}.attn.weights`] ?? small(layer)), [about, values, small]);
  const at = position.value;
  const count = ids.length;
  let [which, layer] = [head.value, layers.includes(block.value) ? block.value : (layers[0] ?? 0)];
  // Until the map of a head that was just chosen is here, that of the last one is shown.
  const before = small(layer) && !headOf(values, `blocks.${layer}.attn.weights`, which) && Object.keys(values).join().match(/(\d+)\.attn\.weights#(\d+)/);
  if (before) [layer, which] = [Number(before[1]), Number(before[2])];
  const base = `blocks.${layer}.attn`;
  const maps = useMemo(() => layers.map((each) => Array.from({ length: about.heads }, (_, head) => ({
    values: small(each) ? headMap(small(each), true, undefined, head) : headMap(values[`blocks.${each}.attn.weights`], true, values[`blocks.${each}.attn.masked`], head),
    name: `${each}.${head}`, kind: kindOf(about.kinds?.[each]?.[head]), off: isOff(`blocks.${each}.attn.z`, head) || isOff(`blocks.${each}.attn.out`),
  }))), [about, layers, small, values, edits, language.value, asking.value]);
  const [change, isByLength] = [looks.change.value, looks.length.value];
  const [guess, setGuess] = useState<"off" | "asked" | number>("off");
  useEffect(() => setGuess((now) => (typeof now === "number" ? "off" : now)), [text.value, at, which, layer]);
  useLayoutEffect(() => {
    guessing.value = guess === "asked";
    return () => (guessing.value = false);
  }, [guess]);
  // Of a block that was just chosen only the weights may be here.
  const now = headOf(values, `${base}.${step.value}`, which) ? step.value : "weights";
  const mapOf = useCallback((from: Values, name: (typeof STEPS)[number]) => {
    const [own, masked] = [headOf(from, `${base}.${name}`, which), headOf(from, `${base}.masked`, which)];
    return own && headMap(own[0], name === "weights", name === "weights" ? masked?.[0] : undefined, own[1]);
  }, [base, which]);
  const hasChange = change && compared !== null;
  const map = useMemo(() => {
    const [own, old] = [mapOf(values, now), hasChange && mapOf(compared!, now)];
    return own && old ? differences(own, old) : own;
  }, [mapOf, values, now, hasChange, compared]);
  const weights = useMemo(() => (small(layer) ? mapOf(values, "weights") : maps[layers.indexOf(layer)]?.[which]?.values), [small, mapOf, values, maps, layers, layer, which]);
  if (!map || !weights) {
    return (
      <section aria-labelledby="heads">
        <div class="prose"><h2 id="heads">{t("Heads")}</h2><p>{withoutHeads(about)}</p></div>
      </section>
    );
  }
  const seen = weights.subarray(at * count, (at + 1) * count);
  const isLong = count > MOST_IN_GRID;
  const ranked = Array.from(seen, (_, source) => source).filter((source) => !Number.isNaN(seen[source])).sort((one, other) => seen[other] - seen[one]);
  const hidden = guess === "asked";
  const lengths = lengthsOf(values, base, which);
  const arcs = isByLength && lengths ? byLength(weights, lengths) : weights;
  const said = saidBy(values, "logits", count, at);
  const old = compared && saidBy(compared, "logits", count, at);
  const end = about.labels ? 0 : at; // a label is said of the whole text
  const kind = now === "weights" && !hasChange ? "share" : "signed";
  const off = isOff(`${base}.z`, which);
  const pick = (source: number) => setGuess(source);
  const [root] = trail.value;
  const isOfRow = root && root.name.startsWith(`${base}.`) && isMap(root.name) && root.index[1] === which && root.index[2] === at && root.index[3] < count;
  const pair = isOfRow ? root.index[3] : (ranked[0] ?? at);
  /** Room at the right of the map. */
  const wide = narrow.value ? 0 : room.value - (isLong ? Math.min(WIDEST_MAP, room.value) : columns.value.edges[count]) - 32;
  const large = t("Head {head} of block {block}: a row for each token that looks, a column for each that is looked at", { head: which, block: layer });
  const token = (source: number) => visible(tokens.value[source]);
  return (
    <section aria-labelledby="heads">
      <div class={narrow.value ? "" : "beside"}>
        <div class="prose">
          <h2 id="heads">{t("A head decides who looks at whom.")}</h2>
          {hidden ? <p>{rich("Head {head} reads {token}. Which token will it look at? Choose it in the row of arcs.", { head: <b>{`${layer}.${which}`}</b>, token: <Token id={ids[at]} /> })}</p> : (
            <p>
              {typeof guess === "number" && <span class="game">{rich(guess === ranked[0] ? "Right: {token}." : "You said {token}: {weight}.", { token: <Token id={ids[guess]} />, weight: <Live value={seen[guess] || 0} token={tokens.value[guess]} /> })}{" "}</span>}
              {ranked.length > 1
                ? rich(ranked.length > 2 && seen[ranked[1]] >= LEAST_TOLD ? "In head {head} the token {token} looks at {first} with {most}, at {second} with {next}, all others together {rest}." : "In head {head} the token {token} looks at {first} with {most}, all others together {rest}.", {
                  head: <b>{`${layer}.${which}`}</b>, token: <Token id={ids[at]} />, first: <Token id={ids[ranked[0]]} />, most: <Live value={seen[ranked[0]]} token={tokens.value[ranked[0]]} />,
                  second: <Token id={ids[ranked[1]]} />, next: <Live value={seen[ranked[1]]} token={tokens.value[ranked[1]]} />,
                  rest: <Live value={ranked.slice(ranked.length > 2 && seen[ranked[1]] >= LEAST_TOLD ? 2 : 1).reduce((sum, source) => sum + seen[source], 0)} />,
                })
                : rich("In head {head} the token {token} can only look at itself.", { head: <b>{`${layer}.${which}`}</b>, token: <Token id={ids[at]} /> })}{" "}
              <Habit />
            </p>
          )}
          <p>
            <button class="said" onClick={() => setGuess(hidden ? "off" : "asked")}>{hidden ? t("show it") : t("guess first")}</button>{" "}
            <button class="said" aria-pressed={off} onClick={() => toggle(`${base}.z`, which)}>{off ? t("switch it on") : t("switch it off")}</button>{" "}
            {old && (old.ids[end] === said.ids[end]
              ? rich("The prediction {token} goes from {before} to {after}.", { token: <Said id={said.ids[end]} />, before: <Live value={old.shares[end]} />, after: <Live value={said.shares[end]} /> })
              : rich("The prediction was {old} with {before}; now it is {token} with {after}.", { old: <Said id={old.ids[end]} />, before: <Live value={old.shares[end]} />, token: <Said id={said.ids[end]} />, after: <Live value={said.shares[end]} /> }))}
          </p>
        </div>
        <Figure id="heads" command={explained()} label={t("All heads of the model")} python={traced(`${base}.weights`, "0")}>
          <AllHeads maps={maps} layers={layers} picked={{ row: layers.indexOf(layer), column: which }} />
        </Figure>
      </div>
      <Figure id="head" command={explained()} label={large}
        python={traced(`${base}.${step.value}`, `0, ${which}, ${at}`)}
        caption={t("A row looks, a column is looked at and lends its colour; brightness is the square root of the weight, lead is minus. Faint arcs are those of the other tokens. Choose a cell to open its number.")}>
        <Line name={<><b>{t("head {head}", { head: `${layer}.${which}` })}</b><br /><small>{maps[layers.indexOf(layer)][which].kind}</small></>}>
          <Arcs label={hidden ? t("Choose the token that it will look at") : t("Whom {token} looks at", { token: token(at) })} tokens={tokens.value} columns={columns.value} weights={hidden ? NOTHING : arcs} row={at}
            onPick={({ column }) => (hidden ? (column <= at || seesAll(about)) && pick(column) : (chosen.value = column))}
            say={(source) => (hidden ? token(source) : `${token(at)} → ${token(source)}: ${Number.isNaN(seen[source]) ? "–" : number(arcs[at * count + source], 3)}`)} />
          {lengths && !hidden && (
            <p class="steps">
              <button class="said" aria-pressed={isByLength} onClick={() => (looks.length.value = !isByLength)}>{t("weight × length of the value")}</button>
              {isByLength && <em>{t("A weight times ‖v W‖, the length of what that token brings, as a share of the row: a large weight on a short value moves little.")}</em>}
            </p>
          )}
        </Line>
        <Line name={<>{t("step")}</>}>
          <Group class="steps" label={t("Step of attention")}>
            {STEPS.map((each, place) => (
              <>
                {place > 0 && <span aria-hidden="true">→</span>}
                <button aria-pressed={each === step.value} onClick={() => (step.value = each)}>{t(STEP_NAMES[each])}</button>
              </>
            ))}
            {compared && <button aria-pressed={change} onClick={() => (looks.change.value = !change)}>{t("change")}</button>}
            <em>{hasChange ? t("now less before") : t(step.value === "masked" && seesAll(about) ? "no token is hidden from another" : STEP_SENTENCES[step.value])}</em>
          </Group>
        </Line>
        <div class={wide < LEAST_BESIDE ? "in-gutter" : "in-gutter with-pair"} style={{ marginLeft: isLong ? `${gutter.value}px` : undefined }}>
          <Heat label={large} values={hidden ? map.map((each, place) => (Math.floor(place / count) === at ? NaN : each)) : map}
            tokens={tokens.value} kind={kind} columns={isLong ? undefined : columns.value} width={Math.min(WIDEST_MAP, room.value)} row={at} gutter={gutter.value} picked={{ row: at, column: hidden ? at : pair }}
            say={({ row: time, column }) => `${token(time)} → ${token(column)}: ${number(map[time * count + column], 4)}`} onPick={(spot) => { chosen.value = spot.row; open(`${base}.${now}`, [0, which, spot.row, spot.column]); }} />
          {!hidden && <Pair base={base} which={which} row={at} column={pair} beside={wide >= LEAST_BESIDE} />}
        </div>
        {isLong && <p class="remark">{t("Ctrl and the wheel, or + and −, enlarge the map; drag it to move it, 0 shows all of it.")}</p>}
        {!hidden && !isLong && columns.value.edges[count] / count > LEAST_NUMBER && (
          <div class="in-gutter numbers-row" aria-hidden="true" style={{ paddingLeft: `${gutter.value}px` }}>
            <span class="row-name" style={{ width: `${gutter.value - 12}px` }}>{t("the row")}</span>
            {ids.map((_, source) => {
              const wide = columns.value.edges[source + 1] - columns.value.edges[source];
              return <span style={{ width: `${wide}px` }} class={source === ranked[0] && step.value === "weights" ? "most" : ""}>{wide > LEAST_NUMBER && !Number.isNaN(map[at * count + source]) ? number(Number(map[at * count + source].toFixed(2))) : ""}</span>;
            })}
          </div>
        )}
      </Figure>
    </section>
  );
}

const NOTHING = new Float64Array();

/** What is so without attention. */
function withoutHeads({ contributions, model, loss, baselines = [], task }: About): string {
  const pairs = baselines.find(({ order }) => order === 2);
  const none = t("This model has no attention.");
  if (contributions.some((part) => part.endsWith("recurrence.out"))) return `${none} ${t("An LSTM carries what it has read from token to token.")}`;
  if (task) return none;
  const alone = t(["learned", "sinusoidal"].includes(String(model.positions)) ? "Every guess depends on the last token and its position alone, like a table of pairs." : "Every guess depends on the last token alone, like a table of pairs.");
  const losses = loss !== undefined && pairs ? t("Its loss is {loss} nats per token, that of the table {table}.", { loss: number(loss, 3), table: number(pairs.loss, 3) }) : "";
  return `${none} ${alone} ${losses}`;
}

/** One token that looks and one that is looked at: their numbers from step to step, and the one that is open, beside the map. */
function Pair({ base, which, row, column, beside }: { base: string; which: number; row: number; column: number; beside: boolean }) {
  const { ids, values } = shown.value!;
  const index = [0, which, row, column];
  const numbers = STEPS.flatMap((name) => {
    const map = headOf(values, `${base}.${name}`, which);
    return map ? [{ name, value: map[0].data[(map[1] * ids.length + row) * ids.length + column] }] : [];
  });
  const opened = current.value;
  const isOpen = (name: string) => opened?.spot.name === `${base}.${name}` && String(opened.spot.index) === String(index) && !opened.spot.path.length;
  return (
    <div class={beside ? "pair beside-map" : "pair"}>
      <p>{rich("{token} looks at {source}.", { token: <Token id={ids[row]} />, source: <Token id={ids[column]} /> })}</p>
      <Group as="p" class="steps" label={t("One pair of tokens")}>
        {numbers.map(({ name, value }, place) => (
          <>
            {place > 0 && <span aria-hidden="true">→</span>}
            <button aria-pressed={isOpen(name)} onClick={() => open(`${base}.${name}`, index)}>{t(STEP_NAMES[name])} <b>{number(value, name === "weights" ? 3 : 2)}</b></button>
          </>
        ))}
      </Group>
      {opened && STEPS.some(isOpen) && <Equation opened={opened} digits={digitsOf(opened.value, ...(opened.expression ? leaves(opened.expression) : []))} open={(spot) => spot && go(spot)} />}
      <p><button class="said" onClick={() => goTo("numbers")}>{t("term by term")}</button></p>
    </div>
  );
}

/** How long what each token brings is, or with z what the head adds, where the server knows it or the page has the weights that mix the heads. */
export function lengthsOf(values: Values, base: string, which: number, step = "v"): ArrayLike<number> | null {
  const told = values[`${BROUGHT}${base}.${step}`];
  if (told) return told.data[0] >= 0 ? row(told, 0, which) : null;
  const [v, mixer] = [values[`${base}.${step}`], anatomy.value?.constants[`${base}.out_proj.weight`]];
  return v && mixer && !(mixer instanceof Remote) ? brought(v, mixer, which) : null;
}

interface All { maps: Thumbnail[][]; layers: number[]; picked: { row: number; column: number } }

/** All heads, and a slider that picks one token's row out in all of them; only these are drawn while it moves. */
function AllHeads({ maps, layers, picked }: All) {
  const [at, setAt] = useState<number | null>(null);
  const count = tokens.value.length;
  // While the slider is drawn, its row; then that of the token that it has chosen.
  const own = looks.row.value ? Math.min(at ?? position.value, count - 1) : null;
  const shownAt = own ?? position.value;
  return (
    <>
      <Thumbnails label={t("All heads: a row for each block, a map for each head")} maps={maps} tokens={tokens.value} kind="share" width={narrow.value ? room.value : Math.max(280, room.value - 460)}
        picked={picked} row={own ?? undefined} onPick={(spot) => { block.value = layers[spot.row]; head.value = spot.column; }}
        say={({ row, column }) => [t("head {head}", { head: maps[row][column].name }), maps[row][column].kind, maps[row][column].off ? t("off") : ""].filter(Boolean).join(", ")} />
      {count > 1 && (
        <p class="scrub">
          <label>
            {t("who looks:")} <b>{visible(tokens.value[shownAt])}</b>{" "}
            <input type="range" min={0} max={count - 1} value={shownAt} aria-valuetext={t("{token}, position {position}", { token: visible(tokens.value[shownAt]), position: shownAt })}
              onInput={(event) => { looks.row.value = true; setAt(Number(event.currentTarget.value)); }} onChange={(event) => { chosen.value = Number(event.currentTarget.value); setAt(null); }} />
          </label>{" "}
          {own !== null && <button class="said" onClick={() => (looks.row.value = false)}>{t("all rows")}</button>}
        </p>
      )}
    </>
  );
}
