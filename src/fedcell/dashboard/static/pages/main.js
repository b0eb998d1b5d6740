// The shell: which page is shown, light or dark, talk mode, keys.

import { get } from "../lib/client.js";
import { connect, on, tryNow } from "../lib/connection.js";
import { announce, h } from "../lib/dom.js";
import { setDocs } from "./glossary.js";
import { makePresenter } from "./presenter.js";

const TITLES = { race: "Race", cell: "Cell", plan: "Plan", results: "Results", ranking: "Ranking", api: "HTTP API" };
const PAGES = Object.keys(TITLES);
const KEYS = { 1: "race", 2: "cell", 3: "plan", 4: "results", 5: "ranking" };
const pages = new Map();
let current = null;

/** The hash is the place: #page/id?key=value. */
function place() {
  const [path, search] = location.hash.slice(1).split("?");
  const [page, id] = path.split("/");
  return {
    page: PAGES.includes(page) ? page : "race",
    id: id ? decodeURIComponent(id) : null,
    params: new URLSearchParams(search),
  };
}

/** Note where the user is, so that a reload comes back there; no entry in the history. */
function keepPlace(page, id, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = given.length ? `?${new URLSearchParams(given)}` : "";
  const hash = `#${page}${id ? `/${encodeURIComponent(id)}` : ""}${search}`;
  // A page that has just been left is still current until `show` hears of it: its place must not replace the new one.
  if (current === page && place().page === page && location.hash !== hash) history.replaceState(null, "", hash);
  document.querySelector(`nav [data-page=${page}]`).setAttribute("href", hash);
}

async function show() {
  const { page, id, params } = place();
  const changed = current !== page;
  if (changed && current) pages.get(current)?.hide?.();
  current = page;
  for (const name of PAGES) {
    document.getElementById(`page-${name}`).hidden = name !== page;
    const link = document.querySelector(`nav [data-page=${name}]`); // the API's page has none
    if (name === page) link?.setAttribute("aria-current", "page");
    else link?.removeAttribute("aria-current");
  }
  document.title = `${TITLES[page]} · fedcell`;
  if (!pages.has(page)) {
    const module = await import(`./${page}.js`);
    if (!pages.has(page)) pages.set(page, module.mount(document.getElementById(`page-${page}`), shared));
  }
  if (current === page) pages.get(page).show({ id, params });
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  document.querySelector("#theme span").textContent = dark ? "Light" : "Dark";
}

function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // storage may be forbidden: the choice then lasts until the reload
  }
}

function remembered(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function toggleTheme() {
  const dark = document.documentElement.dataset.theme !== "dark";
  setTheme(dark);
  remember("fedcell-theme", dark ? "dark" : "light");
  announce(dark ? "dark" : "light");
}

function setTalk(on) {
  document.documentElement.classList.toggle("talk", on);
  document.getElementById("talk").setAttribute("aria-pressed", String(on));
  window.dispatchEvent(new Event("talk"));
}

function toggleTalk() {
  const on = !document.documentElement.classList.contains("talk");
  setTalk(on);
  remember("fedcell-talk", on ? "on" : "off");
  announce(on ? "talk mode on" : "talk mode off");
}

function typing(target) {
  return target.closest("input:not([type=range]):not([type=checkbox]), select, textarea, [contenteditable]") !== null;
}

function onKey(event) {
  if (!document.getElementById("keys-on").checked) return;
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]"))
    return;
  const page = KEYS[event.key];
  if (page) location.hash = document.querySelector(`nav [data-page=${page}]`).getAttribute("href");
  else if (event.key === "?") document.getElementById("keys").showModal();
  else if (event.key === "t") toggleTheme();
  else if (event.key === "b") toggleTalk();
  else if (event.key === "p") present();
  else if (event.key === " " && event.target.closest("button, a, summary, [type=checkbox]"))
    return; // it presses what has the focus
  else if (!pages.get(current)?.key?.(event)) return;
  event.preventDefault();
}

const shared = {
  keepPlace,
  /** What the server can do; asked once. */
  info: get("api/info"),
  here: (page) => current === page,
};

setTheme(document.documentElement.dataset.theme === "dark");
setTalk(document.documentElement.classList.contains("talk"));
document.getElementById("theme").addEventListener("click", toggleTheme);
document.getElementById("talk").addEventListener("click", toggleTalk);
document.getElementById("help").addEventListener("click", () => document.getElementById("keys").showModal());
document.querySelector("#keys a").addEventListener("click", () => document.getElementById("keys").close());
const present = makePresenter(document.getElementById("present"), setTalk);
document.getElementById("try-now").addEventListener("click", tryNow);
document.getElementById("keys-on").checked = remembered("fedcell-keys") !== "off";
document.getElementById("keys-on").addEventListener("change", ({ target }) => {
  remember("fedcell-keys", target.checked ? "on" : "off");
});
document.addEventListener("keydown", onKey);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash is the place
  document.getElementById("main").focus();
});
window.addEventListener("hashchange", show);
show();
let answeredBefore = false;
on("up", () => {
  if (answeredBefore) pages.get(current)?.back?.(); // what is shown is of before
  answeredBefore = true;
});
connect();
shared.info.then(
  (info) => {
    document.getElementById("version").append(h("span", {}, `fedcell ${info.version}`));
    setDocs(info.docs);
  },
  () => {},
);
