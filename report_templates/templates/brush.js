// A rank, step, or kernel that the reader chooses is highlighted wherever it occurs: in cells, marks of figures, and the timeline.
// Cells and marks get data-rank, data-step, or data-kernel from the beginning of their text or title, or the heading of their column.
const brush = (() => {
  const kinds = ["rank", "step", "kernel"];
  const chosen = { kind: "", key: "" };
  const heard = [];
  const subjects = kinds.map((kind) => `[data-${kind}]`).join();
  let lit = [];

  const kindOf = (one) => kinds.find((kind) => one.dataset[kind] !== undefined);
  const SUBJECT = /^(?:\*\s*)?(rank|step)\s(\d{1,9})\b(?!\s*[,–-]\s*\d)/, NUMBER = /^\d{1,9}$/;
  function name(one, text, column = "") {
    const match = SUBJECT.exec(text);
    if (match) one.dataset[match[1]] = match[2];
    else if (column === "Kernel") one.dataset.kernel = one.title || text;
    else if (["Rank", "Step"].includes(column) && NUMBER.test(text)) one.dataset[column.toLowerCase()] = text;
  }
  function nameAll() {
    document.querySelectorAll("main svg title").forEach((title) => name(title.parentElement, title.textContent));
    for (const table of document.querySelectorAll("main table")) {
      const columns = [...table.tHead.rows[0].cells].map((head) => head.textContent);
      for (const { cells: [...all] } of table.tBodies[0].rows) {
        // Steps as the heading of a row are numbers of steps, in other cells how many there are.
        all.forEach((cell, place) => name(cell, cell.textContent, columns[place] === "Steps" && cell.tagName === "TH" ? "Step" : columns[place]));
      }
    }
  }

  function set(kind, key) {
    if (kind === chosen.kind && key === chosen.key) return;
    lit.forEach((one) => { one.classList.remove("brushed"); one.removeAttribute("aria-current"); });
    lit = kind ? [...document.querySelectorAll(`[data-${kind}]`)].filter((one) => one.dataset[kind] === key) : [];
    lit.forEach((one) => { one.classList.add("brushed"); if (one.matches("th, td")) one.setAttribute("aria-current", "true"); });
    Object.assign(chosen, { kind, key });
    heard.forEach((act) => act());
  }
  const clear = () => set("", "");
  function toggle(one) {
    const kind = kindOf(one), key = one.dataset[kind];
    if (kind === chosen.kind && key === chosen.key) clear(); else set(kind, key);
  }

  // One stop of the tab key per table: its arrows move between the cells that can be chosen.
  function rove(table) {
    const every = [...table.querySelectorAll(subjects)];
    if (!every.length) return;
    const all = () => [...table.querySelectorAll(subjects)].filter((one) => !one.parentElement.hidden);
    let stop = null;
    function enter(one) {
      if (stop) stop.tabIndex = -1;
      stop = one;
      if (one) one.tabIndex = 0;
    }
    enter(every[0]);
    // Sorted or filtered, another cell can be the first that is shown.
    for (const kind of ["click", "input"]) table.parentElement.addEventListener(kind, () => { if (!stop || stop.parentElement.hidden) enter(all()[0] ?? null); });
    table.addEventListener("keydown", (event) => {
      if (!every.includes(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Enter" || event.key === " ") toggle(event.target);
      else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
        const list = all(), next = list[list.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1)];
        if (next) { enter(next); next.focus(); }
      } else return;
      event.preventDefault();
    });
  }

  document.addEventListener("DOMContentLoaded", () => {
    nameAll();
    document.querySelectorAll("main table").forEach(rove);
    document.addEventListener("click", (event) => {
      const drawn = event.target.closest("svg") && document.elementsFromPoint(event.clientX, event.clientY).find((one) => one.matches(subjects));
      const one = event.target.closest(subjects) ?? drawn;
      if (one && !event.target.closest("a, button, input") && !String(getSelection())) toggle(one);
    });
    document.addEventListener("keydown", (event) => { if (event.key === "Escape" && !event.target.closest("input, dialog")) clear(); });
  });
  return { set, clear, toggle, kindOf, hear: (act) => heard.push(act), get kind() { return chosen.kind; }, get key() { return chosen.key; } };
})();
