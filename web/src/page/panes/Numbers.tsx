// A number, opened: the equation that made it, its terms as a walk, and each of them to be opened in turn.

import { useEffect, useMemo, useRef } from "preact/hooks";
import { Expression, inner, worth } from "../../arithmetic";
import { Walk } from "../marks/walk";
import { visible } from "../marks/colour";
import { back, closed, current, go, isWaiting, mark as markAt, open as begin, otherwise, way } from "../numbers/opened";
import { Opened, Spot, Way, leads, openable } from "../numbers/opening";
import { about, blockOf, cellName, commandOf, isMap, positionsOf, pythonOf, ruleOf } from "../numbers/saying";
import { Piece, besides, bySize, digitsOf, equation, leaves, mainSum, together } from "../numbers/telling";
import { looks, position, terms as few } from "../state";
import { language, number, plural, t } from "../words";
import { Figure, abridged } from "./Figure";
import { Group } from "./Group";
import { gutter, tokens, width } from "./layout";

/** How many times more terms a walk shows each time. */
const TIMES = 4;
const LONGEST_NAME = 46;

const comma = () => language.value === "pt";
const PARTS = { mean: () => t("mean"), variance: () => t("variance"), sum: () => t("sum"), largest: () => t("largest") };

/** An expression in names: what a row of a walk is called. */
function named(expression: Expression, block: string, digits: number): string {
  const join = (between: string) => inner(expression).map((each) => named(each, block, digits)).join(between);
  switch (expression.kind) {
    case "cell":
      return cellName(expression.name, expression.index, block);
    case "part":
      return PARTS[expression.name]();
    case "number":
      return number(expression.value, digits);
    case "sum":
      return expression.terms.length > 3 ? t("sum") : join(" + ");
    case "difference":
      return `(${join(" − ")})`;
    case "product":
      return join(" · ");
    case "fraction":
      return join(" / ");
    case "root":
      return `√${join("")}`;
    case "power":
      return join("^");
    case "exp":
      return `exp ${join("")}`;
    case "apply":
      return `${expression.name}(${join(", ")})`;
  }
}

/** The token that a term looks at, where the terms are those of a row of attention. */
function lookedAt(term: Expression): string {
  const found = openable(term).find(({ expression }) => expression.kind === "cell" && isMap(expression.name))?.expression;
  return found?.kind === "cell" ? ` ${visible(tokens.value[found.index[3]] ?? "")}` : "";
}

const shortened = (name: string) => ([...name].length > LONGEST_NAME ? `${[...name].slice(0, LONGEST_NAME - 1).join("")}…` : name);

/** Where a row leads: to its only number, or to itself as a step of its own. */
function target(spot: Spot, expression: Expression, path: number[]): Spot | null {
  const ways = openable(expression, path);
  if (!ways.length) return null;
  return ways.length === 1 ? leads(spot, ways[0]) : { ...spot, path: [...spot.path, ...path] };
}

const mark = (expression: Expression | null) => {
  const places = expression ? openable(expression).flatMap(({ expression: each }) => (each.kind === "cell" ? positionsOf(each.name, each.index) : [])) : [];
  markAt([...new Set(places)].slice(0, 64));
};

