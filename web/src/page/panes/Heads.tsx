// All heads as thumbnails, one of them large, at any step of attention.

import { glass } from "../marks/theme";
import { Heatmap } from "../marks/heatmap";
import { row } from "../rows";
import { STEPS, block, chosen, head, isOff, position, shown, source, step, toggle } from "../state";
import type { Tensor } from "../source";
import { N, number, t } from "../words";
import { visible } from "./Sentence";

const STEP_NAMES: Record<(typeof STEPS)[number], string> = {
  scores: N("scores"),
  scaled: N("scaled"),
  masked: N("masked"),
  weights: N("weights"),
};

/** One head's numbers as rows. */
function of(value: Tensor, which: number): Float32Array | Float64Array {
  const size = value.shape[2] * value.shape[3];
  return value.data.subarray(which * size, (which + 1) * size);
}

function limit(cells: ArrayLike<number>): number {
  let most = 0;
  for (let place = 0; place < cells.length; place++) if (Number.isFinite(cells[place])) most = Math.max(most, Math.abs(cells[place]));
  return most;
}

export function Heads() {
  const { about } = source.value!;
  const { ids, values } = shown.value!;
  const colours = ids.map((id) => glass(about.tokens[id]).fill).map((each) => (each === "transparent" ? "#9a9a94" : each));
  const layers = Array.from({ length: about.layers }, (_, layer) => layer).filter((layer) => values[`blocks.${layer}.attn.weights`]);
  const name = `blocks.${block.value}.attn.${step.value}`;
  if (!layers.length || !values[name])
    return (
      <section>
        <h2>{t("Heads")}</h2>
        <p>{t("This model has no attention.")}</p>
      </section>
    );
  const cells = of(values[name], head.value);
  const z = `blocks.${block.value}.attn.z`;
  const picked = row(values[name], 0, head.value, position.value);
  return (
    <section aria-labelledby="heads">
      <h2 id="heads">{t("A head decides who looks at whom.")}</h2>
      <div class="thumbnails">
        {layers.map((layer) =>
          Array.from({ length: about.heads }, (_, which) => (
            <button
              aria-pressed={layer === block.value && which === head.value}
              onClick={() => ((block.value = layer), (head.value = which))}
            >
              <Heatmap
                cells={of(values[`blocks.${layer}.attn.weights`], which)}
                rows={ids.length}
                columns={ids.length}
                colours={colours}
                label={t("Weights of head {head} of block {block}", { head: which, block: layer })}
              />
              {layer}.{which}
              {isOff(`blocks.${layer}.attn.z`, which) ? ` ${t("off")}` : ""}
            </button>
          )),
        )}
      </div>
      <div class="steps" role="group" aria-label={t("Step of attention")}>
        {STEPS.map((each) => (
          <button aria-pressed={each === step.value} onClick={() => (step.value = each)}>
            {t(STEP_NAMES[each])}
          </button>
        ))}
        <button aria-pressed={isOff(z, head.value)} onClick={() => toggle(z, head.value)}>
          {isOff(z, head.value) ? t("switch it on") : t("switch it off")}
        </button>
      </div>
      <div class="large">
        <Heatmap
          cells={cells}
          rows={ids.length}
          columns={ids.length}
          colours={colours}
          limit={limit(cells)}
          row={position.value}
          label={t("Head {head} of block {block}: a row for each token that looks, a column for each that is looked at", {
            head: head.value,
            block: block.value,
          })}
          onPick={(at) => (chosen.value = at)}
        />
      </div>
      <p class="receipt">
        {ids.map((id, place) => (
          <span>
            {visible(about.tokens[id])} {number(picked[place])}{" "}
          </span>
        ))}
      </p>
    </section>
  );
}
