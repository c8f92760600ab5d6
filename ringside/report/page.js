// A head sorts its column, once more the other way round: numbers as numbers, before text; unknown last.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, row = head.parentElement, column = head.cellIndex;
    const way = head.ariaSort === "ascending" ? -1 : 1;
    for (const other of row.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
    const body = row.closest("table").tBodies[0];
    const kind = (cell) => cell.textContent === "–" ? 2 : cell.dataset.order === undefined ? 1 : 0;
    const rows = [...body.rows].sort((one, two) => {
      const a = one.cells[column], b = two.cells[column];
      if (kind(a) !== kind(b)) return kind(a) - kind(b);
      if (kind(a) === 0) return way * (a.dataset.order - b.dataset.order);
      return way * a.textContent.localeCompare(b.textContent);
    });
    body.append(...rows);
  });
}
