// Before the first paint: the theme and the type size the user chose, so that nothing flashes.
{
  let theme = null;
  let talk = null;
  try {
    theme = localStorage.getItem("fedcell-theme");
    talk = localStorage.getItem("fedcell-talk");
  } catch {
    // storage may be forbidden: the system's theme then
  }
  const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  document.documentElement.classList.toggle("talk", talk === "on");
}
