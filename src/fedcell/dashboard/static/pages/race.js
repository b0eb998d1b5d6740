// Race: start one, watch it, and the queue of them all.

import { CurvesView } from "../charts/curves.js";
import { atMost, get, patch, post, query, remove } from "../lib/client.js";
import { on } from "../lib/connection.js";
import { announce, h, redraw, throttle } from "../lib/dom.js";
import { askDelete, askRerun, askWords, showCommand } from "./race_dialogs.js";
import { raceForm } from "./race_form.js";
import { ACTIONS, ENDED, headOf, headOfNone, progress, queueItem } from "./race_parts.js";

/** What is said of a race that has no round to show, by its state. */
const WITHOUT_ROUNDS = {
  queued: "Waiting for its turn.",
  paused: "Paused before its first round.",
  stopped: "Stopped before its first round.",
  interrupted: "Interrupted before its first round: Resume goes on.",
  failed: "It failed before its first round; the reason stands above.",
  damaged: "What is stored of it is damaged; the reason stands above.",
  done: "No round fits into its budget.",
};

class RacePage {
  constructor(root, shared) {
    this.shared = shared;
    this.race = null;
    this.races = [];
    this.curves = null;
    this.formHost = h("div", { class: "race-form" }, h("div", { class: "card form skeleton", "aria-hidden": "true" }));
    this.head = h("div", { class: "race-head" });
    this.bar = h(
      "div",
      { class: "progress", role: "progressbar", "aria-label": "Race", "aria-valuemin": 0, "aria-valuemax": 100 },
      h("i", {}),
    );
    this.error = h("p", { class: "error", role: "alert" });
    const body = h("div", {});
    this.queue = h("ul", { class: "queue", "aria-label": "Races" });
    const card = h(
      "section",
      { class: "card race-card", "aria-label": "The race" },
      this.head,
      this.bar,
      this.error,
      body,
    );
    root.append(
      this.formHost,
      h(
        "div",
        { class: "race-main" },
        card,
        h("section", { class: "card", "aria-label": "All races" }, h("h2", {}, "Races"), this.queue),
      ),
    );
    root.classList.add("with-side");
    this.view = new CurvesView(
      body,
      "Accuracy against simulated time or energy, one line per policy; the tables have the numbers",
      () => {
        this.drawRace();
        this.loadCurves();
      },
    );
    this.loadCurves = atMost(1, () => this.askCurves());
    this.refresh = throttle(400, () => this.loadCurves());
    this.drawRace();
    shared.info.then(
      (info) => this.begin(info),
      (error) => (this.error.textContent = error.message),
    );
  }

  async begin(info) {
    this.info = info;
    this.form = raceForm(info, (document) => this.start(document));
    this.formHost.replaceChildren(this.form.element);
    on("race", (race) => this.noteRace(race));
    on("progress", (progress) => this.noteProgress(progress));
    on("gone", ({ id }) => this.forgotten(id));
    document.addEventListener("visibilitychange", this.refresh);
    await this.loadRaces();
  }

  /** The server answers again: it may be another one, with other races. */
  back() {
    this.loadRaces();
  }

  async loadRaces() {
    try {
      this.races = (await get("api/races")).races;
    } catch (error) {
      this.error.textContent = error.message;
      return;
    }
    this.loaded = true; // what the streams said before may have been of any race
    this.drawQueue();
    const wanted = this.wanted ?? this.race?.id;
    if (wanted) return this.watch(wanted);
    const found = this.races.find((race) => !ENDED.includes(race.state)) ?? this.races[0];
    if (found) this.watch(found.id);
    else this.drawRace();
  }

  show({ id }) {
    this.wanted = id;
    this.refresh();
    if (!this.loaded) return;
    if (id && id !== this.race?.id) this.watch(id);
    else if (!id && !this.race) this.loadRaces();
  }

  hide() {
    this.view.replay.stop();
  }

  key(event) {
    if (event.key !== " " || !this.race) return false;
    const action = ["pause", "continue"].find((name) => ACTIONS[name].states.includes(this.race.state));
    if (action) this.act(this.race, action);
    else this.view.replay.toggle();
    return true;
  }

  async start(document) {
    const answer = await post("api/races", document);
    const race = answer.race ?? answer;
    this.noteRace(race);
    this.watch(race.id);
  }

  async act(race, action) {
    this.error.textContent = "";
    try {
      const special = this.special[action];
      if (special) await special(race);
      else await post(`api/races/${race.id}/${action}`);
      if (["resume", "rerun"].includes(action)) this.watch(race.id);
    } catch (error) {
      this.error.textContent = error.message;
    }
  }

  /** What is asked for first, or is more than a word to the server. */
  special = {
    forget: (race) => this.drop(race, false),
    delete: async (race) => {
      const answer = await askDelete(race);
      if (answer) await this.drop(race, answer === "runs");
    },
    rerun: async (race) => {
      if (await askRerun(race)) await post(`api/races/${race.id}/rerun`);
    },
    words: async (race) => {
      const words = await askWords(race, this.info.limits);
      if (words) this.noteRace(await patch(`api/races/${race.id}`, words));
    },
    clone: (race) => this.form.fill(race),
    command: showCommand,
  };