export function Numbers() {
  const opened = current.value;
  const section = useRef<HTMLElement>(null);
  const moved = useRef(false);
  useEffect(() => {
    if (moved.current) section.current?.querySelector<HTMLElement>("h2")?.focus({ preventScroll: true });
    moved.current = false;
  }, [opened?.spot]);
  if (!opened)
    return (
      <section id="opened" aria-labelledby="numbers">
        <div class="prose">
          <h2 id="numbers">{t("One number, opened")}</h2>
          <p role="status">{isWaiting.value
            ? <button class="said" onClick={() => otherwise.value && begin(otherwise.value.name, otherwise.value.index)}>{t("open the largest weight of the chosen token")}</button>
            : closed.value ? t("The cells of this model cannot be opened: {reason}", { reason: closed.value }) : t("The arithmetic of the model is being read …")}</p>
        </div>
      </section>
    );
  const open = (spot: Spot | null) => {
    if (!spot) return;
    moved.current = true;
    go(spot);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Backspace" || way.value.length < 2) return;
    event.preventDefault();
    moved.current = true;
    back();
  };
  const { spot, value, expression } = opened;
  const digits = digitsOf(value, ...(expression ? leaves(expression) : []));
  return (
    <section ref={section} id="opened" aria-labelledby="numbers" onKeyDown={onKeyDown}>
      <div class="prose">
        <h2 id="numbers" tabIndex={-1}>{t("Why {value}? One number, opened.", { value: number(value, Math.min(digits, 3)) })}</h2>
        <Trail moved={() => (moved.current = true)} />
        <p>
          {spot.path.length ? t("A step inside of {cell}.", { cell: cellName(spot.name, spot.index) }) : about(spot.name, spot.index)}{" "}
          {!spot.path.length && opened.is === "activation" && <em>{ruleOf(spot.name)}</em>}
        </p>
        {opened.edited && <p role="status">{t("A change set this number; the sum below is what the model computes without it.")}</p>}
      </div>
      <Equation opened={opened} digits={digits} open={open} />
      <Terms opened={opened} digits={digits} open={open} />
    </section>
  );
}

function Trail({ moved }: { moved(): void }) {
  const steps = way.value;
  if (steps.length < 2) return null;
  return (
    <nav class="trail" aria-label={t("The way to this number")}>
      <Group as="ol" label={t("The way to this number")}>
        {steps.map((spot, place) => (
          <li>
            {place === steps.length - 1 ? <b aria-current="step">{label(spot)}</b> : <button onClick={() => { moved(); back(place); }}>{label(spot)}</button>}
          </li>
        ))}
      </Group>
    </nav>
  );
}

const label = (spot: Spot): string => (spot.path.length ? t("step {path}", { path: spot.path.join(".") }) : cellName(spot.name, spot.index));

export function Equation({ opened, digits, open }: { opened: Opened; digits: number; open(spot: Spot | null): void }) {
  const { expression, value, spot } = opened;
  const manner = { digits, comma: comma(), first: 0, more: "" };
  const more: [string, string] = [t("… (1 more term: {sum})"), t("… ({n} more terms: {sum})")];
  const [total] = equation({ kind: "number", value }, manner, more);
  const pieces = expression && expression.kind !== "number" ? equation(expression, manner, more) : [];
  if (!expression && opened.is === "activation") return <p class="equation">{t("{value}: its steps have no names, so it cannot be opened.", { value: String(total) })}</p>;
  const shown = (piece: Piece) =>
    typeof piece === "string" ? piece : (
      <button class="cell" title={named(piece.way.expression, blockOf(spot.name), digits)} aria-label={`${named(piece.way.expression, "", digits)} = ${piece.text}`}
        onPointerEnter={() => mark(piece.way.expression)} onPointerLeave={() => mark(null)} onFocus={() => mark(piece.way.expression)} onBlur={() => mark(null)}
        onClick={() => open(leads(spot, piece.way))}>
        {piece.text}
      </button>
    );
  return (
    <Group as="p" class="equation" label={t("The sum")} value={value}>
      {pieces.map(shown)}
      {pieces.length ? " = " : ""}
      <b>{String(total)}</b>
      {(value === -Infinity || (value === 0 && spot.name.endsWith(".weights") && !spot.path.length && !pieces.length)) && <> {t("The mask does not allow this look.")}</>}
    </Group>
  );
}

