// The cell from above: the base station, the SNR as shade and contours, and the devices.

import { s } from "../lib/dom.js";
import { bitRate, hertz, integer, joules, percent, seconds, share, significant } from "../lib/format.js";
import { ink } from "./ink.js";
import { contour, levels, readable, shade } from "./field.js";

const EDGE = 0.465; // of the map's width, from the base station to the cell's edge

/** What is said of a device, under a law that shares this: label and value, in the order one asks. */
export function facts(device, shared = "the band") {
  const always = [
    ["distance", `${significant(device.distance_m, 4)} m`],
    ["SNR", `${significant(device.snr_db, 3)} dB`],
    ["trains", seconds(device.compute_s)],
    ["uploads, entire band", seconds(device.upload_s)],
  ];
  if (!device.scheduled) return [["in this round", "not scheduled"], ...always];
  return [
    ["in this round", device.delivered === false ? "scheduled, lost" : "scheduled"],
    ...always,
    ...(device.blocks === null ? [] : [["resource blocks", integer(device.blocks)]]),
    ...(shared ? [[`share of ${shared}`, share(device.share)]] : []),
    ["that is", device.bits_per_s === undefined ? hertz(device.bandwidth_hz) : bitRate(device.bits_per_s)],
    ...(Number.isFinite(device.epochs) ? [["epochs", significant(device.epochs, 3)]] : []),
    ...(Number.isFinite(device.bits) ? [["bits a weight", significant(device.bits, 3)]] : []),
    ["uploads, its share", seconds(device.upload_with_share_s)],
    ["finishes at", seconds(device.finish_s)],
    ["spends", joules(device.joules)],
    ...(Number.isFinite(device.measured_finish_s) ? [["measured finish", seconds(device.measured_finish_s)]] : []),
  ];
}

/**
 * The map in a host element; `hover(index or null)` is called as devices are pointed at or reached by arrow keys, and
 * `drag(index, x_m, y_m)`, where there is one, as they are moved. `describe(device)` says what is said of a device.
 */
export class CellMap {
  constructor(host, { hover, drag = null, describe = facts, label = "Map of the cell; arrow keys go from device to device" }) {
    Object.assign(this, { hover, drag, describe, dragging: null });
    this.clip = `clip-${Math.random().toString(36).slice(2)}`;
    this.host = host;
    this.circle = s("circle", {});
    this.ground = s("g", {});
    this.devices = s("g", {});
    this.traffic = s("g", { class: "traffic", "aria-hidden": "true" });
    this.marks = new Map();
    this.svg = s(
      "svg",
      {
        class: "map",
        tabindex: "0",
        role: "application",
        "aria-roledescription": "map",
        "aria-label": label,
        onkeydown: (event) => this.key(event),
        onblur: () => this.hover(null),
      },
      s("defs", {}, s("clipPath", { id: this.clip }, this.circle)),
      this.ground,
      this.traffic,
      this.devices,
    );
    host.append(this.svg);
    if (drag) this.letDrag();
    new ResizeObserver(() => this.resize()).observe(host);
  }

  /** Drawn in pixels, so that type and small devices keep their size on a small map. */
  resize() {
    const size = this.host.clientWidth;
    if (size < 40 || size === this.size) return;
    this.size = size;
    this.middle = size / 2;
    this.reach = EDGE * size;
    this.svg.setAttribute("viewBox", `0 0 ${size} ${size}`);
    for (const [name, value] of [
      ["cx", this.middle],
      ["cy", this.middle],
      ["r", this.reach],
    ])
      this.circle.setAttribute(name, value);
    if (this.radius) this.setField(this.field, this.radius);
    if (this.shown) this.update(...this.shown);
  }

  /** The field does not change from round to round. */
  setField(field, radius) {
    [this.field, this.radius] = [field, radius];
    if (!this.size) return;
    const round = { cx: this.middle, cy: this.middle, r: this.reach };
    const parts = [s("circle", { class: "cell-ground", ...round })];
    if (field) parts.push(...this.fieldParts(field));
    parts.push(s("circle", { class: "cell-edge", ...round }));
    const high = Math.min(17, this.size / 20);
    const mast = `M${this.middle} ${this.middle - high / 2}l${high * 0.42} ${high}h${-high * 0.84}z`;
    parts.push(s("g", { class: "mast" }, s("path", { d: mast }), s("title", {}, "base station")));
    this.ground.replaceChildren(...parts);
  }

