// CSV to rows and back, with quotes as spreadsheets write them.

/** Rows of texts; a tab-separated text, as a spreadsheet pastes it, is read too. */
export function parseCsv(text) {
  const plain = text.replace(/^\uFEFF/, "");
  const firstLine = plain.slice(0, plain.search(/\r?\n|$/));
  const comma = firstLine.includes("\t") ? "\t" : ",";
  const rows = [];
  let row = [];
  let cell = "";
  let quoted = false;
  for (let i = 0; i < plain.length; i++) {
    const letter = plain[i];
    if (quoted) {
      if (letter !== '"') cell += letter;
      else if (plain[i + 1] === '"') cell += plain[++i];
      else quoted = false;
    } else if (letter === '"' && cell === "") quoted = true;
    else if (letter === comma) {
      row.push(cell);
      cell = "";
    } else if (letter === "\n" || letter === "\r") {
      if (letter === "\r" && plain[i + 1] === "\n") i++;
      rows.push([...row, cell]);
      row = [];
      cell = "";
    } else cell += letter;
  }
  if (cell !== "" || row.length) rows.push([...row, cell]);
  return rows.filter((cells) => cells.some((value) => value.trim() !== ""));
}

const quote = (value) => (/[",\r\n]|^\s|\s$/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);

export const formatCsv = (rows) =>
  `${rows.map((row) => row.map((value) => quote(String(value ?? ""))).join(",")).join("\n")}\n`;
