// A text that goes on token by token, and beams that look ahead.

import { TreeNode, Tree } from "../marks/tree";
import { glass } from "../marks/theme";
import { visible } from "../marks/colour";
import { Hypothesis, ROOT, tokensOf } from "../decoding/beam";
import { before, branch, clear, fault, grown, grownTo, isRunning, isSearching, live, made, pause } from "../decoding/session";
import { MOST_AHEAD, MOST_BEAMS, ahead, beams, edits, more, origin, shown, writes } from "../state";
import { number, plural, t } from "../words";
import { Group } from "./Group";
import { Trouble } from "./pieces";
import { gutter, width } from "./layout";

/** A token as a pane of glass, as strong as its probability. */
export function Piece({ id, strength = 1 }: { id: number; strength?: number }) {
  const token = origin.value!.about.tokens[id];
  const { fill, ink } = glass(token, strength);
  return (
    <b class="glass" style={{ background: fill, color: ink }}>
      {visible(token)}
    </b>
  );
}

/** The least strength with which a token is still seen as one. */
export const FAINT = 0.12;
const LENGTHS = [20, 40, 100, 200];

export function GoingOn() {
  const tokens = made.value;
  const isDone = tokens.length >= more.value;
  const { about } = origin.value!;
  return (
    <>
      <h3 class="prose" id="going-on">{t("And so it goes on")}</h3>
      <p class="controls">
        {isRunning.value ? (
          <button class="button" onClick={pause}>{t("pause")}</button>
        ) : (
          <button class="button" disabled={isDone} onClick={() => (writes.value = more.value)}>{tokens.length ? t("go on") : t("write")}</button>
        )}
        <button class="button" disabled={isRunning.value || isDone} onClick={() => (writes.value = tokens.length + 1)}>{t("one token")}</button>
        <button class="button" disabled={!tokens.length} onClick={clear}>{t("stop and clear")}</button>
        <label>
          {t("tokens")}{" "}
          <select value={more.value} onChange={(event) => (more.value = Number(event.currentTarget.value))}>
            {[...new Set([...LENGTHS, more.value])].map((each) => <option value={each}>{each}</option>)}
          </select>
        </label>
      </p>
      {edits.value.some((each) => each.do === "patch") && <p class="remark">{t("A patch changes the positions that both sentences have. Tokens that are generated after them are computed without it.")}</p>}
      <Trouble of={fault.value} />
      {tokens.length > 0 && (
        <>
          <Group as="p" class="made" label={t("The text so far")}>
            {tokens.map(({ id, probability }, at) => (
              <>
                <button class="made-token" aria-label={t("{token}, probability {probability}: go on from here", { token: visible(about.tokens[id]), probability: number(probability, 3) })}
                  title={number(probability, 3)} onClick={() => branch(tokens.slice(0, at + 1).map((each) => each.id))}>
                  <Piece id={id} strength={Math.max(FAINT, probability)} />
                </button>
                {origin.value!.decode([id]) === "\n" && <br />}
              </>
            ))}
          </Group>
          <p class="prose soft small" role="status">
            {plural(tokens.length, "One token. The stronger its glass, the more probable it was.", "{n} tokens. The stronger the glass, the more probable it was.")}{" "}
            {tokens.length > about.context / 2 && t("Past {context} tokens the model forgets the first half and goes on with the rest.", { context: about.context })}
          </p>
        </>
      )}
    </>
  );
}

/** The sentence as the model writes it on, as text, under the field. */
export function Write() {
  if (!shown.value || shown.value.from.about.task) return null;
  const tokens = made.value;
  return (
    <p class="written" aria-busy={isRunning.value || isSearching.value}>
      <button class="button" onClick={() => (isRunning.value ? pause() : (writes.value = tokens.length + more.value))}>{isRunning.value ? t("Stop") : t("Write")}</button>{" "}
      {tokens.length > 0 && <span role="status">{origin.value!.decode(before())}<b>{origin.value!.decode(tokens.map(({ id }) => id))}</b></span>}
    </p>
  );
}

export function Ahead() {
  const { about } = origin.value!;
  const nodes = grown.value;
  const place = new Map<Hypothesis, number>(nodes.map((each, at) => [each, at]));
  const [alive, best] = [new Set<Hypothesis>(), new Set<Hypothesis>()];
  live.value.forEach((each, at) => {
    for (let now: Hypothesis = each; now.parent; now = now.parent) {
      alive.add(now);
      if (at === 0) best.add(now);
    }
  });
  const drawn: TreeNode[] = nodes.map((each) => ({
    token: about.tokens[each.token],
    parent: each.parent === ROOT ? -1 : place.get(each.parent!)!,
    share: each.probability,
    note: number(each.score, 2),
    kept: alive.has(each),
    best: best.has(each),
  }));
  const length = grownTo();
  const isDone = length >= MOST_AHEAD || !live.value.length;
  return (
    <>
      <h3 class="prose" id="ahead">{t("Or it looks ahead")}</h3>
      <p class="prose">
        {t("A beam search draws nothing. At each length it keeps the continuations that are most probable as a whole, and lets the others go. The number under a token is the logarithm of the probability up to it.")}
      </p>
      <p class="controls">
        <label>
          {t("beams")}{" "}
          <select value={beams.value} onChange={(event) => { [beams.value, ahead.value] = [Number(event.currentTarget.value), 0]; }}>
            {Array.from({ length: MOST_BEAMS }, (_, at) => <option value={at + 1}>{at + 1}</option>)}
          </select>
        </label>
        {isSearching.value ? (
          <button class="button" onClick={pause}>{t("pause")}</button>
        ) : (
          <button class="button" disabled={isDone} onClick={() => (ahead.value = MOST_AHEAD)}>{t("grow")}</button>
        )}
        <button class="button" disabled={isSearching.value || isDone} onClick={() => (ahead.value = length + 1)}>{t("one step")}</button>
        <button class="button" disabled={!nodes.length} onClick={clear}>{t("clear")}</button>
      </p>
      {nodes.length > 0 && (
        <div class="scrolls">
          <Tree
            label={t("What the beams keep and let go. Enter goes on with a branch.")}
            nodes={drawn}
            width={Math.max(width.value - gutter.value - 12, 520)}
            say={(at) => t("{token}: {share} after what stands before it, {score} together", { token: visible(drawn[at].token), share: number(drawn[at].share, 3), score: drawn[at].note! })}
            onPick={({ row: at }) => branch(tokensOf(nodes[at]))}
          />
        </div>
      )}
      {live.value[0]?.parent && (
        <p class="prose" role="status">
          {t("The best: “{text}”, {score}.", { text: tokensOf(live.value[0]).map((id) => visible(about.tokens[id])).join(""), score: number(live.value[0].score, 3) })}
        </p>
      )}
    </>
  );
}
