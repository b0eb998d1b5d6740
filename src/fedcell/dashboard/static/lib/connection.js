// The page's line to the server: its events, whether it answers, and what is tried again meanwhile.

import { Stream, backOff } from "./stream.js";

const listeners = new Map();
const waiting = new Set(); // requests that are to be tried again
let streamDown = null;
let lastHeard = new Date();
let wake = () => {};

/** Hear an event of the server by its name; `up` comes when the server answers (again). */
export function on(name, handler) {
  listeners.set(name, [...(listeners.get(name) ?? []), handler]);
}

function heard({ name, data }) {
  if (name === "down") streamDown = data;
  else {
    streamDown = null;
    lastHeard = new Date();
  }
  if (name === "up") for (const again of [...waiting]) again();
  show();
  for (const handler of listeners.get(name) ?? []) handler(data);
}

/** Open the one stream: shared with other tabs where the browser can, else only while this one is looked at. */
export function connect() {
  try {
    const { port } = shared();
    const say = (word) => port.postMessage(word);
    port.onmessage = ({ data }) => heard(data);
    wake = () => say("again");
    say("hello");
    window.addEventListener("pagehide", () => say("bye"));
    window.addEventListener("pageshow", ({ persisted }) => persisted && say("hello"));
  } catch {
    alone();
  }
}

function shared() {
  const worker = new SharedWorker("static/lib/stream_worker.js", { type: "module", name: "fedcell events" });
  worker.addEventListener("error", alone);
  return worker;
}

function alone() {
  const stream = new Stream("api/events", heard);
  const look = () => (document.hidden ? stream.close() : stream.open());
  wake = () => stream.open();
  document.addEventListener("visibilitychange", look);
  look();
}

/** What the header says: nothing, or what is wrong and that it is being tried again. */
function show() {
  const why = streamDown ?? [...waiting].at(-1)?.why ?? null;
  const host = document.getElementById("connection");
  document.documentElement.classList.toggle("offline", Boolean(why));
  if (host.hidden === !why && host.dataset.why === (why ?? "")) return;
  host.hidden = !why;
  host.dataset.why = why ?? "";
  const time = lastHeard.toLocaleTimeString("en-GB");
  host.querySelector("span").textContent = why ? `${why}. Shown: as of ${time}. Trying again …` : "";
}

/** Try everything again, now. */
export function tryNow() {
  wake();
  for (const again of [...waiting]) again();
}

/** Wait before the next try, longer each time, but no longer than until the server answers. */
export async function beforeNextTry(why, failures) {
  await new Promise((resolve) => {
    const again = Object.assign(() => {
      clearTimeout(timer);
      waiting.delete(again);
      resolve();
    }, { why });
    const timer = setTimeout(again, backOff(failures));
    waiting.add(again);
    show();
  });
}

/** A request was answered: nothing is wrong any more, unless others still wait. */
export function answered() {
  lastHeard = new Date();
  if (!document.getElementById("connection").hidden) show();
}