  async drop(race, runs) {
    this.leaving = race.id; // no use asking for its curves any more
    await remove(query(`api/races/${race.id}`, runs ? { runs } : {}));
    this.forgotten(race.id);
  }

  /** Look at one race; of one that is not here, only that is said. */
  watch(id) {
    this.wanted = id;
    this.race = this.races.find((race) => race.id === id) ?? null;
    this.curves = null;
    this.view.reset();
    if (this.race) this.shared.keepPlace("race", id);
    this.drawRace();
    this.drawQueue();
    this.loadCurves();
  }

  noteRace(race) {
    const before = this.races.find((other) => other.id === race.id);
    this.races = before ? this.races.map((other) => (other.id === race.id ? race : other)) : [race, ...this.races];
    if (race.id === this.race?.id) {
      if (before && before.state !== race.state) announce(`race ${race.state}`);
      this.race = race;
      this.drawRace();
      this.refresh();
    } else if (!this.race && this.loaded && (!this.wanted || this.wanted === race.id)) this.watch(race.id);
    this.drawQueue();
  }

  noteProgress({ id, runs }) {
    const race = this.races.find((other) => other.id === id);
    for (const { key, ...far } of runs) {
      const run = race?.runs.find((other) => other.key === key);
      if (run) Object.assign(run, far);
    }
    if (id !== this.race?.id) return;
    this.drawHead(); // the curves come with the next answer
    this.refresh();
  }

  forgotten(id) {
    this.races = this.races.filter((race) => race.id !== id);
    if (this.race?.id === id) {
      this.race = this.curves = this.wanted = null;
      this.shared.keepPlace("race", null);
      if (this.races.length) this.watch(this.races[0].id);
      else this.drawRace();
    }
    this.drawQueue();
  }

  async askCurves() {
    const id = this.race?.id;
    if (!id || id === this.leaving || document.hidden || !this.shared.here("race")) return;
    try {
      const curves = await get(query(`api/races/${id}/curves`, this.view.axis));
      if (this.race?.id !== id) return;
      this.curves = curves;
      this.drawCurves();
    } catch (error) {
      if (error.status === 404)
        this.forgotten(id); // in another browser, a moment ago
      else this.error.textContent = error.message;
    }
  }

  drawCurves() {
    const styles = this.race
      ? this.race.policies
      : (this.info?.policies ?? []).map((line) => ({ line, ...this.info.colours?.[line] }));
    this.view.update(styles, this.curves, {
      target: this.race?.target ?? this.info?.target,
      endS: this.race?.spec.budget_s ?? null,
      endJ: this.race?.spec.budget_j ?? null,
      seeds: this.race?.seeds.length,
      live: Boolean(this.race) && !ENDED.includes(this.race.state),
      empty: this.emptyText(),
    });
  }

  /** What stands where the curves would be. */
  emptyText() {
    if (this.race) return WITHOUT_ROUNDS[this.race.state] ?? "The first rounds are being trained …";
    if (this.wanted && this.loaded)
      return `The race ${this.wanted.slice(0, 16)} is not in these files; it may have been deleted. Choose one from the list below.`;
    return "No race yet: choose the cell, the task and the policies, and press Start race.";
  }

  drawRace() {
    this.drawCurves();
    this.drawHead();
  }

  drawHead() {
    this.drawProgress();
    const finished = this.race?.runs.some((run) => run.state === "done");
    const begun = this.race?.runs.find((run) => run.state === "done" || run.rounds > 0)?.key;
    const shown = this.race && [
      this.race.id,
      this.race.state,
      this.race.reason,
      this.race.name,
      this.race.note,
      this.race.position,
      finished,
      Boolean(begun),
      this.view.by,
    ];
    const act = (race, action) => this.act(race, action);
    redraw(this.head, shown, () => (this.race ? headOf(this.race, { finished, begun, axis: this.view.axis }, act) : headOfNone()));
  }

  drawProgress() {
    const done = this.race ? (this.race.state === "done" ? 1 : progress(this.race)) : 0;
    this.bar.setAttribute("aria-valuenow", Math.round(100 * done));
    this.bar.firstChild.style.setProperty("width", `${100 * done}%`);
  }

  drawQueue() {
    const shown = this.races.map((race) => [race.id, race.state, race.position, race.name, race.id === this.race?.id]);
    const does = { act: (race, action) => this.act(race, action), open: (id) => this.watch(id) };
    redraw(this.queue, shown, () =>
      this.races.length
        ? this.races.map((race) => queueItem(race, race.id === this.race?.id, does))
        : [
            h(
              "li",
              { class: "empty" },
              "Races queue here: one runs at a time. Finished runs are kept in the results file.",
            ),
          ],
    );
  }
}

export const mount = (root, shared) => new RacePage(root, shared);
