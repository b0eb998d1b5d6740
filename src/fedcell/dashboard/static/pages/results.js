// Results: the stored runs, a comparison of those chosen, and the paper's reproduced figures.

import { swatch } from "../charts/ink.js";
import { CurvesView } from "../charts/curves.js";
import { get, latest, query } from "../lib/client.js";
import { field, h, icon, scroller, setOptions, throttle } from "../lib/dom.js";
import { fileName, integer, percent, plural, when } from "../lib/format.js";
import { FieldsView } from "./fields.js";
import { MeasuredView } from "./measured.js";
import { paperGallery } from "./paper.js";

const PAGE = 500;

const differs = (run) =>
  Object.entries(run.differs ?? {})
    .filter(([name]) => !["policy", "seed"].includes(name))
    .map(([name, value]) => `${name.split(".").pop()} ${value}`)
    .join(", ");

const COLUMNS = [
  { head: "policy", sort: "policy", left: true, text: (run) => run.policy },
  { head: "seed", sort: "seed", text: (run) => String(run.seed) },
  { head: "differs in", sort: "differs", left: true, text: differs },
  {
    head: "rounds",
    sort: "rounds",
    text: (run) => {
      if (["failed", "damaged"].includes(run.status)) return run.status;
      return `${integer(run.rounds)}${run.status === "unfinished" ? ", unfinished" : run.diverged ? ", diverged" : ""}`;
    },
    title: (run) => run.reason || (run.diverged ? "training diverged in the last round" : ""),
  },
  { head: "best", sort: "best", text: (run) => percent(run.best_accuracy) },
  { head: "last", sort: "last", text: (run) => percent(run.last_accuracy) },
  { head: "source", sort: "source", left: true, text: (run) => run.source },
  { head: "file", sort: "file", left: true, text: (run) => fileName(run.store), title: (run) => run.store },
  { head: "finished", sort: "finished", left: true, text: (run) => when(run.finished_unix_s) },
];

class ResultsPage {
  constructor(root, shared) {
    this.shared = shared;
    this.runs = [];
    this.total = 0;
    this.chosen = new Map();
    this.sort = { column: 8, down: true };
    this.build(root);
    this.compareLater = throttle(150, () => this.compare());
    this.ask = latest((keys) => get(query("api/results/compare", { keys, ...this.view.axis })));
    shared.info.then(
      (info) => this.begin(info),
      (error) => (this.error.textContent = error.message),
    );
  }

  build(root) {
    const reload = () => this.load();
    this.filters = {
      policy: h("select", { "aria-label": "Filter by policy", onchange: reload }),
      store: h("select", { "aria-label": "Filter by file", onchange: reload }),
      source: h("select", { "aria-label": "Filter by source", onchange: reload }),
    };
    setOptions(this.filters.source, [
      ["", "all"],
      ["simulation", "simulation"],
      ["flower", "flower"],
      ["testbed", "testbed"],
    ]);
    this.error = h("p", { class: "error", role: "alert" });
    this.count = h("p", { class: "muted", role: "status" });
    this.head = h("tr", {});
    this.bodyRows = h("tbody", {});
    this.table = scroller(
      "Stored runs",
      { class: "runs-scroll" },
      h(
        "table",
        { class: "runs" },
        h("caption", { class: "unseen" }, "Stored runs"),
        h("thead", {}, this.head),
        this.bodyRows,
      ),
    );
    this.more = h(
      "button",
      { type: "button", class: "small", hidden: true, onclick: () => this.load(true) },
      "Show more",
    );
    this.empty = h("div", { class: "empty", hidden: true });
    this.clear = h("button", { type: "button", class: "small", onclick: () => this.choose([], false) }, "Choose none");
    this.compared = h("section", { class: "card", "aria-label": "Comparison", hidden: true });
    const body = h("div", {});
    this.files = h("span", { class: "downloads", role: "group", "aria-label": "Download" });
    this.grouped = h("p", { class: "muted" });
    this.compared.append(h("div", { class: "card-head" }, h("h2", {}, "Chosen runs"), this.files), this.grouped, body);
    this.view = new CurvesView(
      body,
      "Accuracy against time or energy of the selected runs; the tables have the numbers",
      () => this.compare(),
    );
    this.measured = new MeasuredView();
    this.fields = new FieldsView();
    this.paper = h("section", { class: "card", "aria-label": "The paper", hidden: true });
    root.append(
      h(
        "section",
        { class: "card", "aria-label": "Runs" },
        h(
          "div",
          { class: "card-head" },
          h("h2", {}, "Stored runs"),
          h(
            "div",
            { class: "filters" },
            field("policy", this.filters.policy),
            field("file", this.filters.store),
            field("source", this.filters.source),
          ),
        ),
        this.error,
        this.empty,
        this.table,
        h("div", { class: "actions" }, this.count, this.more, this.clear),
      ),
      this.compared,
      this.fields.element,
      this.measured.element,
      this.paper,
    );
    this.drawHead();
  }

