// The run's tokenizer: texts to tokens and back.

import type { About, Encoded } from "./source";

export interface Tokens {
  encode(text: string): Encoded;
  decode(ids: readonly number[]): string;
}

/** The tokenizer that the page carries. */
export function tokenizerOf(about: About): Tokens {
  const texts = (about.tokenizer.texts ?? []) as string[];
  const ids = new Map(texts.map((text, id) => [text, id] as const).filter(([text]) => text !== ""));
  return {
    encode(text) {
      const made: Encoded = { ids: [], unseen: [] };
      for (const character of text) {
        const id = ids.get(character);
        if (id === undefined) made.unseen.push(character);
        else made.ids.push(id);
      }
      return made;
    },
    decode: (given) => given.map((id) => texts[id] ?? "").join(""),
  };
}
