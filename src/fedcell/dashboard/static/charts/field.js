// The mean SNR over the cell: where it has a value, and how strong it is, as a picture.

/** The segments on which a field has a value, by marching squares; coordinates are grid indices. */
export function contour(rows, level) {
  const segments = [];
  for (let j = 0; j + 1 < rows.length; j++) {
    for (let i = 0; i + 1 < rows[j].length; i++) {
      const corners = [rows[j][i], rows[j][i + 1], rows[j + 1][i + 1], rows[j + 1][i]];
      if (!corners.every(Number.isFinite)) continue;
      const cuts = [];
      const at = [
        [i, j],
        [i + 1, j],
        [i + 1, j + 1],
        [i, j + 1],
      ];
      for (let edge = 0; edge < 4; edge++) {
        const a = corners[edge];
        const b = corners[(edge + 1) % 4];
        if (a < level === b < level) continue;
        const t = (level - a) / (b - a);
        const [p, q] = [at[edge], at[(edge + 1) % 4]];
        cuts.push([p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])]);
      }
      for (let k = 0; k + 1 < cuts.length; k += 2) segments.push([cuts[k], cuts[k + 1]]);
    }
  }
  return segments;
}

/** The field with each value the mean of those about it. */
function blurred(rows, reach) {
  const near = (values, at) => values.slice(Math.max(0, at - reach), at + reach + 1).filter(Number.isFinite);
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const across = rows.map((row) => row.map((value, i) => (Number.isFinite(value) ? mean(near(row, i)) : null)));
  const column = (i) => across.map((row) => row[i]);
  const columns = rows[0].map((_, i) => column(i));
  return across.map((row, j) => row.map((value, i) => (Number.isFinite(value) ? mean(near(columns[i], j)) : null)));
}

/** What contours are drawn of: obstacles closer than one can see would make them a scribble, so they are smoothed. */
export function readable(rows) {
  const row = rows[rows.length >> 1].filter(Number.isFinite);
  const bends = row.slice(2).map((value, i) => Math.abs(value - 2 * row[i + 1] + row[i]));
  const rough = [...bends].sort((a, b) => a - b)[bends.length >> 1] > 0.5;
  return rough ? blurred(blurred(blurred(rows, 3), 3), 3) : rows;
}

/** Levels a reader can name: every 5, 10 or 20 dB. */
export function levels(rows) {
  const values = rows
    .flat()
    .filter(Number.isFinite)
    .sort((a, b) => a - b);
  if (!values.length) return [];
  const low = values[Math.floor(values.length * 0.02)];
  const high = values[Math.floor(values.length * 0.995)];
  const step = [2, 5, 10, 20].find((size) => (high - low) / size <= 7) ?? 50;
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.max(0, Math.floor(high / step) - first + 1) }, (_, i) => (first + i) * step);
}

/** The field as a small picture, blurred up by the browser: darker where the signal is better. */
export function shade(field) {
  const rows = field.snr_db;
  const canvas = document.createElement("canvas");
  canvas.width = rows[0].length;
  canvas.height = rows.length;
  const values = rows.flat().filter(Number.isFinite);
  const low = values.reduce((a, b) => Math.min(a, b), Infinity);
  const high = low + 45;
  const context = canvas.getContext("2d");
  const picture = context.createImageData(canvas.width, canvas.height);
  rows.forEach((row, j) =>
    row.forEach((value, i) => {
      const strength = Number.isFinite(value) ? Math.min(1, Math.max(0, (value - low) / (high - low))) : 0;
      const place = 4 * ((rows.length - 1 - j) * canvas.width + i); // north is up
      picture.data.set([112, 128, 150, 20 + 120 * strength], place);
    }),
  );
  context.putImageData(picture, 0, 0);
  return canvas.toDataURL();
}
