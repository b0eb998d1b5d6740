// The runs behind a field of a ranking: a policy's curves in a scenario beside those of the best there, or of the next.

import { CurvesView } from "../charts/curves.js";
import { get, latest, query } from "../lib/client.js";
import { h } from "../lib/dom.js";
import { plural } from "../lib/format.js";

export class CellView {
  constructor(shared) {
    this.shared = shared;
    const body = h("div", {});
    this.title = h("h2", { tabindex: "-1" });
    this.about = h("p", { class: "muted" });
    this.rounds = h("p", { class: "run-links muted" });
    this.error = h("p", { class: "error", role: "alert" });
    this.element = h("section", { class: "card", "aria-label": "The runs of a field", hidden: true }, this.title, this.about, this.error, body, this.rounds);
    this.view = new CurvesView(body, "Accuracy against time or energy; the tables have the numbers", () => this.load());
    this.ask = latest(async (tournament, scenario, lines, among) => {
      const { limits } = await this.shared.info;
      const found = await Promise.all(
        lines.map((policy) => get(query(`api/tournaments/${tournament.id}/runs`, { scenario: scenario.name, policy, store: tournament.store }))),
      );
      const most = Math.floor(limits.keys / lines.length); // seeds, the same of both
      const runs = found.map(({ runs: all }) => all.filter(({ state }) => state !== "missing").slice(0, most));
      const keys = runs.flat().map(({ key }) => key).join(",");
      return { runs, curves: await get(query("api/results/compare", { keys, target: scenario.target, among, ...this.view.axis })) };
    });
  }

  /** Beside whom: the best there, or for the best itself the next of the ranking. */
  open(tournament, scenario, policy, policies) {
    const next = scenario.tied[0] ?? policies.find(({ line }) => line !== policy.line).line;
    const rival = policy.line === scenario.best ? next : scenario.best || next;
    this.shown = { tournament, scenario, lines: [policy.line, rival], policies };
    this.element.hidden = false;
    this.title.textContent = `${policy.line} beside ${rival} in ${scenario.name}`;
    this.about.textContent = [scenario.about, `By the measure chosen: ${scenario.said}.`].filter(Boolean).join(" ");
    this.view.reset();
    this.load();
    this.title.focus({ preventScroll: true });
    this.element.scrollIntoView({ block: "nearest" });
  }

  close() {
    this.hide();
    this.element.hidden = true;
    this.shown = null;
  }

  hide() {
    this.view.replay.stop();
  }

  async load() {
    const { tournament, scenario, lines, policies } = this.shown;
    try {
      const answer = await this.ask(tournament, scenario, lines, policies.length); // they were picked from so many
      if (!answer) return;
      this.error.textContent = "";
      this.draw(answer);
    } catch (error) {
      this.error.textContent = error.message;
    }
  }

  draw({ runs, curves }) {
    const { tournament, scenario, lines } = this.shown;
    this.view.update(curves.policies, curves, { target: scenario.target, endS: scenario.budget_s, seeds: Math.max(...runs.map(({ length }) => length)) });
    const link = ({ key, seed }, i) => h("a", { href: `#cell?${new URLSearchParams({ run: key, store: tournament.store, with: runs[1][i]?.key ?? "" })}` }, String(seed));
    this.rounds.replaceChildren(`Look into the rounds of both, by seed (${plural(runs[0].length, "run")} of ${lines[0]}): `, ...runs[0].flatMap((run, i) => [link(run, i), " "]));
    this.element.scrollIntoView({ block: "nearest" });
  }
}
