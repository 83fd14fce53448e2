"use strict";
// Filters, search and keys. Everything that is shown is in the document already; nothing here makes HTML of text.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const cases = all("details.case");
  if (cases.length === 0) return;
  const byName = new Map(cases.map((c) => [c.dataset.name, c]));
  const form = document.querySelector("form.filters");
  const controls = all("[data-by]", form);
  const search = document.querySelector(".bar input");
  const status = document.querySelector(".bar output");
  let current = null; // the case that was opened last

  // What a case is searched for, made when it is searched first.
  const texts = new Map();
  const plain = (text) => text.toLowerCase().replace(/\s+/g, " ");
  const textOf = (c) => {
    if (!texts.has(c)) texts.set(c, plain(all("[data-find]", c).map((e) => e.textContent).join("\n")));
    return texts.get(c);
  };

  const wanted = () => controls.filter((e) => e.value && (e.type !== "radio" || e.checked)).map((e) => [e.dataset.by, e.value]);
  const has = (c, [by, value]) => (by === "is" ? c.dataset.is.split(" ").includes(value) : c.dataset[by] === value);

  function filter() {
    const want = wanted(), text = plain(search.value.trim());
    let shown = 0;
    for (const c of cases) {
      c.hidden = !(want.every((w) => has(c, w)) && (text === "" || textOf(c).includes(text)));
      if (!c.hidden) shown++;
    }
    status.textContent = `${shown} of ${cases.length} cases`;
  }

  // The address names the open case. Not every browser lets a page from the disk replace it in place; then the page goes there.
  function note(c) {
    const address = "#" + encodeURIComponent(c.dataset.name);
    if (location.hash === address) return;
    try {
      history.replaceState(null, "", address);
    } catch {
      location.replace(address);
    }
  }

  function show(c) {
    if (current && current !== c) current.open = false;
    current = c;
    if (c.hidden) {
      form.reset();
      search.value = "";
      filter();
    }
    c.open = true;
    note(c);
    c.querySelector("summary").focus({ preventScroll: true });
    c.scrollIntoView({ block: "start" });
  }

  // go shows the next case, or the one before, of those that pass the filters.
  function go(step) {
    let i = current ? cases.indexOf(current) : step > 0 ? -1 : cases.length;
    do i += step; while (cases[i]?.hidden);
    if (cases[i]) show(cases[i]);
  }

  function followAddress() {
    let name = location.hash.slice(1);
    try {
      name = decodeURIComponent(name);
    } catch {
      return; // not an address that this page has made
    }
    const c = byName.get(name);
    if (c && !(c === current && c.open)) show(c);
  }

  // light marks the words of some items of a case, and the items.
  function light(c, numbers) {
    for (const mark of all("mark", c)) mark.classList.toggle("on", mark.dataset.items.split(" ").some((n) => numbers.includes(n)));
    for (const item of all("[data-item]", c)) item.classList.toggle("on", numbers.includes(item.dataset.item));
  }
  const pinned = (c) => all(".where[aria-pressed=true]", c).map((b) => b.closest("[data-item]").dataset.item);
  const numbersAt = (e) => e.closest("mark")?.dataset.items.split(" ") ?? [e.closest("[data-item]")?.dataset.item];

  function pin(c, button) {
    const on = button.getAttribute("aria-pressed") !== "true";
    for (const b of all(".where", c)) b.setAttribute("aria-pressed", String(on && b === button));
    light(c, pinned(c));
    const number = button.closest("[data-item]").dataset.item;
    if (on) all("mark", c).find((m) => m.dataset.items.split(" ").includes(number))?.scrollIntoView({ block: "nearest" });
  }

  // Keys are for the page unless they are for a field; arrows move among radio buttons.
  function key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return;
    const arrow = e.key.startsWith("Arrow");
    if (e.target.closest?.(arrow ? "input, select" : "input:not([type=radio]), select")) return;
    const step = { j: 1, ArrowRight: 1, k: -1, ArrowLeft: -1 }[e.key];
    if (!step && e.key !== "/") return;
    e.preventDefault();
    if (step) go(step);
    else search.focus();
  }

  document.addEventListener("keydown", key);
  document.addEventListener("click", (e) => {
    const c = e.target.closest("details.case"), button = e.target.closest(".where"), mark = e.target.closest("mark"), link = e.target.closest("[data-go]");
    if (link) go(Number(link.dataset.go));
    else if (button) pin(c, button);
    else if (mark) pin(c, c.querySelector(`[data-item="${mark.dataset.items.split(" ")[0]}"] .where`));
  });
  for (const [come, leave] of [["pointerover", "pointerout"], ["focusin", "focusout"]]) {
    document.addEventListener(come, (e) => {
      const c = e.target.closest?.(".case"), numbers = c && numbersAt(e.target);
      if (numbers?.[0]) light(c, [...pinned(c), ...numbers]);
    });
    document.addEventListener(leave, (e) => {
      const c = e.target.closest?.(".case");
      if (c && e.target.closest("mark, [data-item]")) light(c, pinned(c));
    });
  }
  document.addEventListener("toggle", (e) => {
    if (!byName.has(e.target.dataset?.name) || !e.target.open || e.target === current) return;
    current = e.target;
    note(current);
  }, true); // it does not bubble
  form.addEventListener("change", filter);
  form.addEventListener("submit", (e) => e.preventDefault());
  form.addEventListener("reset", () => {
    search.value = "";
    setTimeout(filter); // after the fields are
  });
  search.addEventListener("input", filter);
  search.addEventListener("keydown", (e) => {
    if (e.key !== "Enter") return;
    e.preventDefault();
    current = null;
    go(1);
  });
  window.addEventListener("hashchange", followAddress);

  for (const e of all("form.filters, .bar, .help, .where")) e.hidden = false;
  filter();
  followAddress();
})();
