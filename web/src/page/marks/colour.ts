// A hue for each token: vowels warm, consonants cool, space clear.

const LETTERS: Record<string, string> = {
  ...{ a: "#940015", e: "#f5c847", i: "#d76f04", o: "#b3b454", u: "#ca435f", y: "#e793b8" },
  ...{ t: "#3d5bc6", n: "#11919e", s: "#206f33", h: "#71bdf4", r: "#6239a0", l: "#8fe3ba", d: "#9887e8", v: "#9f268d" },
};
const OTHERS = Object.values(LETTERS);

export interface Glass {
  fill: string;
  ink: string;
}

/** The glass of a token and the ink that is read on it. */
export function glass(token: string): Glass {
  const letter = token.trim().toLowerCase();
  if (!letter) return { fill: "transparent", ink: "inherit" };
  let hash = 0;
  for (const each of letter) hash = (hash * 31 + each.codePointAt(0)!) >>> 0;
  const fill = LETTERS[letter] ?? OTHERS[hash % OTHERS.length];
  const [red, green, blue] = [1, 3, 5].map((place) => parseInt(fill.slice(place, place + 2), 16) / 255);
  return { fill, ink: 0.2126 * red ** 2.2 + 0.7152 * green ** 2.2 + 0.0722 * blue ** 2.2 > 0.18 ? "#1c1d21" : "#fff" };
}
