// The page's one grid: the columns of the sentence, which all figures share, and the room beside them.

import { computed, signal } from "@preact/signals";
import { Columns, layOut } from "../marks/columns";
import { position, shown, origin } from "../state";

/** The width of the page's content, as it was measured. */
export const width = signal(0);

/** So narrow that names lie above figures and not beside them. */
export const narrow = computed(() => width.value < 720);
/** Room for names at the left of the columns. */
export const gutter = computed(() => (narrow.value ? 0 : 144));
/** Room at the right of the columns: the chosen token's stream and what it says. */
export const lane = computed(() => (narrow.value ? 28 : width.value > 1300 ? 132 : 104));
export const margin = computed(() => (narrow.value ? 24 : 104));
/** Between the columns, the lane and what is right of it. */
const gaps = computed(() => (narrow.value ? 22 : 58));
/** The width of a figure of its own beside the gutter. */
export const room = computed(() => Math.max(0, width.value - gutter.value));

/** The tokens that are shown. */
export const tokens = computed<string[]>(() => {
  const about = origin.value?.about;
  return about && shown.value ? shown.value.ids.map((id) => about.tokens[id]) : [];
});

/** On a phone all letters stay as long as each has so much room. */
const LEAST_LETTER = 8.6;

export const columns = computed<Columns>(() =>
  layOut(tokens.value, Math.max(80, room.value - lane.value - margin.value - gaps.value), position.value, width.value > 1300 ? 50 : 44, narrow.value ? LEAST_LETTER : 19),
);
