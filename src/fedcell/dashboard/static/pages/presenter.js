// For talks: full screen, large type, and no controls until the pointer moves.

const IDLE_MS = 2500;
const root = document.documentElement;
let timer = 0;
let talkBefore = false;

export const presenting = () => root.classList.contains("presenting");

function stir() {
  root.classList.remove("idle");
  clearTimeout(timer);
  if (presenting()) timer = setTimeout(() => root.classList.add("idle"), IDLE_MS);
}

/** `setTalk(on)` sets the type's size, which is put back in the end. */
export function makePresenter(button, setTalk) {
  function begin() {
    talkBefore = root.classList.contains("talk");
    root.classList.add("presenting");
    button.setAttribute("aria-pressed", "true");
    setTalk(true);
    root.requestFullscreen?.().catch(() => {}); // it may be refused: large type and no controls all the same
    stir();
  }
  function end() {
    if (!presenting()) return;
    root.classList.remove("presenting");
    button.setAttribute("aria-pressed", "false");
    setTalk(talkBefore);
    if (document.fullscreenElement) document.exitFullscreen().catch(() => {});
    stir();
  }
  const toggle = () => (presenting() ? end() : begin());
  button.addEventListener("click", toggle);
  for (const kind of ["pointermove", "pointerdown", "focusin"]) document.addEventListener(kind, stir);
  document.addEventListener("fullscreenchange", () => document.fullscreenElement || end());
  document.addEventListener("keydown", (event) => event.key === "Escape" && !document.querySelector("dialog[open]") && end());
  return toggle;
}
