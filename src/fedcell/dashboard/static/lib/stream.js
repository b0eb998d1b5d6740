// One stream of server-sent events that comes back by itself. Read with fetch, not EventSource: that one gives up for
// ever after a 503, never says why, and does not notice a connection on which nothing comes any more.

const LONGEST_WAIT_MS = 30_000;
const SILENT_MS = 45_000; // the server says something every 15 s

/** How long to wait before trying again, by how often it failed; not all pages at the same moment. */
export const backOff = (failures) => Math.min(LONGEST_WAIT_MS, 500 * 2 ** failures) * (0.75 + 0.5 * Math.random());

/** `tell({name, data})` hears every event, and `up` and `down` (data: why) of the stream itself. */
export class Stream {
  constructor(path, tell) {
    this.path = path;
    this.tell = tell;
    this.failures = 0;
    this.state = null;
  }

  open() {
    if (this.abort) return;
    clearTimeout(this.timer);
    this.abort = new AbortController();
    this.read(this.abort);
  }

  close() {
    clearTimeout(this.timer);
    clearTimeout(this.silence);
    this.abort?.abort();
    this.abort = null;
    this.state = null;
  }

  async read(abort) {
    let why = "The server does not answer";
    try {
      const response = await fetch(this.path, { signal: abort.signal, cache: "no-store" });
      if (!response.ok) {
        why = response.status === 503 ? "The server is busy" : await refusal(response);
        throw new Error(why);
      }
      this.failures = 0;
      this.say("up", null);
      await this.listen(response.body.pipeThrough(new TextDecoderStream()).getReader(), abort);
    } catch {
      // said below
    }
    clearTimeout(this.silence);
    if (this.abort !== abort) return; // closed by us
    this.abort = null;
    this.say("down", why);
    this.timer = setTimeout(() => this.open(), backOff(this.failures++));
  }

  async listen(reader, abort) {
    let text = "";
    for (;;) {
      clearTimeout(this.silence);
      this.silence = setTimeout(() => abort.abort(), SILENT_MS);
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (text + value).split("\n\n");
      text = parts.pop();
      for (const part of parts) this.event(part);
    }
  }

  event(part) {
    const line = (start) => part.split("\n").find((one) => one.startsWith(start))?.slice(start.length);
    const [name, data] = [line("event: "), line("data: ")];
    if (name) this.tell({ name, data: data ? JSON.parse(data) : null });
  }

  say(state, why) {
    if (state === this.state?.name && why === this.state.data) return;
    this.state = { name: state, data: why };
    this.tell(this.state);
  }
}

/** The server's sentence in an answer that is a refusal. */
export async function refusal(response) {
  try {
    const { detail } = await response.json();
    if (typeof detail === "string") return detail;
  } catch {
    // no JSON: the status must do
  }
  return `the server answered ${response.status} ${response.statusText}`;
}
