// Elements without innerHTML: whatever comes from a file or the server becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** An HTML element: h("p", {class: "note"}, "text"). Properties named on… are listeners; style is an object. */
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

/** An SVG element. */
export const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

/** An icon of the sheet in index.html. */
export const icon = (name) => s("svg", { class: "icon", "aria-hidden": "true" }, s("use", { href: `#i-${name}` }));

/** A policy line that breaks, where it must, between its settings and not within a number. */
export const breakable = (line) => line.split(/(?<=[:,])/).map((part) => [part, h("wbr", {})]);

/** What scrolls by itself: reached by Tab, moved by the arrow keys, and named. */
export const scroller = (label, props, ...children) =>
  h("div", { ...props, class: `scroll ${props.class ?? ""}`, role: "region", tabindex: "0", "aria-label": label }, children);

/** A labelled field: the label says the unit, the hint says what may be written. */
export function field(label, input, hint) {
  return h(
    "label",
    { class: "field" },
    h("span", { class: "field-label" }, label),
    input,
    hint && h("small", {}, hint),
  );
}

/** A group of buttons of which one is pressed; calls back with the chosen value. */
export function segmented(label, options, chosen, changed) {
  const buttons = options.map(([value, text]) =>
    h(
      "button",
      {
        type: "button",
        "data-value": value,
        "aria-pressed": String(value === chosen),
        onclick: () => set(value, true),
      },
      text,
    ),
  );
  function set(value, tell) {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.value === value));
    if (tell) changed(value);
  }
  const element = h("div", { class: "segmented", role: "group", "aria-label": label }, buttons);
  return { element, set };
}

/** Replace the options of a select, keeping what was chosen where it is still there. */
export function setOptions(select, options, chosen = select.value) {
  const key = JSON.stringify(options);
  if (select.dataset.options !== key) {
    select.replaceChildren(...options.map(([value, text]) => h("option", { value }, text)));
    select.dataset.options = key;
  }
  if (options.some(([value]) => String(value) === String(chosen))) select.value = chosen;
}

/** Run at most once in so many milliseconds, and once more after the last call. */
export function throttle(wait, action) {
  let timer = 0;
  let last = -Infinity;
  return () => {
    if (timer) return;
    timer = setTimeout(
      () => {
        timer = 0;
        last = performance.now();
        action();
      },
      Math.max(0, last + wait - performance.now()),
    );
  };
}

/** Say something to those who hear the page. */
export function announce(text) {
  document.getElementById("live").textContent = text;
}

/** The size of one rem in pixels: charts follow talk mode. */
export const rem = () => parseFloat(getComputedStyle(document.documentElement).fontSize);

/** A file for the user's downloads folder. */
export function download(name, content, type) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Fill a host anew if what it shows has changed; whoever had the keyboard's focus in it keeps a place there. */
export function redraw(host, shown, build) {
  const key = JSON.stringify(shown);
  if (host.dataset.shown === key) return;
  host.dataset.shown = key;
  const held = host.contains(document.activeElement) ? document.activeElement.dataset.action : undefined;
  const had = host.contains(document.activeElement);
  host.replaceChildren(...build().filter(Boolean));
  if (had) (host.querySelector(`[data-action="${held}"]`) ?? host.querySelector("button, a"))?.focus();
}
