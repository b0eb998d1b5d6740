// The devices of a plan: a table to edit, a file to drop, or a cell to draw.

import { formatCsv, parseCsv } from "../lib/csv.js";
import { field, h, icon, scroller } from "../lib/dom.js";
import { integer, plural } from "../lib/format.js";

const MOST_ROWS = 200; // more are kept and planned, but not shown for editing
const MOST_COLUMNS = 40; // a table may have a thousand profile columns
export const COLUMNS = [
  "device",
  "must_include",
  "upload_s",
  "rate_bps",
  "snr_db",
  "distance_m",
  "power_dbm",
  "power_dbm_per_mhz",
  "compute_s",
  "samples",
  "seconds_per_sample",
  "samples_per_second",
];

/** A JSON file of devices as rows; the same two shapes that `fedcell plan` reads. */
function jsonRows(text) {
  const document = JSON.parse(text);
  const devices = Array.isArray(document) ? document : document.devices;
  const columns = [...new Set(devices.flatMap((device) => Object.keys(device)))];
  return [columns, ...devices.map((device) => columns.map((column) => String(device[column] ?? "")))];
}

/** The editor; `changed(source)` is told {devices_csv} or {draw}, `load(text)` tries a file first and may throw. */
export class DeviceEditor {
  constructor({ limits, changed, tryText }) {
    this.limits = limits;
    this.changed = changed;
    this.tryText = tryText;
    this.source = { draw: { count: 20, seed: 0 } };
    this.columns = [];
    this.rows = [];
    this.build();
  }

  build() {
    this.file = h("input", {
      type: "file",
      accept: ".csv,.tsv,.json,text/csv,application/json",
      class: "unseen",
      tabindex: "-1",
      "aria-hidden": "true",
      onchange: () => this.readFile(this.file.files[0]),
    });
    const choose = h("button", { type: "button", onclick: () => this.file.click() }, "Choose a file");
    this.count = h("input", { type: "number", min: 1, step: 1, value: 20, oninput: () => this.draw() });
    this.seed = h("input", { type: "number", min: 0, step: 1, value: 0, oninput: () => this.draw() });
    this.labels = h("input", { type: "checkbox", onchange: () => this.draw() });
    const again = h("button", { type: "button", onclick: () => this.drawAgain() }, "Draw a cell");
    this.error = h("p", { class: "error", role: "alert" });
    this.caption = h("p", { class: "muted editor-caption" });
    this.table = h("table", { class: "editor" });
    this.table.addEventListener("input", (event) => this.edited(event.target));
    this.table.addEventListener("paste", (event) => this.pasted(event));
    this.table.addEventListener("keydown", (event) => this.move(event));
    this.adder = h(
      "button",
      { type: "button", class: "small add-row", "data-action": "add-row", onclick: () => this.addRow() },
      icon("plus"),
      "Add a device",
    );
    this.drop = h(
      "div",
      { class: "drop" },
      h("p", {}, "Drop a CSV or JSON file here, or paste rows into the table"),
      h("div", { class: "drop-row" }, choose, this.file),
    );
    this.element = h(
      "section",
      { class: "card devices", "aria-label": "Devices" },
      h("h2", {}, "Devices"),
      this.drop,
      h("div", { class: "draw-row" }, field("devices", this.count), field("seed", this.seed), again),
      h("label", { class: "check" }, this.labels, "each with two of ten labels, as in the paper"),
      this.error,
      this.caption,
      scroller("Devices, to edit", { class: "editor-scroll" }, this.table),
      this.adder,
    );
    for (const kind of ["dragover", "dragenter"])
      this.element.addEventListener(kind, (event) => this.dragged(event, true));
    for (const kind of ["dragleave", "drop"])
      this.element.addEventListener(kind, (event) => this.dragged(event, false));
    this.element.addEventListener("drop", (event) => this.dropped(event));
  }

  dragged(event, over) {
    event.preventDefault();
    this.drop.classList.toggle("over", over);
  }

  dropped(event) {
    const file = event.dataTransfer.files[0];
    if (file) this.readFile(file);
    else this.readText(event.dataTransfer.getData("text/plain"), "the dropped text");
  }

  async readFile(file) {
    if (!file) return;
    this.file.value = "";
    if (file.size > this.limits.upload_bytes) {
      this.error.textContent = `${file.name} is larger than ${integer(this.limits.upload_bytes / 2 ** 20)} MiB; use fedcell plan`;
      return;
    }
    await this.readText(await file.text(), file.name);
  }

