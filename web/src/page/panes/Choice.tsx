// What comes next: the most probable tokens.

import { probabilities } from "../decoding/filters";
import { largest, row } from "../rows";
import { position, shown, temperature, text } from "../state";
import { source } from "../state";
import { number, t } from "../words";
import { Token } from "./Sentence";

const MOST = 8;

export function Choice() {
  const { values, compared } = shown.value!;
  const now = probabilities(row(values.logits, 0, position.value), temperature.value);
  const before = compared && probabilities(row(compared.logits, 0, position.value), temperature.value);
  return (
    <section aria-labelledby="choice">
      <h2 id="choice">{t("Then it draws.")}</h2>
      <label>
        {t("temperature")}{" "}
        <input type="range" min="0" max="2" step="0.05" value={temperature.value} onInput={(event) => (temperature.value = Number(event.currentTarget.value))} />{" "}
        {number(temperature.value)}
      </label>
      <table class="bars">
        <caption>{t("The most probable next tokens.")}</caption>
        <tbody>
          {largest(now, MOST).map((id) => (
            <tr>
              <th scope="row">
                <button title={t("append it")} onClick={() => (text.value += source.value!.decode([id]))}>
                  <Token id={id} />
                </button>
              </th>
              <td>
                <meter min={0} max={1} value={now[id]} aria-label={t("probability")} />
              </td>
              <td class="number">{number(now[id], 3)}</td>
              {before && <td class="number before">{number(before[id], 3)}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