  async begin(info) {
    this.info = info;
    setOptions(this.filters.store, [["", "all"], ...info.stores.map(({ name }) => [name, fileName(name)])]);
    if (info.paper) this.loadPaper();
    else this.fillPaper(null);
  }

  hide() {
    this.view.replay.stop();
  }

  show({ params }) {
    if (params.has("keys")) this.given = params.get("keys").split(",");
    this.load();
  }

  back() {
    this.load();
  }

  async load(more = false) {
    const filters = Object.fromEntries(Object.entries(this.filters).map(([name, input]) => [name, input.value.trim()]));
    const mine = (this.loading = (this.loading ?? 0) + 1);
    try {
      const offset = more ? this.runs.length : 0;
      const sort = (this.sort.down ? "-" : "") + COLUMNS[this.sort.column].sort;
      const { runs, total, policies } = await get(query("api/runs", { ...filters, sort, limit: PAGE, offset }));
      if (mine !== this.loading) return;
      this.error.textContent = "";
      this.runs = more ? [...this.runs, ...runs] : runs;
      this.total = total;
      setOptions(this.filters.policy, [["", "all"], ...policies.map((line) => [line, line])]);
      this.fields.stale();
      await this.chooseGiven();
    } catch (error) {
      this.error.textContent = error.message;
      return;
    }
    this.filtered = filters;
    this.draw();
  }

  /** Choose the runs that the address names, wherever they stand among all; it is left as it is if none is here. */
  async chooseGiven() {
    const { given } = this;
    this.given = null;
    if (!given) return;
    const { runs } = await get(query("api/runs", { keys: given.join(","), limit: given.length }));
    for (const run of runs) this.chosen.set(run.key, run);
    const missing = given.filter((key) => !runs.some((run) => run.key.startsWith(key)));
    if (missing.length)
      this.error.textContent = `${missing.length} of the ${plural(given.length, "run")} in this address ${missing.length > 1 ? "are" : "is"} not in these files: ${missing.map((key) => key.slice(0, 8)).join(", ")}.`;
    if (runs.length) this.compareLater();
  }

  drawHead() {
    const all = h("input", {
      type: "checkbox",
      "aria-label": "Select all shown",
      onchange: () => this.choose(this.runs, all.checked),
    });
    this.all = all;
    const heading = (column, i) => {
      const sorted = this.sort.column === i ? (this.sort.down ? "descending" : "ascending") : null;
      return h(
        "th",
        { scope: "col", class: column.left ? "" : "num", "aria-sort": sorted },
        h(
          "button",
          { type: "button", class: "sort", onclick: () => this.sortBy(i) },
          column.head,
          h("span", { "aria-hidden": "true" }, sorted ? (this.sort.down ? " ↓" : " ↑") : ""),
        ),
      );
    };
    this.head.replaceChildren(
      h("td", {}, all),
      ...COLUMNS.map(heading),
      h("th", {}, h("span", { class: "unseen" }, "open")),
    );
  }

  sortBy(column) {
    this.sort = { column, down: this.sort.column === column ? !this.sort.down : false };
    this.drawHead();
    this.head.querySelectorAll(".sort")[column].focus();
    this.load(); // of all runs, not only of those shown
  }

  draw() {
    this.bodyRows.replaceChildren(...this.runs.map((run) => this.row(run)));
    const none = this.runs.length === 0;
    this.table.hidden = none;
    this.empty.hidden = !none;
    if (none) this.fillEmpty(Object.values(this.filtered).some(Boolean));
    this.more.hidden = this.runs.length >= this.total;
    this.drawChosen();
  }

  fillEmpty(filtered) {
    if (filtered)
      return this.empty.replaceChildren(h("p", {}, "No run has that policy, file and source. Clear a filter above."));
    return this.empty.replaceChildren(
      h("h3", {}, "No runs are stored yet"),
      h(
        "p",
        {},
        "A ",
        h("a", { href: "#race" }, "race"),
        " stores its runs here as they finish. So does a sweep in a terminal: ",
        h("code", {}, "fedcell sweep examples/sweep.toml --store results.db"),
        ". To look at other files as well: ",
        h("code", {}, "fedcell serve results.db --read other.db"),
        ".",
      ),
    );
  }

