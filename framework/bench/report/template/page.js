// Sorting, filters, tips and the light switch. The page is whole without it.
// Text from data is set as text, never as HTML.
"use strict";
(() => {
  const all = (query, root = document) => Array.from(root.querySelectorAll(query));
  const data = JSON.parse(document.getElementById("data").textContent);

  // ---- light and dark: the system's, until somebody chooses
  const root = document.documentElement;
  const themeButton = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const remembered = () => { try { return localStorage.getItem("foredraft-theme"); } catch { return null; } };
  const remember = (name) => { try { localStorage.setItem("foredraft-theme", name); } catch { /* a file may not */ } };
  const theme = () => root.dataset.theme || (system.matches ? "dark" : "light");
  const nameButton = () => { themeButton.textContent = theme() === "dark" ? "light" : "dark"; };
  if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();
  themeButton.addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    remember(root.dataset.theme);
    nameButton();
  });
  system.addEventListener("change", nameButton);
  themeButton.hidden = false;
  nameButton();

  // ---- sorting
  const sortKey = (row, column) => {
    const value = row.cells[column].dataset.value;
    if (value === undefined) return null;
    return value.trim() === "" || Number.isNaN(Number(value)) ? value : Number(value);
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  const sort = (table, column, down) => {
    const body = table.tBodies[0];
    const keyed = Array.from(body.rows, (row) => [sortKey(row, column), row]);
    keyed.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null); // the unknown stays last
      return down ? compare(b, a) : compare(a, b);
    });
    body.append(...keyed.map(([, row]) => row));
  };
  all("table[data-sortable]").forEach((table) => {
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        // Numbers start with the largest, the order of the page with the first.
        const before = head.getAttribute("aria-sort");
        const down = before === "none" ? head.classList.contains("n") : before === "ascending";
        heads.forEach((other) => other.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        sort(table, column, down);
      });
    });
    heads[0].setAttribute("aria-sort", "ascending");
  });

  // ---- filters: one form for all tables of its run
  all("form[data-filter]").forEach((form) => {
    const mark = form.dataset.filter;
    const rows = all(`table[data-filtered="${mark}"] tbody tr`);
    const words = form.elements.words;
    const picks = all("select", form);
    const output = form.querySelector("output");
    const fits = (cell) =>
      words.value.toLowerCase().split(/\s+/).every((word) => cell.words.includes(word)) &&
      picks.every((pick) => {
        // What a cell did not choose does not hide it: a baseline stays beside what is compared with it.
        const own = cell.choices[pick.dataset.key];
        return pick.value === "" || own === undefined || pick.value === "=" + own;
      });
    const apply = () => {
      const shown = data[mark].map(fits);
      rows.forEach((row) => { row.hidden = !shown[Number(row.dataset.cell)]; });
      output.value = `${shown.filter(Boolean).length} of ${shown.length}`;
    };
    form.addEventListener("input", apply);
    form.addEventListener("reset", () => setTimeout(apply));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    apply();
  });

  // ---- tips: marks of figures and tokens of answers, by pointer, by tap and by arrow keys
  const tip = document.getElementById("tip");
  const says = (item) => item.dataset.tip || item.getAttribute("aria-label");
  let active = null;
  const hide = () => { active = null; tip.hidden = true; };
  const show = (item) => {
    active = item;
    tip.textContent = says(item);
    tip.hidden = false;
    const at = item.getBoundingClientRect();
    const left = Math.min(Math.max(at.left + at.width / 2 - tip.offsetWidth / 2, 8),
      root.clientWidth - tip.offsetWidth - 8);
    const above = at.top - tip.offsetHeight - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 4 ? above : at.bottom + 8}px`;
  };
  all("[data-roving]").forEach((group) => {
    const items = all('[role="img"][aria-label], .token', group);
    items.forEach((item, index) => {
      if (item.title) { // the browser's own tip waits, and never comes by touch or keyboard
        item.dataset.tip = item.title;
        item.removeAttribute("title");
        item.setAttribute("aria-describedby", "tip");
      }
      item.setAttribute("tabindex", index ? "-1" : "0");
    });
    const of = (event) => event.target.closest('[role="img"][aria-label], .token');
    const focus = (item) => {
      items.forEach((other) => other.setAttribute("tabindex", "-1"));
      item.setAttribute("tabindex", "0");
      item.focus();
    };
    group.addEventListener("pointerover", (event) => { const item = of(event); if (item) show(item); });
    group.addEventListener("pointerout", hide);
    group.addEventListener("click", (event) => { const item = of(event); if (item) { focus(item); show(item); } });
    group.addEventListener("focusin", (event) => { const item = of(event); if (item) show(item); });
    group.addEventListener("focusout", hide);
    group.addEventListener("keydown", (event) => {
      const at = items.indexOf(of(event));
      const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1,
        Home: 0, End: items.length - 1 }[event.key];
      if (at < 0 || to === undefined || !items[to]) return;
      event.preventDefault();
      focus(items[to]);
    });
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  document.addEventListener("scroll", () => { if (active) show(active); }, true);

  // ---- answers: a round per line
  all(".trace").forEach((trace) => {
    const label = trace.querySelector(".lines");
    label.hidden = false;
    label.querySelector("input").addEventListener("change", (event) => {
      trace.classList.toggle("by-round", event.target.checked);
    });
  });
})();
