// Comfort for the reader: theme, sorting, filtering, long tables folded. Without it everything is readable, too.
(() => {
  const root = document.documentElement;
  const rowsShown = 15;
  const rowsUnfolded = 25; // so many are shown as they are
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

  const tables = [];

  function prepare(table) {
    const head = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    const state = { open: false, filter: "", total: body.rows.length };
    const sortable = table.classList.contains("sortable") && state.total > 1;
    const long = state.total > rowsUnfolded;
    let button = null;

    state.show = () => {
      let matching = 0;
      for (const row of body.rows) {
        const match = !state.filter || row.textContent.toLowerCase().includes(state.filter);
        if (match) matching += 1;
        row.hidden = !match || (long && !state.open && matching > rowsShown);
      }
      if (button) {
        button.textContent = state.open ? `Show the first ${rowsShown}` : `Show all ${matching}`;
        button.setAttribute("aria-expanded", String(state.open));
        button.hidden = matching <= rowsShown;
        state.status.textContent = state.filter ? `${matching} of ${state.total} rows match` : "";
      }
    };

    if (sortable) head.forEach((cell, column) => {
      const trigger = element("button", cell.textContent, { type: "button", class: "sort" });
      cell.replaceChildren(trigger);
      const numeric = cell.classList.contains("n");
      trigger.addEventListener("click", () => {
        const before = cell.getAttribute("aria-sort");
        const descending = before ? before === "ascending" : numeric;
        head.forEach((other) => other.removeAttribute("aria-sort"));
        cell.setAttribute("aria-sort", descending ? "descending" : "ascending");
        const key = (row) => row.cells[column].dataset.sort ?? (numeric ? "" : row.cells[column].textContent);
        const rows = [...body.rows].map((row) => [key(row), row]);
        const allNumbers = rows.every(([value]) => value === "" || !Number.isNaN(Number(value)));
        rows.sort(([a], [b]) => {
          if (a === "" || b === "") return (a === "") - (b === "");
          const order = allNumbers ? Number(a) - Number(b) : a.localeCompare(b);
          return descending ? -order : order;
        });
        body.append(...rows.map(([, row]) => row));
        state.show();
      });
    });

    if (long) {
      const tools = element("div", "", { class: "tools" });
      const input = element("input", "", { type: "search", placeholder: "Filter rows", "aria-label": `Filter the table ${table.caption.textContent}` });
      button = element("button", "", { type: "button" });
      state.status = element("span", "", { role: "status" });
      input.addEventListener("input", () => { state.filter = input.value.trim().toLowerCase(); state.show(); });
      button.addEventListener("click", () => { state.open = !state.open; state.show(); });
      tools.append(input, button, state.status);
      table.parentElement.append(tools);
    }
    tables.push(state);
    state.show();
  }

  // What scrolls sideways must be reachable with the keyboard.
  function reachable() {
    for (const box of document.querySelectorAll(".table, .drawing")) {
      const scrolls = box.scrollWidth > box.clientWidth + 1;
      box.classList.toggle("scrolls", scrolls);
      if (!scrolls) {
        for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
        continue;
      }
      const caption = box.querySelector("caption") ?? box.parentElement.querySelector("figcaption");
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", `${box.id || box.parentElement.id}: ${caption ? caption.textContent.slice(0, 80) : "figure"}`);
    }
  }

  // A link to a folded section, or to something within it, unfolds it. Otherwise the browser knows the place, also on the way back.
  function unfold() {
    const target = document.getElementById(location.hash.slice(1)), folded = [];
    for (let part = target; part; part = part.parentElement) folded.push(part);
    const closed = [target?.querySelector(":scope > details.fold"), ...folded].filter((part) => part?.tagName === "DETAILS" && !part.open);
    closed.forEach((part) => { part.open = true; });
    if (closed.length) target.scrollIntoView();
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("main table").forEach(prepare);
    unfold();
    addEventListener("hashchange", unfold);
    const nav = document.getElementById("contents");
    const contents = nav.querySelector("details");
    if (matchMedia("(max-width: 1099px)").matches) contents.open = false;
    const theme = element("button", "Light or dark", { type: "button" });
    theme.addEventListener("click", () => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      remembered(root.dataset.theme);
    });
    const all = element("button", "Open all tables", { type: "button" });
    all.addEventListener("click", () => {
      const open = !tables.every((state) => state.open);
      tables.forEach((state) => { state.open = open; state.show(); });
      all.textContent = open ? "Close all tables" : "Open all tables";
    });
    const tools = element("div", "");
    tools.append(theme, all);
    nav.append(tools);
    reachable();
    addEventListener("resize", reachable);
    document.querySelectorAll("details").forEach((part) => part.addEventListener("toggle", reachable));
  });
})();
