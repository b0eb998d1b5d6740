// Numbers as text, in one way everywhere.

const DASH = "–";
const known = (value) => typeof value === "number" && Number.isFinite(value);

/** So many significant digits, without an exponent where a reader would rather have none. */
export function significant(value, digits = 4) {
  if (!known(value)) return DASH;
  const magnitude = Math.abs(value);
  if (magnitude !== 0 && (magnitude < 1e-4 || magnitude >= 1e7)) return value.toExponential(digits - 1);
  return String(Number(value.toPrecision(digits)));
}

export const fixed = (value, digits = 2) => (known(value) ? value.toFixed(digits) : DASH);
export const seconds = (value, digits = 4) => (known(value) ? `${significant(value, digits)} s` : DASH);
export const joules = (value, digits = 4) => (known(value) ? `${significant(value, digits)} J` : "unknown");
export const percent = (value, digits = 2) => (known(value) ? `${(100 * value).toFixed(digits)} %` : DASH);
export const integer = (value) => (known(value) ? Math.round(value).toLocaleString("en") : DASH);

/** A share of the band; a tiny one keeps two digits rather than none. */
export function share(value) {
  if (!known(value)) return DASH;
  return 100 * value >= 0.1 ? `${(100 * value).toFixed(1)} %` : `${significant(100 * value, 2)} %`;
}

export function hertz(value) {
  if (!known(value)) return DASH;
  if (value >= 1e6) return `${significant(value / 1e6, 4)} MHz`;
  return value >= 1e3 ? `${significant(value / 1e3, 4)} kHz` : `${significant(value, 4)} Hz`;
}

export function bitRate(value) {
  if (!known(value)) return DASH;
  return value >= 1e6 ? `${significant(value / 1e6, 4)} Mbit/s` : `${significant(value / 1e3, 4)} kbit/s`;
}

export function bytes(value) {
  if (!known(value)) return DASH;
  if (value >= 1e6) return `${significant(value / 1e6, 3)} MB`;
  return value >= 1e3 ? `${significant(value / 1e3, 3)} kB` : plural(value, "byte");
}

/** What a scheduled device gets, next to its bar: whole blocks, a share, or nothing to tell where its line is its own. */
export function gets(device, shared) {
  if (known(device.blocks)) return plural(device.blocks, "block");
  return shared ? share(device.share) : "";
}

/** The heading of a column that says what a device gets, by the unit in its name, and how its values are written. */
export function resource(name) {
  if (name === "share") return ["share", share];
  if (name.endsWith("_hz")) return ["band", hertz];
  return name.endsWith("bits_per_s") ? ["of the uplink", bitRate] : [name.replaceAll("_", " "), (value) => (Number.isInteger(value) ? integer(value) : significant(value))];
}

/** When something was, as one would say it. */
export function when(unixSeconds) {
  if (!known(unixSeconds)) return DASH;
  const date = new Date(1000 * unixSeconds);
  const two = (number) => String(number).padStart(2, "0");
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
}

/** A file without its folder. */
export const fileName = (path) =>
  String(path ?? "")
    .split(/[\\/]/)
    .pop();

export const plural = (count, noun, many = `${noun}s`) => `${integer(count)} ${count === 1 ? noun : many}`;
