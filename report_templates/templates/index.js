// Comfort for the reader: theme, sorting and filtering of the runs; what is chosen stands in the address. Without it everything is there.
"use strict";
(() => {
  const root = document.documentElement;
  const rowsShown = 100;
  // A page with a theme of its own starts with it, until its reader chooses another one for this page.
  const themeOf = root.dataset.theme ? `postrun-theme ${location.pathname}` : "postrun-theme";
  const remembered = (value) => {
    try {
      if (value === undefined) return localStorage.getItem(themeOf);
      localStorage.setItem(themeOf, value);
    } catch { /* storage may be forbidden for local files */ }
    return null;
  };
  const saved = remembered();
  if (saved === "dark" || saved === "light") root.dataset.theme = saved;

  const element = (name, text, attributes = {}) => {
    const made = document.createElement(name);
    made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };

  function prepare(table) {
    const head = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const column = (name) => head.findIndex((cell) => cell.dataset.column === name);
    const families = column("family");
    const rules = head.filter((cell) => cell.dataset.rule !== undefined);
    const names = ["q", "family", "state", "verdict", "sort", "all"];
    const text = new Map(rows.map((row) => [row, [...row.cells].slice(0, head.length - rules.length).map((cell) => cell.textContent).join(" ").toLowerCase()]));
    const choice = {};

    const fields = element("div", "", { class: "filters", role: "search" });
    const field = (name, label, made) => {
      const around = element("label", label);
      around.append(made);
      fields.append(around);
      made.addEventListener("input", () => { choice[name] = made.value; show(true); });
      return made;
    };
    const select = (name, label, options) => {
      const made = element("select", "");
      for (const [value, shown] of options) made.append(element("option", shown, { value }));
      return field(name, label, made);
    };
    const distinct = (read) => [...new Set(rows.map(read))].filter(Boolean).sort((a, b) => a.localeCompare(b));
    const inputs = {
      q: field("q", "Text", element("input", "", { type: "search" })),
      family: select("family", "Family", [["", "all"], ...distinct((row) => row.cells[families].textContent).map((one) => [one, one])]),
      state: select("state", "State", [["", "all"], ...distinct((row) => row.dataset.state).map((one) => [one, one])]),
      verdict: select("verdict", "Verdict", [["", "all"], ["any", "any issue"], ["regression", "slower than before"],
        ...rules.map((cell) => [cell.dataset.rule, `issue: ${cell.dataset.rule}`])]),
    };
    const all = element("button", "", { type: "button" });
    const clear = element("button", "Show everything", { type: "button" });
    const status = element("span", "", { role: "status" });
    all.addEventListener("click", () => { choice.all = choice.all ? "" : "1"; show(true); });
    clear.addEventListener("click", () => { for (const name of names) choice[name] = ""; show(true); });
    fields.append(all, clear, status);
    table.parentElement.before(fields);

    const hasIssue = (row, at) => row.cells[at].classList.contains("v-issue");
    const matches = (row) => {
      if (choice.q && !choice.q.toLowerCase().split(/\s+/).every((word) => text.get(row).includes(word))) return false;
      if (choice.family && row.cells[families].textContent !== choice.family) return false;
      if (choice.state && row.dataset.state !== choice.state) return false;
      if (!choice.verdict) return true;
      if (choice.verdict === "regression") return row.dataset.regressed !== undefined;
      if (choice.verdict === "any") return rules.some((cell) => hasIssue(row, cell.cellIndex));
      const rule = rules.find((cell) => cell.dataset.rule === choice.verdict);
      return rule !== undefined && hasIssue(row, rule.cellIndex);
    };

    function sort() {
      const [name, order] = (choice.sort || "").split(":");
      const cell = head.find((one) => one.dataset.column === name);
      head.forEach((other) => other.removeAttribute("aria-sort"));
      let sorted = rows;
      if (cell) {
        const down = order === "down";
        cell.setAttribute("aria-sort", down ? "descending" : "ascending");
        const keys = new Map(rows.map((row) => {
          const at = row.cells[cell.cellIndex];
          if (cell.dataset.rule !== undefined) return [row, at.className ? ["v-fine", "v-error", "v-issue"].indexOf(at.className) : ""];
          return [row, at.dataset.sort ?? at.textContent.trim()];
        }));
        const numbers = rows.every((row) => keys.get(row) === "" || !Number.isNaN(Number(keys.get(row))));
        sorted = [...rows].sort((one, other) => {
          const a = keys.get(one), b = keys.get(other);
          if (a === "" || b === "") return (a === "") - (b === "");
          const by = numbers ? Number(a) - Number(b) : a.localeCompare(b);
          return down ? -by : by;
        });
      }
      body.append(...sorted);
    }

    head.forEach((cell) => {
      const name = cell.dataset.column;
      if (!name) return;
      const holder = cell.firstElementChild ?? cell;
      const trigger = element("button", holder.textContent, { type: "button", class: "sort" });
      holder.replaceChildren(trigger);
      trigger.addEventListener("click", () => {
        const before = cell.getAttribute("aria-sort");
        const down = before ? before === "ascending" : cell.classList.contains("n") || cell.dataset.rule !== undefined;
        choice.sort = `${name}:${down ? "down" : "up"}`;
        show(true);
      });
    });

    let sortedBy = "";
    function show(remember) {
      if ((choice.sort || "") !== sortedBy) { sort(); sortedBy = choice.sort || ""; }
      let matching = 0;
      for (const row of body.rows) {
        const match = matches(row);
        if (match) matching += 1;
        row.hidden = !match || (!choice.all && matching > rowsShown);
      }
      all.textContent = choice.all ? `Show the first ${rowsShown}` : `Show all ${matching}`;
      all.hidden = matching <= rowsShown;
      clear.hidden = !names.some((name) => choice[name]);
      status.textContent = matching === rows.length ? "" : `${matching} of ${rows.length} runs match`;
      for (const [name, input] of Object.entries(inputs)) if (input.value !== (choice[name] || "")) input.value = choice[name] || "";
      if (!remember) return;
      const kept = new URLSearchParams();
      for (const name of names) if (choice[name]) kept.set(name, choice[name]);
      try { history.replaceState(null, "", `#${kept}`); } catch { location.hash = String(kept); }
    }

    function read() {
      const given = location.hash.slice(1);
      if (given && !given.includes("=")) return; // an id on the page
      const kept = new URLSearchParams(given);
      for (const name of names) choice[name] = kept.get(name) || "";
      show(false);
    }
    addEventListener("hashchange", read);
    show(false);
    read();
  }

  document.addEventListener("DOMContentLoaded", () => {
    const table = document.querySelector("#runs-table table");
    if (table) prepare(table);
    const theme = element("button", "Light or dark", { type: "button" });
    theme.addEventListener("click", () => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      remembered(root.dataset.theme);
    });
    document.querySelector(".links").append(theme);
  });
})();
