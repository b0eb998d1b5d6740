// The HTTP API as a list, made from its own OpenAPI document.

import { get } from "../lib/client.js";
import { h, scroller } from "../lib/dom.js";
import { makeTable } from "../lib/table.js";

function operations(document) {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      method: method.toUpperCase(),
      path,
      what: operation.description ?? operation.summary ?? "",
      query: (operation.parameters ?? [])
        .filter((parameter) => parameter.in === "query")
        .map((parameter) => parameter.name)
        .join(", "),
    })),
  );
}

class ApiPage {
  constructor(root) {
    this.card = h(
      "section",
      { class: "card", "aria-label": "Routes" },
      h("h1", {}, "HTTP API"),
      h(
        "p",
        { class: "muted" },
        "Programs can do everything that this page does. The full description, for tools: ",
        h("a", { href: "api/openapi.json" }, "openapi.json"),
        ".",
      ),
    );
    root.append(this.card);
  }

  async show() {
    if (this.table) return;
    try {
      const rows = operations(await get("api/openapi.json"));
      const columns = [
        { head: "method", left: true, cell: (row) => row.method },
        { head: "path", left: true, cell: (row) => h("code", {}, row.path) },
        { head: "query", left: true, cell: (row) => row.query },
        { head: "what", left: true, cell: (row) => row.what },
      ];
      this.table = scroller("Routes of the API", { class: "api-table" }, makeTable("All routes", columns, rows));
      this.card.append(this.table);
    } catch (error) {
      this.card.append(h("p", { class: "error" }, error.message));
    }
  }
}

export const mount = (root) => new ApiPage(root);
