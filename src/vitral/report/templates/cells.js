// Tables of numbers: a chosen cell tells below its table how it comes about (by click, or by arrow keys from cell to
// cell), a table or a sum that is not shown whole can be opened, and a table wider than the screen says so.
for (const box of document.querySelectorAll(".cells")) {
  const store = box.querySelector("script");
  const data = store ? JSON.parse(store.textContent) : { told: {}, terms: {} };
  const table = box.querySelector("table");
  const note = box.querySelector(".told:not(.beside-told)");
  const closed = [...table.children].filter((part) => part.matches("thead, tbody"));
  const key = (cell) => `${cell.dataset.row},${cell.dataset.column}`;
  const chosen = () => table.querySelector("td[aria-selected]");
  const button = (words, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "gap";
    made.textContent = words;
    made.addEventListener("click", act);
    return made;
  };
  const fill = (cell, whole) => {
    const at = key(cell);
    const known = (whole && data.terms[at]) || data.told[at];
    if (known === undefined) {
      const first = (value) => Number(value) + (data.first ?? 0);
      note.textContent = (data.ask || "").replace("{row}", first(cell.dataset.row)).replace("{column}", first(cell.dataset.column));
      return;
    }
    note.innerHTML = known;
    if (data.terms[at] && data.words) {
      const words = whole ? data.words.fewer_terms : data.words.all_terms;
      note.append(" ", button(words, () => { fill(cell, !whole); note.querySelector("button").focus(); }));
    }
  };
  const choose = (cell) => {
    for (const other of table.querySelectorAll("td[tabindex]")) {
      if (other !== cell) { other.tabIndex = -1; other.removeAttribute("aria-selected"); }
    }
    cell.tabIndex = 0;
    cell.setAttribute("aria-selected", "true");
    if (note) fill(cell, false);
  };
  const show = (parts) => {
    const before = chosen() && key(chosen());
    table.querySelectorAll("thead, tbody").forEach((part) => part.remove());
    table.append(...parts);
    const cells = [...table.querySelectorAll("td[role]")];
    const again = cells.find((cell) => key(cell) === before) ?? cells[0];
    if (again) { choose(again); again.focus(); }
    hint();
  };
  const opened = () => {
    const head = document.createElement("thead"), body = document.createElement("tbody");
    const header = (words, scope, inside) => {
      const made = document.createElement("th");
      made.scope = scope;
      made.append(inside ?? words);
      return made;
    };
    head.append(document.createElement("tr"));
    head.firstChild.append(header("", "col", button(data.words.close, () => show(closed))), ...data.columns.map((name) => header(name, "col")));
    data.rows.forEach(([name, ...numbers], row) => {
      const line = document.createElement("tr");
      line.append(header(name, "row"), ...numbers.map((number, column) => {
        const cell = document.createElement("td");
        cell.textContent = number;
        cell.dataset.row = row;
        cell.dataset.column = column;
        if (number.includes("∞")) cell.className = "infinite";
        if (data.heat) cell.style.setProperty("--heat", Number(number.replace(",", ".")) || 0);
        if (note) cell.setAttribute("role", "gridcell"); else cell.classList.add("quiet");
        return cell;
      }));
      body.append(line);
    });
    return [head, body];
  };
  const beside = (cell, down, right) => {
    const rows = [...cell.parentNode.parentNode.children];
    let y = rows.indexOf(cell.parentNode), x = [...cell.parentNode.children].indexOf(cell);
    for (;;) {
      y += down; x += right;
      const next = rows[y] && rows[y].children[x];
      if (!next || !next.matches("td")) return null;
      if (next.hasAttribute("role")) return next;
    }
  };
  const wide = box.querySelector(".wide");
  const hint = () => wide.classList.toggle("wider", wide.scrollWidth > wide.clientWidth + 1);
  const moves = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };
  const first = table.querySelector("td[role]");
  if (first && !table.querySelector("td[tabindex]")) first.tabIndex = 0;
  for (const gap of table.querySelectorAll("button.gap")) {
    gap.disabled = false;
    gap.addEventListener("click", () => show(opened()));
  }
  table.addEventListener("click", (event) => {
    const cell = event.target.closest("td[role]");
    if (cell) { choose(cell); cell.focus(); }
  });
  table.addEventListener("focusin", (event) => { if (event.target.matches("td[role]")) choose(event.target); });
  table.addEventListener("keydown", (event) => {
    if (!event.target.matches("td[role]")) return;
    const move = moves[event.key];
    const next = move && beside(event.target, ...move);
    if (move || event.key === "Enter" || event.key === " ") event.preventDefault();
    if (next) { choose(next); next.focus(); }
  });
  if (chosen() && note) fill(chosen(), false);
  hint();
  addEventListener("resize", hint);
  box.closest("details")?.addEventListener("toggle", hint);
}
