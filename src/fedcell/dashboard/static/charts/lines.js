// Lines as numbers: ticks, extents, readings, paths and smoothing. Nothing here draws.

/** Round places between two numbers, about so many; `least` apart, 1 for what is counted. */
export function ticks(low, high, count, least = 0) {
  if (!(high > low)) return [low];
  const rough = Math.max(least, (high - low) / Math.max(1, count));
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

const numbers = (values) => (values ?? []).filter((value) => Number.isFinite(value));

/** The numbers that the axes span; `options` may fix any of them. */
export function extent(series, marks, options) {
  const xs = series.flatMap((line) => numbers(line.x));
  const ys = series.flatMap((line) => [...numbers(line.y), ...numbers(line.low), ...numbers(line.high)]);
  for (const seed of series.flatMap((line) => line.seeds ?? [])) ys.push(...numbers(seed.y));
  marks.forEach((mark) => (numbers([mark.x, mark.y]).length === 2 ? (xs.push(mark.x), ys.push(mark.y)) : 0));
  const most = (values, least) => values.reduce((a, b) => Math.max(a, b), least);
  const fewest = (values, start) => values.reduce((a, b) => Math.min(a, b), start);
  const x0 = options.xMin ?? fewest(xs, Infinity);
  const x1 = options.xMax ?? most(xs, -Infinity);
  const y0 = options.yMin ?? fewest(ys, Infinity);
  const y1 = options.yMax ?? most(ys, -Infinity);
  return {
    x0: Number.isFinite(x0) ? x0 : 0,
    x1: x1 > x0 ? x1 : (Number.isFinite(x0) ? x0 : 0) + 1,
    y0: Number.isFinite(y0) ? y0 : 0,
    y1: y1 > y0 ? y1 : (Number.isFinite(y0) ? y0 : 0) + 1,
  };
}

/** The value of a step function, or of the nearest point, at x. */
export function readAt(line, x) {
  const { x: xs, y: ys } = line;
  if (!xs.length || x < xs[0]) return null;
  let low = 0;
  let high = xs.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle - 1;
  }
  if (!line.step && low + 1 < xs.length && xs[low + 1] - x < x - xs[low]) low += 1;
  return ys[low];
}

/** A line, or steps, as an SVG path. */
export function points(xs, ys, sx, sy, step) {
  let path = "";
  let lastX = -Infinity;
  for (let i = 0; i < xs.length; i++) {
    if (!Number.isFinite(ys[i])) continue;
    const x = sx(xs[i]);
    if (x - lastX < 0.4 && i < xs.length - 1) continue; // more than the eye can tell apart
    lastX = x;
    if (!path) path = `M${x.toFixed(1)} ${sy(ys[i]).toFixed(1)}`;
    else path += step ? `H${x.toFixed(1)}V${sy(ys[i]).toFixed(1)}` : `L${x.toFixed(1)} ${sy(ys[i]).toFixed(1)}`;
  }
  return path;
}

/** What lies between `low` and `high`, as an SVG path. */
export function band(line, sx, sy) {
  const keep = line.x.map((_, i) => i).filter((i) => Number.isFinite(line.low[i]) && Number.isFinite(line.high[i]));
  if (keep.length < 2) return "";
  const upper = points(
    keep.map((i) => line.x[i]),
    keep.map((i) => line.high[i]),
    sx,
    sy,
    line.step,
  );
  // Backwards along a step function: first down or up, then across.
  let lower = "";
  for (let j = keep.length - 1; j >= 0; j--) {
    const x = sx(line.x[keep[j]]).toFixed(1);
    const y = sy(line.low[keep[j]]).toFixed(1);
    if (j === keep.length - 1 || !line.step) lower += `L${x} ${y}`;
    else lower += `V${y}H${x}`;
  }
  return `${upper}${lower}Z`;
}

/**
 * A low-pass filter of a step function: at each step, what a value that follows it with this time constant has come to.
 * It needs no even spacing, and a constant of 0 gives the steps themselves.
 */
export function smoothed(xs, ys, constant) {
  if (!(constant > 0)) return ys;
  const out = [];
  let value = ys[0];
  for (let i = 0; i < ys.length; i++) {
    if (i > 0) value = ys[i - 1] + (value - ys[i - 1]) * Math.exp(-(xs[i] - xs[i - 1]) / constant);
    out.push(value);
  }
  return out;
}
