// Ranking: a stored tournament: mean ranks, who wins where, and the runs behind each cell.

import { swatch } from "../charts/ink.js";
import { RanksChart } from "../charts/ranks.js";
import { get, latest, query } from "../lib/client.js";
import { field, h, icon, scroller, segmented, setOptions } from "../lib/dom.js";
import { fileName, fixed, plural, significant, when } from "../lib/format.js";
import { CellView } from "./ranking_cell.js";

const MEASURES = [
  ["time", "time to target"],
  ["best", "best accuracy"],
  ["last", "last accuracy"],
];
const VERDICTS = { wins: "wins", shares: "is not significantly different from the best", loses: "is behind", unknown: "has no significant difference to any" };

/** Who leads, in a sentence; the numbers are the server's. */
export function leads({ policies, groups, scenarios }) {
  const [first, second] = policies;
  const equals = groups.find((lines) => lines.includes(first.line));
  const won = `wins ${first.wins} of ${plural(scenarios.length, "scenario")}${first.shares ? `, is not significantly different from the best in ${first.shares}` : ""}`;
  if (equals) return { text: `${first.line} is not significantly different from ${equals.length > 2 ? `${equals.length - 1} others` : equals[1]}`, small: `mean rank ${fixed(first.rank, 2)}; ${won}` };
  return { text: `${first.line} is first: mean rank ${fixed(first.rank, 2)}, the next has ${fixed(second.rank, 2)}`, small: won };
}

class RankingPage {
  constructor(root, shared) {
    this.shared = shared;
    this.all = [];
    this.id = null;
    this.by = "time";
    this.build(root);
    this.ask = latest((id, asked) => get(query(`api/tournaments/${id}`, asked)));
  }

  build(root) {
    const draw = () => this.load();
    this.title = h("h1", {}, "Ranking");
    this.which = h("select", { "aria-label": "Tournament", onchange: () => this.open(this.which.value) });
    this.target = h("input", { type: "number", min: 1, max: 100, step: "any", placeholder: "its own", "aria-label": "Target of all scenarios, %", onchange: draw });
    this.measure = segmented("Ranked by", MEASURES, this.by, (by) => {
      this.by = by;
      draw();
    });
    this.files = h("span", { class: "downloads", role: "group", "aria-label": "Download" });
    this.error = h("p", { class: "error", role: "alert" });
    this.empty = h("div", { class: "empty", hidden: true });
    this.said = h("p", { class: "headline" }, h("strong", {}), h("small", {}));
    this.tests = h("ul", { class: "notes" });
    const plot = scroller("Diagram of the mean ranks", { class: "ranks-host" });
    this.chart = new RanksChart(plot, "Mean ranks and the critical difference; the table below has the numbers");
    this.what = h("h2", {});
    this.table = scroller("Policies by scenarios", { class: "heat ranking-table" });
    this.cell = new CellView(this.shared);
    this.tools = h("div", { class: "filters" }, field("tournament", this.which), field("target, %", this.target), this.measure.element, this.files);
    this.head = h("section", { class: "card", "aria-label": "Mean ranks" }, h("div", { class: "card-head" }, this.title, this.tools), this.error, this.empty, this.said, plot, this.tests);
    this.reading = h("p", { class: "note" });
    this.grid = h(
      "section",
      { class: "card ranking-grid", "aria-label": "Who wins where", hidden: true },
      this.what,
      this.table,
      h("p", { class: "key-line muted" }, h("span", { class: "cell-key wins" }, "wins"), h("span", { class: "cell-key shares" }, "not significantly different from the best"), "The deeper the blue, the better the mean rank there. Click on a field to see its runs."),
      h("details", {}, h("summary", {}, "How to read this"), this.reading),
    );
    root.append(this.head, this.grid, this.cell.element);
  }

  async show({ id }) {
    try {
      this.all = (await get("api/tournaments")).tournaments;
    } catch (error) {
      this.error.textContent = error.message;
      return;
    }
    const name = (one) => one.damage ? `damaged · ${fileName(one.store)}` : `${plural(one.policies.length, "policy", "policies")} × ${plural(one.scenarios.length, "scenario")} · ${fileName(one.store)} · ${when(one.asked_unix_s)}`;
    setOptions(this.which, this.all.map((one) => [one.id, name(one)]));
    this.which.parentElement.hidden = this.all.length < 2;
    const wanted = id ?? this.id;
    const found = wanted ? this.all.find((one) => one.id === wanted) : (this.all.find((one) => !one.damage) ?? this.all[0]);
    this.empty.hidden = Boolean(found);
    for (const part of [this.said, this.chart.svg, this.files]) part.hidden = !found;
    this.tools.hidden = !this.all.length;
    if (found) this.open(found.id);
    else if (this.all.length) this.fillMissing(wanted);
    else this.fillEmpty();
  }

  back() {
    this.show({ id: this.id });
  }

  hide() {
    this.cell.hide();
  }

  open(id) {
    if (id !== this.id) this.cell.close();
    this.id = id;
    this.which.value = id;
    this.shared.keepPlace("ranking", id);
    this.load();
  }

