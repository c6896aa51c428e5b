// A table is sorted by the column whose heading is chosen, and the other way round when it is chosen again.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.querySelectorAll("thead th")];
  for (const head of heads) {
    const button = head.querySelector("button");
    if (!button) continue;
    button.disabled = false;
    button.addEventListener("click", () => {
      const index = heads.indexOf(head);
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.cells[index].dataset.key ?? "";
      const order = (one, other) => {
        const [a, b] = [key(one), key(other)];
        if (a === "" || b === "") return (a === "") - (b === "");  // cells without a value stay at the end
        const numbers = a - b;
        return (down ? -1 : 1) * (Number.isNaN(numbers) ? a.localeCompare(b) : numbers);
      };
      body.append(...[...body.rows].sort(order));
    });
  }
}
