// The server's answers; a refusal is an Error whose message is the server's sentence.

async function refusal(response) {
  try {
    const { detail } = await response.json();
    if (typeof detail === "string") return detail;
  } catch {
    // no JSON: the status must do
  }
  return `the server answered ${response.status} ${response.statusText}`;
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server does not answer; is fedcell serve still running?");
  }
  if (!response.ok) throw Object.assign(new Error(await refusal(response)), { status: response.status });
  return response;
}

const posted = (body, signal) => ({
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body),
  signal,
});

export const get = async (path, signal) => (await ask(path, { signal })).json();
export const post = async (path, body = {}, signal) => (await ask(path, posted(body, signal))).json();
export const postText = async (path, body) => (await ask(path, posted(body))).text();
export const remove = (path) => ask(path, { method: "DELETE", headers: { "Content-Type": "application/json" } });

/** A path with its query; empty values are left out. */
export function query(path, values) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

/** Asks whose answers may come out of order: only the newest one's counts, older ones answer null. */
export function latest(work) {
  let newest = 0;
  let controller = new AbortController();
  return async (...args) => {
    const mine = ++newest;
    controller.abort();
    controller = new AbortController();
    try {
      const answer = await work(...args, controller.signal);
      return mine === newest ? answer : null;
    } catch (error) {
      if (mine !== newest || error.name === "AbortError") return null;
      throw error;
    }
  };
}

/** Listen to server-sent events, coming back after a break; returns a function that ends it. */
export function listen(path, handlers, connected = () => {}) {
  const source = new EventSource(path);
  for (const [name, handler] of Object.entries(handlers)) {
    source.addEventListener(name, (event) => handler(event.data ? JSON.parse(event.data) : null));
  }
  source.addEventListener("open", () => connected(true));
  source.addEventListener("error", () => connected(false));
  return () => source.close();
}