  row(run) {
    const box = h("input", {
      type: "checkbox",
      checked: this.chosen.has(run.key),
      "aria-label": `Select ${run.policy}, seed ${run.seed}`,
      onchange: () => this.choose([run], box.checked, true),
    });
    const cell = (column) => {
      const text = column.text(run);
      return h(
        "td",
        { class: column.left ? "" : "num", title: column.title?.(run) ? column.title(run) : column.left ? text : null },
        column === COLUMNS[0]
          ? [
              h("span", { class: "policy" }, swatch(run.colour, run.dash), h("span", { class: "policy-line" }, text)),
              run.doubt ? h("small", { class: "trouble", title: run.doubt }, `do not use: ${run.doubt}`) : null,
            ]
          : text,
      );
    };
    return h(
      "tr",
      { "data-key": run.key },
      h("td", {}, box),
      COLUMNS.map(cell),
      h(
        "td",
        {},
        run.rounds > 0
          ? h("a", { href: `#cell?${new URLSearchParams({ run: run.key, store: run.store })}` }, "Cell")
          : null,
      ),
    );
  }

  /** Choose runs or not; an empty list unchosen is all of them. */
  choose(runs, on, single = false) {
    if (!single && !on) this.chosen.clear();
    for (const run of runs) {
      if (on) this.chosen.set(run.key, run);
      else this.chosen.delete(run.key);
    }
    if (!single)
      for (const row of this.bodyRows.children) row.querySelector("input").checked = this.chosen.has(row.dataset.key);
    this.drawChosen();
    this.compareLater();
  }

  drawChosen() {
    const shown = `${plural(this.runs.length, "run")}${this.total > this.runs.length ? ` of ${integer(this.total)}` : ""}`;
    this.count.textContent = `${shown}, ${this.chosen.size} selected`;
    this.clear.hidden = this.chosen.size === 0;
    const most = this.info?.limits.keys ?? 0;
    const some = this.chosen.size > 1 && this.chosen.size <= most;
    this.fields.update(some ? { keys: [...this.chosen.keys()].join(",") } : (this.filtered ?? {}));
    this.all.checked = this.runs.length > 0 && this.runs.every((run) => this.chosen.has(run.key));
  }

  /** The paper's policies in its order, then the others: the first is what the others are held against. */
  ordered() {
    const lines = this.info?.policies ?? [];
    const place = ({ policy }) => (lines.includes(policy) ? lines.indexOf(policy) : lines.length);
    return [...this.chosen.values()].sort(
      (a, b) => place(a) - place(b) || (a.policy < b.policy ? -1 : a.policy > b.policy ? 1 : a.seed - b.seed),
    );
  }

  async compare() {
    const runs = this.ordered();
    const keys = runs.map((run) => run.key).join(",");
    const most = this.info?.limits.keys ?? Infinity; // not known yet: the server will say
    this.shared.keepPlace("results", null, { keys: runs.length <= most ? keys : "" });
    this.compared.hidden = runs.length === 0;
    this.measured.update(runs.filter((run) => run.source !== "simulation"));
    if (!runs.length) return;
    if (runs.length > most) {
      this.grouped.textContent = `${runs.length} runs are selected; at most ${most} can be compared. Select fewer.`;
      return;
    }
    try {
      const answer = await this.ask(keys);
      if (!answer) return;
      this.grouped.textContent = "Runs that differ only in the seed are one line: their mean, with its 95 % interval, or each seed where there are two or three.";
      this.view.update(answer.policies, answer, { target: answer.target, endS: answer.end_s ?? null });
      const link = (file) =>
        h(
          "a",
          { class: "button", href: query(`api/results/${file}`, file.startsWith("figure") ? { keys, ...this.view.axis } : { keys }), download: `results-${file}` },
          file.split(".")[1].toUpperCase(),
        );
      this.files.replaceChildren(icon("down"), ...["figure.svg", "figure.png", "data.csv", "data.json"].map(link));
    } catch (error) {
      this.grouped.textContent = error.message;
      this.view.update([], null);
    }
  }

  async loadPaper() {
    try {
      this.fillPaper(await get("api/paper"));
    } catch (error) {
      this.paper.hidden = false;
      this.paper.replaceChildren(h("h2", {}, "The paper, reproduced"), h("p", { class: "error" }, error.message));
    }
  }

  fillPaper(document) {
    this.paper.hidden = false;
    this.paper.replaceChildren(...paperGallery(document));
  }
}

export const mount = (root, shared) => new ResultsPage(root, shared);