  /** An address of a tournament that is not here must not show another one. */
  fillMissing(id) {
    this.id = null;
    this.grid.hidden = true;
    this.cell.close();
    this.tests.replaceChildren();
    this.title.textContent = "Ranking";
    this.which.parentElement.hidden = false;
    this.which.value = "";
    this.empty.replaceChildren(h("p", {}, `The tournament ${id.slice(0, 16)} is not in these files; it may have been deleted. Choose another one above.`));
  }

  fillEmpty() {
    for (const part of [this.tools, this.said, this.grid, this.chart.svg]) part.hidden = true;
    this.chart.svg.setAttribute("height", 0);
    this.empty.hidden = false;
    this.empty.replaceChildren(
      h("p", {}, "No tournament is stored here yet. In a terminal, ", h("code", {}, "fedcell tournament --store results.db"), " runs every policy in many scenarios."),
    );
  }

  get asked() {
    const percent = Number(this.target.value);
    return { by: this.by === "time" ? "" : this.by, target: percent > 0 ? percent / 100 : "" };
  }

  async load() {
    const one = this.all.find(({ id }) => id === this.id);
    try {
      const answer = await this.ask(this.id, { ...this.asked, store: one.store });
      if (!answer) return;
      this.error.textContent = "";
      this.draw(one, answer);
    } catch (error) {
      this.error.textContent = error.message;
    }
  }

  draw(one, answer) {
    for (const part of [this.tools, this.said, this.grid]) part.hidden = false;
    this.empty.hidden = true;
    const seeds = answer.seeds.length < answer.seeds_asked ? `${answer.seeds.length} of ${plural(answer.seeds_asked, "seed")}` : plural(answer.seeds_asked, "seed");
    this.title.textContent = `${plural(answer.policies.length, "policy", "policies")}, ${plural(answer.scenarios.length, "scenario")}, ${seeds}`;
    const { text, small } = leads(answer);
    this.said.firstChild.textContent = text;
    this.said.lastChild.textContent = small;
    this.chart.update(answer);
    const said = [`In these scenarios: ${answer.said}.`, answer.said_of_others && `For other scenarios like these: ${answer.said_of_others}.`, ...answer.troubles];
    this.tests.replaceChildren(...said.filter(Boolean).map((sentence) => h("li", {}, sentence)));
    this.what.textContent = answer.what;
    this.reading.textContent = answer.reading;
    this.drawTable(one, answer);
    const link = (file) =>
      h("a", { class: "button", href: query(`api/tournaments/${one.id}/${file}`, { ...this.asked, store: one.store }), download: `tournament-${file}` }, file.split(".")[1].toUpperCase());
    this.files.replaceChildren(icon("down"), ...["figure.svg", "figure.png", "data.csv", "data.json"].map(link));
  }

  drawTable(one, answer) {
    const { policies, scenarios, cells } = answer;
    const most = Math.max(2, policies.length);
    const shade = (rank) => Math.round(4 + 41 * (1 - (rank - 1) / (most - 1)));
    const button = (policy, scenario, cell) =>
      h(
        "td",
        { class: `num ${cell.verdict}`, style: { background: `rgb(43 149 221 / ${shade(cell.rank)}%)` } },
        h(
          "button",
          {
            type: "button",
            class: "bare",
            title: `${policy.line} ${VERDICTS[cell.verdict]} in ${scenario.name}: mean rank ${fixed(cell.rank, 2)}. Show its runs.`,
            onclick: () => this.cell.open(one, scenario, policy, policies),
          },
          cell.text,
          ["loses", "unknown"].includes(cell.verdict) ? null : h("span", { class: "unseen" }, `, ${VERDICTS[cell.verdict]}`),
        ),
      );
    this.table.replaceChildren(
      h(
        "table",
        {},
        h("caption", { class: "unseen" }, answer.what),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["policy", "rank", "wins"].map((name, i) => h("th", { scope: "col", class: i ? "num" : "" }, name)),
            scenarios.map((scenario) =>
              h("th", { scope: "col", class: "num", title: scenario.about || null }, scenario.name, h("small", {}, `${significant(100 * scenario.target, 3)} % in ${significant(scenario.budget_s, 4)} s`)),
            ),
          ),
        ),
        h(
          "tbody",
          {},
          policies.map((policy, i) =>
            h(
              "tr",
              { "data-policy": policy.line },
              h("th", { scope: "row" }, h("span", { class: "policy" }, swatch(policy.colour, policy.dash), h("span", { class: "policy-line", title: policy.line }, policy.line))),
              h("td", { class: "num" }, fixed(policy.rank, 2)),
              h("td", { class: "num" }, policy.shares ? `${policy.wins} + ${policy.shares}` : String(policy.wins)),
              scenarios.map((scenario, j) => button(policy, scenario, cells[i][j])),
            ),
          ),
        ),
      ),
    );
  }
}

export const mount = (root, shared) => new RankingPage(root, shared);
