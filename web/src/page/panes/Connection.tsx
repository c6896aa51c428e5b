// What stands between the page and its server, where there is one: said as long as it lasts.

import { batch, computed, effect } from "@preact/signals";
import { Line, Listed, Served, connection, newer, tokenIn } from "../served";
import { beside, fault, origin, other, relation, run, second, shown, source } from "../state";
import type { Relation } from "../source";
import { Words, learn, number, reasonOf, t } from "../words";
import { Group } from "./Group";

let line: Line | null = null;
let listed: Listed[] = [];

/** Opens the run that the address names, or the first. */
export async function connect(token: string): Promise<Served> {
  line = new Line(token);
  listed = await line.ask("/runs", (answer) => answer.json() as Promise<Listed[]>);
  const named = Number(new URLSearchParams(tokenIn(location.hash).rest.slice(1)).get("n"));
  run.value = (listed.find(({ id }) => id === named) ?? listed[0]).id;
  const opened = Served.open(line, run.value);
  learn(await line.ask("/words", (answer) => answer.json() as Promise<Words>));
  return opened;
}

/** Goes on with the token of an address that was opened in this tab. */
export function renew(token: string): void {
  const from = source.value;
  line?.renew(token);
  if (from instanceof Served) void change(from.run);
}

let changes = 0;

/** Opens a run of the list, or the same run again where it has been trained on; the last one that was chosen counts. */
async function change(to: number): Promise<void> {
  const own = ++changes;
  try {
    const opened = await Served.open(line!, to);
    if (own !== changes) return;
    const before = source.value;
    batch(() => {
      source.value = opened;
      beside.value = before instanceof Served && before.run === accompanying() ? before : null; // when the two change places
    });
  } catch (error) {
    if (own === changes) fault.value = reasonOf(error);
    return;
  }
  void complete();
}

effect(() => {
  const [to, from] = [run.value, source.peek()];
  if (!(from instanceof Served)) return;
  if (!listed.some(({ id }) => id === to)) return void (run.value = from.run); // an old address names a run that is not here
  if (from.run !== to) return void change(to);
  changes++; // back at the run that is open: no other one is waited for
  fault.value = "";
});

/** The run that is open, with its own weights, whatever frame of its film is shown. */
const trained = (): Served | null => (source.value instanceof Served ? (source.value.trained ?? source.value) : null);

/** The place of the run that reads beside: the one that was chosen, or the other one of two. */
function accompanying(): number | null {
  const named = other.value < 0 && listed.length === 2 ? 1 - run.value : other.value;
  return named !== run.value && listed.some(({ id }) => id === named) ? named : null;
}

let pairs = 0;
/** What is known of two runs, in either order: it takes the server seconds. */
const relations = new Map<string, Promise<Relation | null>>();

/** Opens the reader beside, and has what is known of the two; a run that is not there, or of other tokens, is no reader. */
async function accompany(): Promise<void> {
  const [own, to, from] = [++pairs, accompanying(), source.peek()];
  if (!(from instanceof Served)) return;
  if (to === null) return void (beside.value = null);
  const known = beside.peek();
  const found = known instanceof Served && known.run === to ? known : await Served.open(line!, to).catch(() => null);
  if (own !== pairs) return;
  beside.value = found;
  if (!found || !second.value) return;
  const key = [from.run, found.run].sort().join();
  if (!relations.has(key)) relations.set(key, from.relation(found).catch(() => null));
  const differs = await relations.get(key)!;
  if (own === pairs) relation.value = differs;
}

/** The first reader does not wait for the second. */
const isDrawn = computed(() => shown.value !== null);
effect(() => {
  if (isDrawn.value && source.value instanceof Served && source.value.run === run.value) void accompany();
});

/** Has the rest of what the page says of its run, when the server has it; without it the page is whole as well. */
export async function complete(): Promise<void> {
  const from = trained();
  const whole = await from?.whole().catch(() => null);
  if (whole && trained()?.about === from!.about) source.value = await whole.at((source.value as Served).trained ? source.value!.about.step : null);
}

/** The runs to choose from, and what is wrong with the connection. */
export function Connection() {
  return (
    <>
      {listed.length > 1 && (
        <nav class="runs" aria-label={t("runs")}>
          <Group label={t("runs")}>
            {listed.map(({ id, name }) => (
              <button aria-pressed={id === run.value} onClick={() => (run.value = id)}>
                {name}
              </button>
            ))}
            {origin.value instanceof Served && origin.value.run !== run.value && <span role="status">{t("The model is being loaded …")}</span>}
          </Group>
          {listed.length > 2 && (
            <label>
              {t("beside it")}{" "}
              <select value={accompanying() ?? -1} onChange={(event) => (other.value = Number(event.currentTarget.value))}>
                <option value={-1}>{t("none")}</option>
                {listed.filter(({ id }) => id !== run.value).map(({ id, name }) => <option value={id}>{name}</option>)}
              </select>{" "}
              {beside.value && !second.value && <span role="status">{t("It has another tokenizer, so it cannot read the same sentence.")}</span>}
            </label>
          )}
        </nav>
      )}
      <Trouble />
      {newer.value?.run === run.value && (
        <p class="connection" role="status">
          {t("The run has been trained on: there is a checkpoint of step {step}.", { step: number(newer.value.step, 0) })}{" "}
          <button onClick={() => void change(run.value)}>{t("open it")}</button>
        </p>
      )}
    </>
  );
}

/** What is wrong with the connection. */
export function Trouble() {
  if (connection.value === "away")
    return (
      <p class="connection" role="alert">
        {t("The server does not answer. The page asks again until it does; what you see is its last answer.")}
      </p>
    );
  if (connection.value === "stranger")
    return (
      <p class="connection" role="alert">
        {t("This server was started anew, or the address is not whole. Open the address that vitral open printed.")}
      </p>
    );
  return null;
}

/** Before the first answer. */
export function Opening({ reason }: { reason?: string }) {
  return (
    <section class="opening" aria-busy={reason === undefined}>
      <h1>Vitral</h1>
      {reason === undefined ? <p role="status">{t("The model is being loaded …")}</p> : connection.value !== "stranger" && <p role="alert">{reason}</p>}
      <Trouble />
    </section>
  );
}