  fieldParts(field) {
    const { x_m: xs, y_m: ys, snr_db: rows } = field;
    const dx = (xs[xs.length - 1] - xs[0]) / (xs.length - 1);
    const dy = (ys[ys.length - 1] - ys[0]) / (ys.length - 1);
    const place = ([i, j]) => [this.x(xs[0] + i * dx), this.y(ys[0] + j * dy)];
    const [left, bottom] = place([-0.5, -0.5]);
    const [right, top] = place([xs.length - 0.5, ys.length - 0.5]);
    const inside = { "clip-path": `url(#${this.clip})` };
    const image = s("image", {
      href: shade(field),
      x: left,
      y: top,
      width: right - left,
      height: bottom - top,
      preserveAspectRatio: "none",
    });
    const smooth = readable(rows);
    const lines = [];
    const labels = [];
    const spots = [];
    for (const level of levels(smooth)) {
      const segments = contour(smooth, level).map((pair) => pair.map(place));
      lines.push(
        s("path", {
          class: "contour",
          d: segments
            .map(([p, q]) => `M${p[0].toFixed(1)} ${p[1].toFixed(1)}L${q[0].toFixed(1)} ${q[1].toFixed(1)}`)
            .join(""),
        }),
      );
      const spot = this.spot(segments);
      if (spot && spots.every(([x, y]) => Math.hypot(x - spot[0], y - spot[1]) > 20)) {
        spots.push(spot);
        labels.push(
          s(
            "text",
            { class: "contour-label", x: spot[0], y: spot[1], "text-anchor": "middle", dy: "0.35em" },
            `${String(level).replace("-", "−")} dB`,
          ),
        );
      }
    }
    return [s("g", inside, image, lines), ...labels];
  }

  /** Where a contour crosses the ray to the upper right, if inside the cell and not at the mast. */
  spot(segments) {
    let best = null;
    for (const [[x, y]] of segments) {
      const radius = Math.hypot(x - this.middle, y - this.middle);
      const off = Math.abs(Math.atan2(this.middle - y, x - this.middle) - Math.PI / 3);
      if (radius > 26 && radius < this.reach - 8 && off < 0.25 && (!best || off < best.off))
        best = { off, place: [x, y] };
    }
    return best?.place;
  }

  /** The map has the pointer, not the device: that is drawn anew while it moves. */
  letDrag() {
    this.svg.classList.add("draggable");
    this.svg.addEventListener("pointerdown", (event) => {
      const device = event.target.closest("[data-device]");
      if (!device || event.button !== 0) return;
      event.preventDefault();
      this.svg.focus({ preventScroll: true });
      this.dragging = Number(device.dataset.device);
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (this.dragging === null) return;
      const box = this.svg.getBoundingClientRect();
      const metres = (px) => ((px - this.middle) / this.reach) * this.radius;
      this.drag(this.dragging, metres(event.clientX - box.left), -metres(event.clientY - box.top));
    });
    for (const end of ["pointerup", "pointercancel"]) this.svg.addEventListener(end, () => (this.dragging = null));
  }

  x(metres) {
    return this.middle + (metres / this.radius) * this.reach;
  }

  y(metres) {
    return this.middle - (metres / this.radius) * this.reach;
  }

  update(devices, colour) {
    this.shown = [devices, colour];
    if (!this.size) return;
    this.marks.clear();
    // Small ones last, so that a large share never hides one.
    const order = [...devices].sort(
      (a, b) => (a.scheduled ? 1 : 0) - (b.scheduled ? 1 : 0) || (b.share ?? 0) - (a.share ?? 0),
    );
    this.order = [...devices].sort((a, b) => a.index - b.index).map((device) => device.index);
    this.devices.replaceChildren(...order.map((device) => this.mark(device, colour)));
    this.traffic.replaceChildren();
    this.moving = null;
  }

  /** A moment of the round: a ring round a device closes as it trains, and a beam grows to the mast as it uploads. */
  seek(now) {
    if (!this.shown || !this.size) return;
    const [devices, colour] = this.shown;
    this.moving ??= devices.filter((device) => device.scheduled).map((device) => this.traveller(device, colour));
    for (const { device, ring, beam, x, y } of this.moving) {
      const since = Math.max(0, now - (device.start_s ?? 0)); // it has the model
      const trained = Math.min(1, since / (device.compute_s || 1e-9));
      const sent = Math.min(1, Math.max(0, (since - device.compute_s) / (device.upload_with_share_s || 1e-9)));
      ring.setAttribute("stroke-dasharray", `${trained} 1`);
      beam.setAttribute("x2", x + sent * (this.middle - x));
      beam.setAttribute("y2", y + sent * (this.middle - y));
      beam.setAttribute("visibility", sent > 0 ? "visible" : "hidden");
      beam.classList.toggle("sent", sent >= 1);
    }
  }

