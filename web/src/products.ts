// Products of matrices: sums in float64, four rows and four columns at a time, so that a number is fetched once for
// four products.

import { Numbers, Tensor, room } from "./tensors";

/** One product, [height, inner] · [inner, width], from and to these places. */
function product(
  [left, from]: [Numbers, number],
  [right, by]: [Numbers, number],
  [made, to]: [Numbers, number],
  height: number,
  inner: number,
  width: number,
): void {
  const [wide, high] = [width - (width % 4), height - (height % 4)];
  for (let row = 0; row < high; row += 4) {
    const a = from + row * inner;
    for (let column = 0; column < wide; column += 4) {
      let [p, q, r, s] = [0, 0, 0, 0];
      let [t, u, v, w] = [0, 0, 0, 0];
      let [c, d, e, f] = [0, 0, 0, 0];
      let [g, h, i, j] = [0, 0, 0, 0];
      for (let place = 0, x = a, y = by + column; place < inner; place++, x++, y += width) {
        const [one, two, three, four] = [right[y], right[y + 1], right[y + 2], right[y + 3]];
        let factor = left[x];
        p += factor * one, q += factor * two, r += factor * three, s += factor * four;
        factor = left[x + inner];
        t += factor * one, u += factor * two, v += factor * three, w += factor * four;
        factor = left[x + 2 * inner];
        c += factor * one, d += factor * two, e += factor * three, f += factor * four;
        factor = left[x + 3 * inner];
        g += factor * one, h += factor * two, i += factor * three, j += factor * four;
      }
      const z = to + row * width + column;
      made[z] = p, made[z + 1] = q, made[z + 2] = r, made[z + 3] = s;
      made[z + width] = t, made[z + width + 1] = u, made[z + width + 2] = v, made[z + width + 3] = w;
      made[z + 2 * width] = c, made[z + 2 * width + 1] = d, made[z + 2 * width + 2] = e, made[z + 2 * width + 3] = f;
      made[z + 3 * width] = g, made[z + 3 * width + 1] = h, made[z + 3 * width + 2] = i, made[z + 3 * width + 3] = j;
    }
  }
  for (let row = 0; row < height; row++)
    for (let column = row < high ? wide : 0; column < width; column++) {
      let sum = 0;
      for (let place = 0, x = from + row * inner, y = by + column; place < inner; place++, x++, y += width) sum += left[x] * right[y];
      made[to + row * width + column] = sum;
    }
}

/** Products of matrices, one for each index of the leading axis. */
export function products(left: Tensor, right: Tensor): Tensor {
  const [count, height, inner] = left.shape;
  const width = right.shape[2];
  const data = room(count * height * width, left, right);
  for (let batch = 0; batch < count; batch++)
    product(
      [left.data, batch * height * inner],
      [right.data, batch * inner * width],
      [data, batch * height * width],
      height,
      inner,
      width,
    );
  return { shape: [count, height, width], data };
}

/** The product of two matrices. */
export function matrix(left: Tensor, right: Tensor): Tensor {
  const [height, inner] = left.shape;
  const width = right.shape[1];
  const data = room(height * width, left, right);
  product([left.data, 0], [right.data, 0], [data, 0], height, inner, width);
  return { shape: [height, width], data };
}
