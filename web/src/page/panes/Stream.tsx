// The residual stream read as a token after every half-layer: the logit lens.

import { LENS } from "../carried";
import { probabilities } from "../decoding/filters";
import { largest, row } from "../rows";
import { isOff, position, shown, source, toggle } from "../state";
import { number, t } from "../words";
import { Token } from "./Sentence";

/** What a place of the stream is called. */
export function placeName(name: string): string {
  if (name === "embed") return t("embedding");
  const [, block, point] = name.split(".");
  return point === "resid_mid" ? t("block {block} · attention", { block: Number(block) }) : t("block {block} · feed-forward", { block: Number(block) });
}

export function Stream() {
  const { about } = source.value!;
  const { ids, values } = shown.value!;
  return (
    <section aria-labelledby="stream">
      <h2 id="stream">{t("When does it know?")}</h2>
      <table class="lens">
        <caption>{t("What the stream says after every half-layer, read by the model's own head.")}</caption>
        <tbody>
          {about.stream.map((name) => (
            <tr>
              <th scope="row">{placeName(name)}</th>
              {ids.map((_, place) => {
                const [best] = largest(row(values[LENS + name], 0, place), 1);
                return (
                  <td class={place === position.value ? "chosen" : ""}>
                    <Token id={best} />
                  </td>
                );
              })}
              <td class="number">
                {number(Math.max(...probabilities(row(values[LENS + name], 0, position.value), 1)))}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="switches">
        {about.contributions.map((name) => (
          <label>
            <input type="checkbox" checked={!isOff(name)} onChange={() => toggle(name)} /> {contributionName(name)}
          </label>
        ))}
      </p>
    </section>
  );
}

function contributionName(name: string): string {
  const [, block, part] = name.split(".");
  const places = { block: Number(block) };
  if (part === "attn") return t("attention of block {block}", places);
  return part === "mlp" ? t("feed-forward of block {block}", places) : t("LSTM of block {block}", places);
}
