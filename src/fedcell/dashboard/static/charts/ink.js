// How a policy's line looks: its colour in the theme and its dash.

import { s } from "../lib/dom.js";

const DASHES = { "-": "", "--": "7 4", "-.": "9 3 2 3", ":": "2 3" };

export const dasharray = (dash) => DASHES[dash] ?? "";

/** A policy's colour as the theme shows it: app.css has one for each, of enough contrast on its ground. */
export const ink = (colour) =>
  /^#[0-9a-f]{6}$/.test(colour ?? "") ? `var(--c-${colour.slice(1)}, ${colour})` : "var(--c-000000)";

/** A short sample of a line, for legends and tables: the colour and the dash together. */
export function swatch(colour, dash) {
  return s(
    "svg",
    { class: "swatch", viewBox: "0 0 26 10", "aria-hidden": "true" },
    s("line", { x1: 1, x2: 25, y1: 5, y2: 5, "stroke-dasharray": dasharray(dash), style: { stroke: ink(colour) } }),
  );
}
