// The paper's figures as `fedcell reproduce` made them, with its claims judged.

import { h, scroller } from "../lib/dom.js";
import { makeTable } from "../lib/table.js";

const path = (file) => `api/paper/${file.split("/").map(encodeURIComponent).join("/")}`;

function claimTable(claims) {
  const columns = Object.keys(claims[0]).map((name) => ({
    head: name.replaceAll("_", " "),
    left: true,
    cell: (row) => String(row[name] ?? ""),
  }));
  return scroller("Claims", {}, makeTable("Claims", columns, claims));
}

function figure({ name, title, claims, files }) {
  const picture = files.find((file) => file.endsWith(".svg")) ?? files.find((file) => file.endsWith(".png"));
  return h(
    "figure",
    { "data-figure": name },
    picture
      ? h(
          "a",
          { href: path(picture), target: "_blank", rel: "noopener" },
          h("img", { src: path(picture), alt: title ?? name, loading: "lazy" }),
        )
      : null,
    h(
      "figcaption",
      {},
      h("b", {}, title ?? name),
      h(
        "span",
        { class: "downloads" },
        files.map((file) =>
          h(
            "a",
            { class: "button", href: path(file), download: file.split("/").pop() },
            file.split(".").pop().toUpperCase(),
          ),
        ),
      ),
    ),
    claims?.length ? claimTable(claims) : null,
  );
}

/** The gallery's parts; of null: how to make it. */
export function paperGallery(document) {
  const head = h("h2", {}, "The paper, reproduced");
  if (!document?.figures?.length) {
    return [
      head,
      h(
        "p",
        { class: "muted" },
        h("code", {}, "fedcell reproduce --out out/paper"),
        " reproduces every figure and table of the paper; ",
        h("code", {}, "fedcell serve --paper out/paper"),
        " shows them here.",
      ),
    ];
  }
  const report = document.page
    ? h(
        "p",
        {},
        h("a", { href: path(document.page), target: "_blank", rel: "noopener" }, "The full report"),
        document.quick ? ": every printed number and ours." : ": every printed number and ours, and which claims are confirmed.",
      )
    : null;
  const warning = document.quick
    ? h("p", { class: "warning-band" }, "Made with --quick, at least in part: tiny settings to try the program out. Nothing here is confirmed, and the numbers mean nothing.")
    : null;
  return [
    head,
    warning,
    report,
    h("div", { class: "gallery" }, document.figures.map(figure)),
    document.claims?.length ? claimTable(document.claims) : null,
  ].filter(Boolean);
}
