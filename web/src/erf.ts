// The error function to float64: Taylor's series about the nearest of points that lie 1/16 apart.

const [NEAR, END, TERMS] = [16, 6, 12];

/** For each point, erf there and the factors of the series: those of exp(−x²), each made from the two before it, integrated. */
const SERIES: Float64Array[] = [];
for (let point = 0, value = 0; point <= NEAR * END; point++) {
  const x = point / NEAR;
  const factors = Float64Array.of(value, (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x), ...new Array(TERMS - 1).fill(0));
  for (let at = 2, last = factors[1], before = 0; at <= TERMS; at++) {
    [last, before] = [(-2 * (x * last + before)) / (at - 1), last];
    factors[at] = last / at;
  }
  SERIES.push(factors);
  value = sum(factors, 1 / NEAR);
}

function sum(factors: Float64Array, x: number): number {
  let all = factors[TERMS];
  for (let at = TERMS - 1; at >= 0; at--) all = all * x + factors[at];
  return all;
}

export function erf(x: number): number {
  const size = Math.abs(x);
  if (!(size < END)) return Math.sign(x);
  const point = Math.round(size * NEAR);
  return Math.sign(x) * sum(SERIES[point], size - point / NEAR);
}