  traveller(device, colour) {
    const [x, y] = [this.x(device.x_m), this.y(device.y_m)];
    const r = Math.max(4.5, 0.085 * this.size * Math.sqrt(device.share ?? 0)) + 4;
    const beam = s("line", { class: "beam", x1: x, y1: y, x2: x, y2: y, style: { stroke: ink(colour) } });
    const ring = s("circle", { class: "ring", cx: x, cy: y, r, pathLength: 1, transform: `rotate(-90 ${x} ${y})` });
    this.traffic.append(beam, ring);
    return { device, ring, beam, x, y };
  }

  mark(device, colour) {
    const [x, y] = [this.x(device.x_m), this.y(device.y_m)];
    const radius = device.scheduled ? Math.max(4.5, 0.085 * this.size * Math.sqrt(device.share ?? 0)) : 3.5;
    const kind = !device.scheduled ? "idle" : device.delivered === false ? "scheduled lost" : "scheduled";
    const said = `device ${device.name ?? device.index}, ${this.describe(device)
      .map(([name, value]) => `${name} ${value}`)
      .join(", ")}`;
    const group = s(
      "g",
      {
        class: `device ${kind}`,
        id: `${this.clip}-${device.index}`,
        "data-device": device.index,
        role: "img",
        "aria-label": said,
        onpointerenter: () => this.hover(device.index),
        onpointerleave: () => this.hover(null),
      },
      s("circle", { class: "halo", cx: x, cy: y, r: radius + 5 }),
      s("circle", {
        class: "body",
        cx: x,
        cy: y,
        r: radius,
        style: device.scheduled ? { fill: ink(colour), stroke: ink(colour) } : {},
      }),
      device.scheduled && s("circle", { class: "pin", cx: x, cy: y, r: 1.6 }),
    );
    this.marks.set(device.index, group);
    return group;
  }

  highlight(index) {
    for (const [device, group] of this.marks) group.classList.toggle("lit", device === index);
    if (this.marks.has(index)) this.svg.setAttribute("aria-activedescendant", `${this.clip}-${index}`);
    else this.svg.removeAttribute("aria-activedescendant");
    this.at = index;
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !this.order?.length) return;
    event.preventDefault();
    event.stopPropagation();
    if (this.drag && (event.key === "ArrowUp" || event.key === "ArrowDown") && this.marks.has(this.at)) {
      const { x_m: x, y_m: y, distance_m: metres } = this.shown[0].find(({ index }) => index === this.at);
      const away = Math.max(0.01 * this.radius, metres + (event.key === "ArrowUp" ? -1 : 1) * (event.shiftKey ? 0.01 : 0.05) * this.radius);
      this.drag(this.at, (x * away) / metres, (y * away) / metres);
      return;
    }
    const now = this.order.indexOf(this.at);
    const next =
      now < 0 ? (step > 0 ? 0 : this.order.length - 1) : (now + step + this.order.length) % this.order.length;
    this.hover(this.order[next]);
  }
}

/** A table of the devices of a round: what map and bars show, as text. */
export const DEVICE_COLUMNS = [
  ["device", (d) => String(d.index)],
  ["scheduled", (d) => (d.scheduled ? "yes" : "")],
  ["distance, m", (d) => significant(d.distance_m, 5)],
  ["SNR, dB", (d) => significant(d.snr_db, 4)],
  ["blocks", (d) => (d.scheduled && d.blocks !== null ? integer(d.blocks) : "")],
  ["share", (d) => (d.scheduled ? percent(d.share) : "")],
  ["trains, s", (d) => significant(d.compute_s, 5)],
  ["uploads, s", (d) => (d.scheduled ? significant(d.upload_with_share_s, 5) : "")],
  ["finish, s", (d) => (d.scheduled ? significant(d.finish_s, 5) : "")],
  ["energy, J", (d) => (d.scheduled ? significant(d.joules, 4) : "")],
];
