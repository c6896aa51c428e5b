// The passages on which the page opens: of the run's held-out text, where the model's choice is contested.

import { batch } from "@preact/signals";
import { block, chosen, edits, given, head, hidden, hiddenIn, origin, text } from "../state";
import { t } from "../words";
import { Group } from "./Group";

/** Shows a passage as the page opens on it. */
export function open(which: number): void {
  const { passages, sources, openings = [] } = origin.value!.about;
  const opening = openings[which] ?? { position: -1, block: 0, head: 0 };
  batch(() => {
    text.value = passages[which] ?? "";
    given.value = sources?.[which] ?? "";
    hidden.value = hiddenIn(text.value);
    // The last token stays chosen while more is typed.
    chosen.value = -1;
    block.value = opening.block;
    head.value = opening.head;
    edits.value = [];
  });
}

export function Passages() {
  const { passages, sources, text: own, private: hidden } = origin.value!.about;
  if (passages.length < 2) return null;
  return (
    <Group as="p" class="remark passages" label={t("Sentences to begin with:")}>
      {own && "name" in own && !hidden ? t("From the part of “{name}” that the model has not read:", { name: own.name }) : t("Sentences to begin with:")}{" "}
      {passages.map((passage, which) => (
        <button aria-pressed={text.value === passage && (!sources || given.value === sources[which])} onClick={() => open(which)}>
          {sources ? `${sources[which]} → ${passage}` : passage}
        </button>
      ))}
    </Group>
  );
}