function Terms({ opened, digits, open }: { opened: Opened; digits: number; open(spot: Spot | null): void }) {
  const { expression, spot, value } = opened;
  const sum = useMemo(() => expression && mainSum(expression), [expression]);
  const others = useMemo(() => (expression ? besides(expression, sum?.path ?? null) : []), [expression, sum]);
  const block = blockOf(spot.name);
  const terms = useMemo(() => sum?.terms ?? [], [sum]);
  const order = useMemo(() => bySize(terms), [terms]);
  const most = few.value;
  const inOrder = looks.order;
  const cut = useMemo(() => (terms.length > most + 1 ? order.slice(0, most) : order), [terms, order, most]);
  const places = useMemo(() => (inOrder.value ? [...cut].sort((one, other) => one - other) : cut), [inOrder.value, cut]);
  const rest = useMemo(() => terms.filter((_, place) => !cut.includes(place)), [terms, cut]);
  const total = together(terms);
  // The terms of a softmax are shares of their sum: e to the power of a score says nothing by itself.
  const isShares = spot.name.endsWith(".weights") && !spot.path.length && terms.length > 0;
  const unit = isShares ? total : 1;
  const rows = useMemo(() => [
    ...places.map((place) => ({ name: shortened(named(terms[place], block, digits)) + lookedAt(terms[place]), value: worth(terms[place]) / unit, opens: openable(terms[place]).length > 0 })),
    ...(rest.length ? [{ name: plural(rest.length, "{n} more term", "{n} more terms"), value: together(rest) / unit, opens: true }] : []),
  ], [places, terms, block, digits, unit, rest, language.value]);
  const token = tokens.value[position.value] ?? "";
  const pick = (line: number) => (line < places.length ? open(target(spot, terms[places[line]], [...sum!.path, places[line]])) : (few.value *= TIMES));
  const say = (line: number) => `${line < places.length ? named(terms[places[line]], "", digits) : rows[line].name}: ${number(rows[line].value, isShares ? 4 : digits)}`;
  const isWhole = sum !== null && !sum.path.length;
  return (
    <Figure id="numbers" label={t("The terms of {cell}", { cell: cellName(spot.name, spot.index) })} python={pythonOf(spot.name, spot.index)} command={commandOf(spot.name, spot.index)}
      caption={sum ? <>
        {isShares ? t("The softmax shares out 1: each bar is the exp of one token, divided by their sum {sum}. The share of the token that is looked at is the weight.", { sum: number(total, digits) }) : isWhole ? t("Each term goes on from where the last one stopped; the end is the number.") : t("The long sum inside of it: {sum} together.", { sum: number(total, digits) })}{" "}
        {t("Choose a term to open it, press Backspace to go back.")}{" "}
        {terms.length > 2 && <button class="said" aria-pressed={inOrder.value} onClick={() => (inOrder.value = !inOrder.value)}>{inOrder.value ? t("by size") : t("in order")}</button>}
      </> : opened.is === "parameter" ? t("Nothing computes it: it is one of the model's numbers, and the way ends here.") : undefined}>
      {sum && (
        <Walk label={t("The terms of {cell}", { cell: cellName(spot.name, spot.index) })} terms={rows} total={total / unit} width={Math.min(width.value, 1040)} plus={token}
          gutter={gutter.value ? gutter.value + 200 : 0} digits={isShares ? 3 : Math.min(digits, 4)} say={say} onPick={({ row }) => pick(row)}
          onPoint={(at) => mark(at && at.row < places.length ? terms[places[at.row]] : null)} />
      )}
      {others.length > 0 && others.length <= 64 && <Others ways={others} spot={spot} digits={digits} open={open} value={value} />}
      {commandOf(spot.name, spot.index) && <p class="receipt command">{abridged(commandOf(spot.name, spot.index))}</p>}
    </Figure>
  );
}

/** The numbers of an equation outside of its long sum. */
function Others({ ways, spot, digits, open }: { ways: Way[]; spot: Spot; digits: number; value: number; open(spot: Spot | null): void }) {
  return (
    <Group as="ul" class="parts" label={t("The other numbers of the sum")}>
      {ways.map((each) => (
        <li>
          <button class="cell" onPointerEnter={() => mark(each.expression)} onPointerLeave={() => mark(null)} onFocus={() => mark(each.expression)} onBlur={() => mark(null)} onClick={() => open(leads(spot, each))}>
            <span>{named(each.expression, blockOf(spot.name), digits)}</span> <b>{number(worth(each.expression), digits)}</b>
          </button>
          {each.expression.kind === "cell" && positionsOf(each.expression.name, each.expression.index).slice(0, 2).map((place) => <small> {visible(tokens.value[place] ?? "")}</small>)}
        </li>
      ))}
    </Group>
  );
}
