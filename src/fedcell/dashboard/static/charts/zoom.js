// A closer look at a chart: drag over a part, or plus, minus and arrow keys; a double click or 0 shows all again.

import { h, s } from "../lib/dom.js";

const LEAST_PX = 6; // less than that is a click
const STEP = 1.5;
const MOVE = 0.15;
const KEYS = {
  "+": (part) => scaled(part, 1 / STEP),
  "=": (part) => scaled(part, 1 / STEP),
  "-": (part) => scaled(part, STEP),
  ArrowLeft: (part) => moved(part, -MOVE, 0),
  ArrowRight: (part) => moved(part, MOVE, 0),
  ArrowUp: (part) => moved(part, 0, MOVE),
  ArrowDown: (part) => moved(part, 0, -MOVE),
  0: () => null,
};

function scaled({ x0, x1, y0, y1 }, factor) {
  const [x, y, dx, dy] = [(x0 + x1) / 2, (y0 + y1) / 2, ((x1 - x0) / 2) * factor, ((y1 - y0) / 2) * factor];
  return { x0: x - dx, x1: x + dx, y0: y - dy, y1: y + dy };
}

function moved({ x0, x1, y0, y1 }, right, up) {
  const [dx, dy] = [right * (x1 - x0), up * (y1 - y0)];
  return { x0: x0 + dx, x1: x1 + dx, y0: y0 + dy, y1: y1 + dy };
}

/** A part within the whole, of the same size where it fits; null if that is all of it. */
export function within(part, whole) {
  const axis = (a, b, least, most) => {
    const size = Math.min(b - a, most - least);
    const from = Math.min(Math.max(a, least), most - size);
    return [from, from + size];
  };
  const [x0, x1] = axis(part.x0, part.x1, whole.x0, whole.x1);
  const [y0, y1] = axis(part.y0, part.y1, whole.y0, whole.y1);
  const all = x1 - x0 >= 0.999 * (whole.x1 - whole.x0) && y1 - y0 >= 0.999 * (whole.y1 - whole.y0);
  return all ? null : { x0, x1, y0, y1 };
}

/** Let the user zoom a LineChart. */
export function makeZoomable(chart) {
  const { svg, host } = chart;
  const button = h(
    "button",
    { type: "button", class: "small unzoom", hidden: true, onclick: () => (chart.zoom(null), svg.focus()) },
    "Show all",
  );
  host.append(button);
  chart.drawn = () => (button.hidden = chart.zoomed === null);
  const show = (part) => chart.zoom(part && within(part, chart.whole));
  svg.addEventListener("dblclick", () => show(null));
  svg.addEventListener("keydown", (event) => {
    const change = KEYS[event.key];
    if (!change || !chart.scales || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.startsWith("Arrow") && !chart.zoomed) return; // nowhere to go: the page may want it
    event.preventDefault();
    event.stopPropagation();
    show(change(chart.zoomed ?? chart.whole));
  });
  dragToZoom(chart, show);
}

/** A finger scrolls the page; a mouse or a pen draws a frame. */
function dragToZoom(chart, show) {
  const { svg } = chart;
  let from = null;
  let frame = null;
  const at = (event) => {
    const box = svg.getBoundingClientRect();
    const { left, right, top, bottom } = chart.scales;
    return {
      x: Math.min(right, Math.max(left, event.clientX - box.left)),
      y: Math.min(bottom, Math.max(top, event.clientY - box.top)),
    };
  };
  const end = () => {
    frame?.remove();
    from = frame = null;
    chart.dragging = false;
  };
  svg.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch" || event.button !== 0 || !chart.scales) return;
    from = at(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    if (!from) return;
    const to = at(event);
    if (!frame && Math.hypot(to.x - from.x, to.y - from.y) < LEAST_PX) return;
    chart.dragging = true;
    chart.unread();
    frame ??= s("rect", { class: "zoom-frame" });
    if (!frame.isConnected) svg.append(frame); // new data may have drawn the chart anew meanwhile
    const sides = { x: Math.min(from.x, to.x), y: Math.min(from.y, to.y), width: Math.abs(to.x - from.x), height: Math.abs(to.y - from.y) };
    for (const [name, value] of Object.entries(sides)) frame.setAttribute(name, value);
  });
  svg.addEventListener("pointerup", (event) => {
    const [begin, to] = [from, from && at(event)];
    const drawn = frame !== null;
    end();
    if (!drawn || Math.abs(to.x - begin.x) < LEAST_PX || Math.abs(to.y - begin.y) < LEAST_PX) return;
    const { left, right, top, bottom, x0, x1, y0, y1 } = chart.scales;
    const x = (px) => x0 + ((px - left) / (right - left)) * (x1 - x0);
    const y = (px) => y0 + ((bottom - px) / (bottom - top)) * (y1 - y0);
    show({
      x0: x(Math.min(begin.x, to.x)),
      x1: x(Math.max(begin.x, to.x)),
      y0: y(Math.max(begin.y, to.y)),
      y1: y(Math.min(begin.y, to.y)),
    });
  });
  svg.addEventListener("pointercancel", end);
}
