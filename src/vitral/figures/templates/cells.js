// A chosen cell tells below its table how it comes about: by click, or by arrow keys from cell to cell.
for (const box of document.querySelectorAll(".cells")) {
  const cells = [...box.querySelectorAll("td[data-told]")];
  if (!cells.length) continue;
  const told = box.querySelector(".told");
  const workings = box.querySelector(".workings").children;
  const choose = (cell) => {
    for (const other of cells) { other.tabIndex = -1; other.removeAttribute("aria-selected"); }
    cell.tabIndex = 0;
    cell.setAttribute("aria-selected", "true");
    told.replaceChildren(...workings[cell.dataset.told].cloneNode(true).childNodes);
  };
  const beside = (cell, down, right) => {
    const row = [...cell.parentNode.children];
    const rows = [...cell.parentNode.parentNode.children];
    let y = rows.indexOf(cell.parentNode), x = row.indexOf(cell);
    for (;;) {
      y += down; x += right;
      const next = rows[y] && rows[y].children[x];
      if (!next || !next.matches("td")) return null;
      if (next.dataset.told !== undefined) return next;
    }
  };
  const moves = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };
  if (!cells.some((cell) => cell.tabIndex === 0)) cells[0].tabIndex = 0;
  for (const cell of cells) {
    cell.addEventListener("click", () => { choose(cell); cell.focus(); });
    cell.addEventListener("focus", () => choose(cell));
    cell.addEventListener("keydown", (event) => {
      const move = moves[event.key];
      const next = move && beside(cell, ...move);
      if (move || event.key === "Enter" || event.key === " ") event.preventDefault();
      if (next) next.focus();
    });
  }
}
