// Products of matrices: sums in float64, four rows and four columns at a time, so that a number is fetched once for
// four products. Four columns of the right matrix are first laid side by side, where they are near each other.

import { Numbers, Tensor, room } from "./tensors";

/** A matrix that begins at a place of some numbers. */
interface From {
  data: Numbers;
  start: number;
}

const TILE = 4;

/** One product, [height, inner] · [inner, width]. */
function product(left: From, right: From, made: From, [height, inner, width]: [number, number, number]): void {
  const high = height - (height % TILE);
  const wide = height < TILE ? 0 : width - (width % TILE);
  const tile = right.data instanceof Float32Array ? new Float32Array(inner * TILE) : new Float64Array(inner * TILE);
  for (let column = 0; column < wide; column += TILE) {
    for (let place = 0, from = right.start + column, to = 0; place < inner; place++, from += width - TILE)
      for (const end = to + TILE; to < end; ) tile[to++] = right.data[from++];
    for (let row = 0; row < high; row += TILE) tiled(left, row * inner, tile, inner, made, row * width + column, width);
    for (let row = high; row < height; row++) lined(left, row * inner, tile, inner, made, row * width + column);
  }
  if (wide < width) few(left, right, made, [height, inner, width], wide);
}

/** A row of the left matrix times four columns. */
function lined(left: From, at: number, tile: Numbers, inner: number, made: From, to: number): void {
  const row = left.data;
  const first = left.start + at;
  let a = 0, b = 0, c = 0, d = 0;
  for (let x = first, y = 0, end = first + inner; x < end; x++, y += TILE) {
    const factor = row[x];
    a += factor * tile[y], b += factor * tile[y + 1], c += factor * tile[y + 2], d += factor * tile[y + 3];
  }
  const cells = made.data;
  const z = made.start + to;
  cells[z] = a, cells[z + 1] = b, cells[z + 2] = c, cells[z + 3] = d;
}

/** Four rows of the left matrix times four columns. */
function tiled(left: From, at: number, tile: Numbers, inner: number, made: From, to: number, width: number): void {
  const rows = left.data;
  const first = left.start + at;
  let a = 0, b = 0, c = 0, d = 0;
  let e = 0, f = 0, g = 0, h = 0;
  let i = 0, j = 0, k = 0, l = 0;
  let m = 0, n = 0, o = 0, p = 0;
  for (let x = first, y = 0, end = first + inner; x < end; x++, y += TILE) {
    const one = tile[y];
    const two = tile[y + 1];
    const three = tile[y + 2];
    const four = tile[y + 3];
    let factor = rows[x];
    a += factor * one, b += factor * two, c += factor * three, d += factor * four;
    factor = rows[x + inner];
    e += factor * one, f += factor * two, g += factor * three, h += factor * four;
    factor = rows[x + 2 * inner];
    i += factor * one, j += factor * two, k += factor * three, l += factor * four;
    factor = rows[x + 3 * inner];
    m += factor * one, n += factor * two, o += factor * three, p += factor * four;
  }
  const cells = made.data;
  let z = made.start + to;
  cells[z] = a, cells[z + 1] = b, cells[z + 2] = c, cells[z + 3] = d;
  z += width;
  cells[z] = e, cells[z + 1] = f, cells[z + 2] = g, cells[z + 3] = h;
  z += width;
  cells[z] = i, cells[z + 1] = j, cells[z + 2] = k, cells[z + 3] = l;
  z += width;
  cells[z] = m, cells[z + 1] = n, cells[z + 2] = o, cells[z + 3] = p;
}

/** Few rows of the left matrix, or what is left of the columns: the right matrix is read as it lies in memory, four rows at a time. */
function few(left: From, right: From, made: From, [height, inner, width]: [number, number, number], wide: number): void {
  const [row, cells] = [left.data, right.data];
  const sums = new Float64Array(width - wide);
  const count = sums.length;
  for (let line = 0; line < height; line++) {
    sums.fill(0);
    let x = left.start + line * inner;
    const end = x + inner;
    let y = right.start + wide;
    for (const last = end - 3; x < last; x += 4, y += 4 * width) {
      const [one, two, three, four] = [row[x], row[x + 1], row[x + 2], row[x + 3]];
      for (let column = 0, a = y, b = y + width, c = b + width, d = c + width; column < count; column++)
        sums[column] += one * cells[a++] + two * cells[b++] + three * cells[c++] + four * cells[d++];
    }
    for (; x < end; x++, y += width) for (let column = 0; column < count; column++) sums[column] += row[x] * cells[y + column];
    made.data.set(sums, made.start + line * width + wide);
  }
}

/** Products of matrices, one for each index of the leading axis. */
export function products(left: Tensor, right: Tensor): Tensor {
  const [count, height, inner] = left.shape;
  const width = right.shape[2];
  const data = room(count * height * width, left, right);
  const at = (of: { data: Numbers }, start: number): From => ({ data: of.data, start });
  for (let batch = 0; batch < count; batch++)
    product(
      at(left, batch * height * inner),
      at(right, batch * inner * width),
      { data, start: batch * height * width },
      [height, inner, width],
    );
  return { shape: [count, height, width], data };
}

/** The product of two matrices. */
export function matrix(left: Tensor, right: Tensor): Tensor {
  const made = products({ shape: [1, ...left.shape], data: left.data }, { shape: [1, ...right.shape], data: right.data });
  return { shape: made.shape.slice(1), data: made.data };
}
