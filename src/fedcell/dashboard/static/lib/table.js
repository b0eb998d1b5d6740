// Plain tables: headings, rows, numbers to the right.

import { h } from "./dom.js";

/**
 * A table; columns are {head, title, cell(row) -> text or node, left}. Rows may have {class, attributes} by `rowProps`.
 */
export function makeTable(caption, columns, rows, rowProps = () => ({})) {
  return h(
    "table",
    {},
    h("caption", {}, caption),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        columns.map((column) =>
          h("th", { scope: "col", class: column.left ? "" : "num", title: column.title }, column.head),
        ),
      ),
    ),
    h(
      "tbody",
      {},
      rows.map((row) => makeRow(columns, row, rowProps)),
    ),
  );
}

function makeRow(columns, row, rowProps) {
  return h(
    "tr",
    rowProps(row),
    columns.map((column, i) =>
      h(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null, class: column.left ? "" : "num" }, column.cell(row)),
    ),
  );
}
