// Whole resource blocks: a strip of them, each in the colour of the device that has it.

import { h, rem, s } from "../lib/dom.js";
import { plural } from "../lib/format.js";

/** A colour for each device, the same in every round; neighbours in number are far apart in hue. */
const colourOf = (index) => `hsl(${(index * 137.508) % 360} 55% ${25 + 6 * (index % 3)}%)`;

/** The strip in a host element, which is hidden where there are no blocks. */
export class BlockStrip {
  constructor(host, { label, hover = () => {} }) {
    this.host = host;
    this.label = label;
    this.hover = hover;
    this.svg = s("svg", { class: "blocks", role: "img" });
    this.note = h("small", { class: "muted" });
    host.append(this.svg, this.note);
    this.groups = new Map();
    new ResizeObserver(() => this.draw()).observe(host);
  }

  /** count: how many blocks there are, null for none; devices: [{index, blocks}] of those that have some. */
  update(count, devices) {
    this.data = { count, devices };
    this.host.hidden = count === null || count === undefined;
    this.draw();
  }

  highlight(index) {
    for (const [device, group] of this.groups) group.classList.toggle("lit", device === index);
  }

  draw() {
    const width = this.host.clientWidth;
    if (!this.data || this.host.hidden || width < 40) return;
    const { count, devices } = this.data;
    const used = devices.reduce((sum, device) => sum + device.blocks, 0);
    const free = count - used;
    const height = rem() * 1.6;
    const each = width / count;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("height", height);
    const parts = [s("rect", { class: "free-blocks", x: used * each, y: 0, width: free * each, height })];
    this.groups.clear();
    let first = 0;
    for (const device of devices) {
      parts.push(this.device(device, first, { each, height }));
      first += device.blocks;
    }
    // The lines between blocks, unless there are more of them than one could see.
    if (each >= 4)
      for (let i = 1; i < count; i += 1)
        parts.push(s("line", { class: "block-edge", x1: i * each, x2: i * each, y1: 0, y2: height }));
    this.svg.replaceChildren(...parts);
    const told = devices.map((device) => `device ${device.index} has ${device.blocks}`).join(", ");
    this.svg.setAttribute("aria-label", `${this.label}: ${told || "nobody has any"}; ${free} free`);
    this.note.textContent = `${plural(count, "resource block")}, ${free ? `${free} free` : "all given out"}; each number is a device`;
  }

  device({ index, blocks }, first, { each, height }) {
    const [x, width] = [first * each, blocks * each];
    const group = s("g", {
      class: "block-device",
      "data-device": index,
      "data-blocks": blocks,
      onpointerenter: () => this.hover(index),
      onpointerleave: () => this.hover(null),
    });
    group.append(s("rect", { x, y: 0, width, height, style: { fill: colourOf(index) } }));
    if (width >= rem() * 0.6 * String(index).length)
      group.append(s("text", { x: x + width / 2, y: height / 2, "text-anchor": "middle", dy: "0.35em" }, String(index)));
    this.groups.set(index, group);
    return group;
  }
}
