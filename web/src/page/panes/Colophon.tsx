// What the page is made of: the run, its text, its losses beside counting, and what each part is worth on held-out text.

import { origin } from "../state";
import type { Part } from "../source";
import { N, Sentence, isSentence, number, plural, t } from "../words";

/** Licences that the data may name; here they are collected for their translations. */
export const LICENCES = [
  N("public domain in the United States (Project Gutenberg {number})"),
  N("public domain"),
  N("CC0 1.0"),
];

/** Of an edit's value, what it switches off. */
const PARTS: Record<string, Sentence> = {
  "attn.z": N("block {block}, head {head}"),
  "attn.out": N("block {block}, attention"),
  "recurrence.out": N("block {block}, LSTM"),
  "mlp.out": N("block {block}, feed-forward"),
};

function called({ at, head }: Part): string {
  const [, block, ...value] = at[0].split(".");
  const places = { block: Number(block), head: head ?? 0 };
  return t(at.length > 1 ? "block {block}, all of it" : PARTS[value.join(".")] ?? at[0], places);
}

/** Switched-off parts and orders of n-grams in one list, by what they change. */
export function Worth() {
  const { ablations, gaps = [] } = origin.value!.about;
  if (!ablations?.parts) return null;
  const rows = [
    ...ablations.parts.map((part) => ({ name: called(part), ...part, counted: false })),
    ...gaps.map(({ from, to, loss }) => ({
      name: t("tables of {from}-grams instead of {to}-grams", { from, to }), increase: loss, low: undefined, high: undefined, counted: true,
    })),
  ].sort((one, other) => other.increase - one.increase);
  return (
    <section class="worth" aria-labelledby="worth">
      <h2 id="worth">{t("What each part is worth on held-out text")}</h2>
      <p>
        {t("Nats per token that the loss rises by when a part is switched off, with the 95 % interval, over {windows} windows of the test split ({tokens} tokens).", { windows: ablations.windows, tokens: ablations.tokens })}{" "}
        {gaps.length > 0 && t("Beside it: what tables of n-grams lose with one token less.")}
      </p>
      <table>
        <thead>
          <tr><th scope="col">{t("without")}</th><th scope="col">{t("the loss rises by")}</th><th scope="col">{t("interval")}</th></tr>
        </thead>
        <tbody>
          {rows.map(({ name, increase, low, high, counted }) => (
            <tr class={counted ? "counted" : undefined}>
              <th scope="row">{name}</th>
              <td>{number(increase, 3)}</td>
              <td>{low === undefined ? "" : t("{low} to {high}", { low: number(low, 3), high: number(high!, 3) })}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

export function Colophon() {
  const { about } = origin.value!;
  const { text, baselines = [], counts } = about;
  return (
    <footer class="colophon">
      <h2 id="about">{t("About this page")}</h2>
      <p>
        {text === undefined ? "" : "name" in text
          ? t("Trained on “{name}”, {characters} characters; licence of the text: {licence}.", {
              name: text.name,
              characters: text.characters,
              licence: text.licence && isSentence(text.licence.sentence) ? t(text.licence.sentence, { number: text.licence.number ?? "" }) : t("not known to Vitral"),
            })
          : text.missing === "imported"
            ? t("The model was imported, without a text: nothing is counted, and no loss is known.")
            : t("The text of the run was not found when the page was made: nothing is counted.")}{" "}
        {about.loss !== undefined && t(about.labels ? "Test loss: {loss} nats per label." : about.fills?.ahead === 0 ? "Test loss: {loss} nats per hidden token." : "Test loss: {loss} nats per token.", { loss: number(about.loss, 3) })}{" "}
        {baselines.length > 0 && t("Tables of n-grams, on the same tokens: {losses}.", {
          losses: baselines.map(({ order, loss }) => `${order}: ${number(loss, 3)}`).join(" · "),
        })}{" "}
        {about.private && t("The page carries no passage and no count of this text.")}
        {counts && plural(counts.order, "The page carries the table of single tokens.", "The page carries the tables of up to {n} tokens in a row.")}
      </p>
      {about.commands.page && <p>
        {t(about.served
          ? N("PyTorch computes the numbers, on this machine. Step {step}, Vitral {version}; the same in one file that needs no server:")
          : N("The page computes the run's own graph in this browser, and compared its numbers with those of PyTorch when it was opened. Step {step}, made by Vitral {version}:"), {
          step: about.step, version: about.vitral,
        })}{" "}
        <code>{about.commands.page}</code>
      </p>}
    </footer>
  );
}
