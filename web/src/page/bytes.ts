// Bytes that a page carries as text, and their SHA-256.

interface Base64 {
  fromBase64?(text: string): Uint8Array<ArrayBuffer>;
}

/** The bytes of base64. */
export function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  const known = (Uint8Array as Base64).fromBase64;
  if (known) return known.call(Uint8Array, text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let place = 0; place < bytes.length; place++) bytes[place] = letters.charCodeAt(place);
  return bytes;
}

const SIXTY_FOUR = 64;
/** The first 32 bits of the fractional parts of roots of the first primes: cube roots of 64 of them, square roots of 8. */
function fractions(power: number, count: number): Uint32Array {
  const found: number[] = [];
  for (let each = 2; found.length < count; each++) {
    let isPrime = true;
    for (let by = 2; by * by <= each; by++) isPrime &&= each % by !== 0;
    if (isPrime) found.push(((each ** power) % 1) * 2 ** 32);
  }
  return Uint32Array.from(found);
}

/** SHA-256 where the browser offers none: on pages that are not in a secure context. */
export function ownSha256(bytes: Uint8Array): Uint8Array {
  const keys = fractions(1 / 3, SIXTY_FOUR);
  const state = fractions(1 / 2, 8);
  const padded = new Uint8Array(Math.ceil((bytes.length + 9) / SIXTY_FOUR) * SIXTY_FOUR);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(bytes.length / 2 ** 29));
  view.setUint32(padded.length - 4, (bytes.length << 3) >>> 0);
  const words = new Uint32Array(SIXTY_FOUR);
  const turned = (word: number, by: number) => (word >>> by) | (word << (32 - by));
  for (let start = 0; start < padded.length; start += SIXTY_FOUR) {
    for (let place = 0; place < SIXTY_FOUR; place++) {
      if (place < 16) {
        words[place] = view.getUint32(start + 4 * place);
        continue;
      }
      const [one, two] = [words[place - 15], words[place - 2]];
      const low = turned(one, 7) ^ turned(one, 18) ^ (one >>> 3);
      const high = turned(two, 17) ^ turned(two, 19) ^ (two >>> 10);
      words[place] = words[place - 16] + low + words[place - 7] + high;
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let place = 0; place < SIXTY_FOUR; place++) {
      const chosen = (e & f) ^ (~e & g);
      const more = (h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + chosen + keys[place] + words[place]) | 0;
      const most = (a & b) ^ (a & c) ^ (b & c);
      const sum = ((turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + most) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + more) | 0, c, b, a, (more + sum) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((each, place) => (state[place] += each));
  }
  const made = new DataView(new ArrayBuffer(32));
  state.forEach((each, place) => made.setUint32(4 * place, each));
  return new Uint8Array(made.buffer);
}

/** SHA-256 in hexadecimal digits. */
export async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const known = globalThis.crypto?.subtle;
  const found = known ? new Uint8Array(await known.digest("SHA-256", bytes)) : ownSha256(bytes);
  return Array.from(found, (each) => each.toString(16).padStart(2, "0")).join("");
}
