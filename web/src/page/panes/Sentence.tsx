// The sentence: what is typed, and its tokens.

import { glass } from "../marks/theme";
import { chosen, cropped, encoded, ids, position, source, text } from "../state";
import { plural, t } from "../words";

/** The text of a token for a person: a space and a line break are seen. */
export const visible = (token: string): string => (token === " " ? "␣" : token === "\n" ? "↵" : token);

export function Token({ id }: { id: number }) {
  const token = source.value!.about.tokens[id];
  const { fill, ink } = glass(token);
  return (
    <b class="glass" style={{ background: fill, color: ink }}>
      {visible(token)}
    </b>
  );
}

export function Sentence() {
  const { unseen } = encoded.value;
  return (
    <section class="sentence" aria-labelledby="sentence">
      <h2 id="sentence">{t("The sentence")}</h2>
      <input
        type="text"
        spellcheck={false}
        autocomplete="off"
        aria-label={t("Type a sentence")}
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
          chosen.value = -1;
        }}
      />
      <div class="tokens" role="listbox" aria-label={t("Tokens")}>
        {ids.value.map((id, place) => (
          <button role="option" aria-selected={place === position.value} title={t("token {id}", { id })} onClick={() => (chosen.value = place)}>
            <Token id={id} />
          </button>
        ))}
      </div>
      <p role="status">
        {!ids.value.length && t("Type a few letters: the model reads them and says what comes next.")}
        {unseen.length > 0 &&
          plural(unseen.length, "The model has never seen {which}; it is left out.", "The model has never seen {which}; they are left out.", {
            which: [...new Set(unseen)].map((each) => `“${each}”`).join(" "),
          })}{" "}
        {cropped.value > 0 && plural(cropped.value, "The sentence is too long: the first token is left out.", "The sentence is too long: the first {n} tokens are left out.")}
      </p>
    </section>
  );
}
