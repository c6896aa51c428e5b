// Products of matrices: sums in float64, two rows and four columns at a time, so that a number is fetched once for several
// products. Four columns of the right matrix are first laid side by side, as float64.

import { Numbers, Tensor, room } from "./tensors";

/** A matrix that begins at a place of some numbers. */
interface From {
  data: Numbers;
  start: number;
}

const [ROWS, COLUMNS] = [2, 4];

/** One product, [height, inner] · [inner, width]. */
function product(left: From, right: From, made: From, [height, inner, width]: [number, number, number]): void {
  const high = height - (height % ROWS);
  const wide = height < 2 * ROWS ? 0 : width - (width % COLUMNS);
  const tile = new Float64Array(inner * COLUMNS);
  for (let column = 0; column < wide; column += COLUMNS) {
    for (let place = 0, from = right.start + column, to = 0; place < inner; place++, from += width - COLUMNS)
      for (const end = to + COLUMNS; to < end; ) tile[to++] = right.data[from++];
    const to = made.start + column;
    for (let row = 0; row < high; row += ROWS) tiled(left.data, left.start + row * inner, tile, inner, made.data, to + row * width, width);
    if (high < height) tiled(left.data, left.start + high * inner, tile, inner, made.data, to + high * width, 0);
  }
  if (wide < width) few(left, right, made, [height, inner, width], wide);
}

/** Two rows of the left matrix times four columns; a last row is both, if `width`, the distance between them, is 0. */
function tiled(rows: Numbers, first: number, tile: Float64Array, inner: number, cells: Numbers, to: number, width: number): void {
  const next = width && inner;
  let a = 0, b = 0, c = 0, d = 0;
  let e = 0, f = 0, g = 0, h = 0;
  for (let x = first, y = 0, end = first + inner; x < end; x++, y += 4) {
    const one = tile[y];
    const two = tile[y + 1];
    const three = tile[y + 2];
    const four = tile[y + 3];
    const upper = rows[x];
    const lower = rows[x + next];
    a += upper * one, b += upper * two, c += upper * three, d += upper * four;
    e += lower * one, f += lower * two, g += lower * three, h += lower * four;
  }
  cells[to] = a, cells[to + 1] = b, cells[to + 2] = c, cells[to + 3] = d;
  to += width;
  cells[to] = e, cells[to + 1] = f, cells[to + 2] = g, cells[to + 3] = h;
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
