// The server's answers; a refusal is an Error whose message is the server's sentence.

import { answered, beforeNextTry } from "./connection.js";
import { refusal } from "./stream.js";

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("the server does not answer; is fedcell serve still running?");
  }
  if (!response.ok) throw Object.assign(new Error(await refusal(response)), { status: response.status });
  answered();
  return response;
}

/** Ask until there is an answer: a server that is busy or being restarted is tried again, and the header says so. */
async function askUntilAnswered(path, options) {
  for (let failures = 0; ; failures++) {
    try {
      return await ask(path, options);
    } catch (error) {
      if (error.status !== undefined && error.status !== 503) throw error;
      await beforeNextTry(error.status ? "The server is busy" : "The server does not answer", failures);
    }
  }
}

const posted = (body) => ({
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body),
});

export const get = async (path) => (await askUntilAnswered(path)).json();
/** What changes something is asked for once: whether it was done is not known when no answer comes. */
export const post = async (path, body = {}) => (await ask(path, posted(body))).json();
export const patch = async (path, body) => (await ask(path, { ...posted(body), method: "PATCH" })).json();
/** What only computes can be asked for again. */
export const compute = async (path, body) => (await askUntilAnswered(path, posted(body))).json();
export const computeText = async (path, body) => (await askUntilAnswered(path, posted(body))).text();
export const remove = (path) => ask(path, { method: "DELETE", headers: { "Content-Type": "application/json" } });

/** A path with its query; empty values are left out. */
export function query(path, values) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

/** Asks whose answers may come out of order: only the newest one's counts, older ones answer null. */
export function latest(work) {
  let newest = 0;
  return async (...args) => {
    const mine = ++newest;
    try {
      const answer = await work(...args);
      return mine === newest ? answer : null;
    } catch (error) {
      if (mine !== newest) return null;
      throw error;
    }
  };
}

/** So many at once; what is asked for meanwhile is done once, afterwards: a slow server is never overrun. */
export function atMost(count, work) {
  let running = 0;
  let again = false;
  return async function go() {
    if (running >= count) {
      again = true;
      return;
    }
    running += 1;
    try {
      await work();
    } finally {
      running -= 1;
      if (again) {
        again = false;
        go();
      }
    }
  };
}
