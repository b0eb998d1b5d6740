// "What is this?": a sentence on what the page asks for, and where there is more.

import { h } from "../lib/dom.js";

const WORDS = {
  theta: [
    "Theta says how much a round costs besides its devices’ variety: the rounds to a target are taken as proportional to theta + 1/n for n devices in each.",
    "model",
    "",
  ],
  knowledge: [
    "What the server knows of the devices’ training times when it plans: those of this round, their means, or what it has observed in earlier rounds.",
    "model",
    "what-the-scheduler-knows",
  ],
  partition: [
    "How the data is dealt to the devices: labels:2 gives each device samples of two labels only, iid gives each a bit of everything.",
    "reference/runs",
    "",
  ],
  profiles: [
    "A profile is a short vector that says what a device’s data is like, from its labels or from a gradient; diverse schedules by it.",
    "diverse",
    "where-profiles-come-from-and-what-they-reveal",
  ],
  law: [
    "The link law says how the uploads of a round share what carries them: one band, resource blocks, a dedicated link for each device, or one shared uplink at the server.",
    "choosing",
    "choosing-a-link-law",
  ],
};

/** Where the documentation is on the web, if the server knows; set once. */
const place = { docs: null };
export const setDocs = (docs) => (place.docs = docs);

/** A page of the documentation: of its site, or of the repository, which has it as Markdown. */
const address = (page, anchor) =>
  new URL(`${page}${place.docs.endsWith(".md") ? ".md" : ".html"}${anchor && `#${anchor}`}`, place.docs).href;

function explain(name, title) {
  const [sentence, page, anchor] = WORDS[name];
  const more = place.docs
    ? h("a", { href: address(page, anchor), rel: "noopener" }, "More in the documentation")
    : h("span", {}, "More in the documentation: ", h("code", {}, `docs/${page}.md`));
  const dialog = h(
    "dialog",
    { class: "question what", "aria-label": title },
    h("h2", {}, title),
    h("p", {}, sentence),
    h("p", {}, more),
    h("form", { method: "dialog", class: "actions" }, h("button", { class: "primary" }, "Close")),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** A field with a small question mark beside its label. */
export const explained = (name, title, element) =>
  h(
    "div",
    { class: "explained" },
    element,
    h(
      "button",
      { type: "button", class: "bare what-is", "data-what": name, "aria-label": "What is this?", title: "What is this?", onclick: () => explain(name, title) },
      "?",
    ),
  );