  /** Take a text if the server can read it; otherwise say its sentence and keep what was there. */
  async readText(text, name) {
    this.error.textContent = "";
    try {
      const isJson = /^\s*[[{]/.test(text);
      let rows = isJson ? jsonRows(text) : parseCsv(text);
      const source = isJson ? formatCsv(rows) : text.includes("\t") ? formatCsv(rows) : text;
      await this.tryText(source);
      rows = rows.length ? rows : [[]];
      [this.columns, ...this.rows] = [rows[0].map((column) => column.trim()), ...rows.slice(1)];
      this.source = { devices_csv: source };
      this.name = name;
      this.fill();
      this.changed();
    } catch (error) {
      this.error.textContent =
        error instanceof SyntaxError ? `${name} is not valid JSON (${error.message})` : error.message;
    }
  }

  draw() {
    const number = (input) =>
      input.value !== "" && Number.isFinite(Number(input.value)) ? Number(input.value) : input.value;
    const labels = this.labels.checked ? { labels: 2 } : {};
    this.source = { draw: { count: number(this.count), seed: number(this.seed), ...labels } };
    this.error.textContent = "";
    this.changed();
  }

  drawAgain() {
    if (this.source.draw) this.seed.value = Number(this.seed.value) + 1;
    this.draw();
  }

  /** What a reload brings back. */
  restore(source, name) {
    this.source = source;
    this.name = name;
    if (source.draw) {
      [this.count.value, this.seed.value] = [source.draw.count, source.draw.seed];
      this.labels.checked = Boolean(source.draw.labels);
    } else [this.columns, ...this.rows] = parseCsv(source.devices_csv);
  }

  get drawn() {
    return Boolean(this.source.draw);
  }

  /** The devices that the server drew. */
  setDrawn({ columns, rows, count }) {
    this.total = count ?? rows.length; // of many the server lists some, which are only looked at
    this.columns = columns;
    this.rows = rows.map((row) =>
      Array.isArray(row) ? row.map(String) : columns.map((column) => String(row[column] ?? "")),
    );
    this.name = "drawn from the cell";
    this.fill();
  }

  fill() {
    const shown = this.rows.slice(0, MOST_ROWS);
    const total = this.drawn ? this.total : this.rows.length;
    const partial = this.drawn && total > this.rows.length;
    const columns = this.columns.slice(0, MOST_COLUMNS);
    const wide = this.columns.length > MOST_COLUMNS ? `; the first ${MOST_COLUMNS} columns are shown` : "";
    const more = (total > shown.length ? `; the first ${shown.length} are shown` : "") + wide;
    this.caption.textContent = `${plural(total, "device")}, ${this.name}${more}`;
    this.adder.hidden = partial;
    const key = JSON.stringify([this.columns, shown, partial]);
    if (this.shown === key) return;
    this.shown = key;
    // A drawn number has 17 digits; six are enough to look at, and the others stay until it is edited.
    const readable = (value) =>
      this.drawn && value.length > 9 && Number.isFinite(Number(value))
        ? String(Number(Number(value).toPrecision(6)))
        : value;
    const cell = (value, i, j) =>
      h(
        "td",
        {},
        h("input", {
          type: "text",
          value: readable(value),
          readonly: partial, // an edit would lose the devices that are not listed
          "data-row": i,
          "data-column": j,
          "aria-label": `${this.columns[j]} of row ${i + 1}`,
          spellcheck: "false",
          autocomplete: "off",
        }),
      );
    const off = (i) =>
      h(
        "td",
        { class: "off" },
        h(
          "button",
          { type: "button", class: "bare", "aria-label": `Remove row ${i + 1}`, onclick: () => this.removeRow(i) },
          icon("close"),
        ),
      );
    this.table.replaceChildren(
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", {}, h("span", { class: "unseen" }, "number")),
          columns.map((column) => h("th", { scope: "col" }, column)),
          h("th", {}, h("span", { class: "unseen" }, "remove")),
        ),
      ),
      h(
        "tbody",
        {},
        shown.map((row, i) =>
          h(
            "tr",
            {},
            h("th", { scope: "row", class: "index" }, String(i)),
            columns.map((_, j) => cell(row[j] ?? "", i, j)),
            partial ? null : off(i),
          ),
        ),
      ),
    );
  }

  /** The table is the source now. */
  own() {
    this.source = { devices_csv: formatCsv([this.columns, ...this.rows]) };
    if (this.name === "drawn from the cell") this.name = "edited by hand";
    this.error.textContent = "";
    this.changed();
  }

  /** A number that is set elsewhere on the page. */
  set(row, column, value) {
    const j = this.columns.indexOf(column);
    this.rows[row][j] = String(value);
    const input = this.table.querySelector(`[data-row="${row}"][data-column="${j}"]`);
    if (input) input.value = value;
    this.shown = null;
    this.own();
  }

  edited(input) {
    const { row, column } = input.dataset;
    this.rows[row][column] = input.value;
    this.shown = null;
    this.own();
  }

  addRow() {
    const last = this.rows[this.rows.length - 1] ?? this.columns.map(() => "");
    this.rows.push(this.columns.map((column, j) => (column === "device" ? `new-${this.rows.length + 1}` : last[j])));
    this.fill();
    this.own();
    this.table.querySelector("tbody tr:last-child input")?.focus();
  }

  removeRow(i) {
    this.rows.splice(i, 1);
    this.fill();
    this.own();
    this.table.querySelectorAll(".off button")[Math.min(i, this.rows.length - 1)]?.focus();
  }

  /** Several cells fill the table from where one is; with a heading of known columns they replace it. */
  pasted(event) {
    const text = event.clipboardData.getData("text/plain");
    const rows = parseCsv(text);
    if (rows.length < 2 && (rows[0]?.length ?? 0) < 2) return; // one value: the field takes it
    event.preventDefault();
    if (rows[0].some((cell) => COLUMNS.includes(cell.trim()))) {
      this.readText(formatCsv(rows), "pasted");
      return;
    }
    const row = Number(event.target.dataset.row);
    const column = Number(event.target.dataset.column);
    rows.forEach((cells, i) => {
      this.rows[row + i] ??= this.columns.map(() => "");
      cells.slice(0, this.columns.length - column).forEach((cell, j) => (this.rows[row + i][column + j] = cell.trim()));
    });
    this.fill();
    this.own();
  }

  /** Up and down go from row to row, as in a spreadsheet. */
  move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, Enter: 1 }[event.key];
    if (!step || event.target.tagName !== "INPUT") return;
    const { row, column } = event.target.dataset;
    this.table.querySelector(`[data-row="${Number(row) + step}"][data-column="${column}"]`)?.focus();
    event.preventDefault();
  }
}
