// Play, pause, speed and a slider over a simulated clock.

import { h, icon, setOptions } from "../lib/dom.js";
import { integer, seconds } from "../lib/format.js";

const SPEEDS = [1, 3, 10, 30, 100, 300, 1000, 3000, 10000];
const WHOLE_S = 15; // about as long as a replay takes unless the user says otherwise
const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export class Replay {
  /** `seek(clock)` is called with the simulated second to show, null for all there is. */
  constructor(seek) {
    this.tell = seek;
    this.at = null;
    this.end = 0;
    this.button = h("button", { type: "button", class: "play", onclick: () => this.toggle() });
    this.slider = h("input", {
      type: "range",
      min: 0,
      step: "any",
      "aria-label": "Simulated time",
      oninput: () => this.go(Number(this.slider.value) >= this.end ? null : Number(this.slider.value)),
    });
    this.label = h("output", { class: "place" });
    this.speed = h("select", { "aria-label": "Simulated seconds per second", onchange: () => (this.chosen = true) });
    setOptions(
      this.speed,
      SPEEDS.map((speed) => [speed, `${integer(speed)} ×`]),
    );
    this.element = h(
      "div",
      { class: "replay", role: "group", "aria-label": "Replay", hidden: true },
      this.button,
      this.slider,
      this.label,
      this.speed,
    );
    this.drawButton();
  }

  /** How far there is something to show, in simulated seconds; 0 hides the controls. */
  setEnd(end) {
    this.element.hidden = !(end > 0);
    if (!(end > 0)) return this.stop();
    if (!this.chosen) this.speed.value = SPEEDS.findLast((speed) => speed <= Math.max(1, (1.5 * end) / WHOLE_S));
    if (end === this.end) return undefined;
    this.end = end;
    if (this.at > end) this.at = null; // other runs than before
    this.slider.max = end;
    return this.drawPlace();
  }

  /** Another race: it is shown as far as it is. */
  reset() {
    this.stop();
    this.at = null;
    this.end = 0;
  }

  go(at) {
    this.at = at;
    this.drawPlace();
    this.tell(at);
  }

  toggle() {
    if (this.playing) return this.stop();
    this.playing = true;
    this.last = performance.now();
    this.drawButton();
    if (this.at === null) this.go(0);
    return this.next();
  }

  stop() {
    this.playing = false;
    cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
    this.drawButton();
  }

  /** Where motion is unwanted, four pictures a second instead of a movement. */
  next() {
    const step = () => this.step(performance.now());
    if (still()) this.timer = setTimeout(step, 250);
    else this.frame = requestAnimationFrame(step);
  }

  step(now) {
    if (!this.playing) return;
    const passed = Math.min(0.5, (now - this.last) / 1000); // a tab that slept does not jump
    this.last = now;
    const at = (this.at ?? 0) + passed * Number(this.speed.value);
    if (at >= this.end) {
      this.stop();
      this.go(null);
      return;
    }
    this.go(at);
    this.next();
  }

  drawButton() {
    const playing = Boolean(this.playing);
    this.button.replaceChildren(icon(playing ? "pause" : "play"), playing ? "Hold" : "Replay");
    this.button.setAttribute("aria-pressed", String(playing));
  }

  drawPlace() {
    const at = this.at ?? this.end;
    this.slider.value = at;
    const digits = this.end < 10 ? 1 : 0;
    this.label.textContent = `${at.toFixed(digits)} s of ${seconds(Number(this.end.toFixed(digits)), 6)}`;
    this.slider.setAttribute("aria-valuetext", this.label.textContent);
  }
}
