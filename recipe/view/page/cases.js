// PrivacyLens: the cases of all runs; a case that is opened shows what each run's agent did, and the verdicts.
let lensCases = { rates: [], notes: [], cases: [] };

async function showCases() {
  lensCases = await get("cases");
  const { rates, notes, cases } = lensCases;
  const head = ["run", "cases", "leakage rate (LR)", "adjusted (ALR)", "mean helpfulness"].map((text) => make("th", { scope: "col" }, text));
  one("#part-cases .rates").replaceChildren(...(rates.length ? [make("table", {}, make("thead", {}, make("tr", {}, head)), make("tbody", {}, rates.map((r) => make("tr", {},
    make("th", { scope: "row" }, swatch(r.run), runs[r.run].name), [String(r.cases), r.leakage, r.adjusted, r.helpfulness].map((text) => make("td", {}, text))))))] : []),
    ...notes.map((text) => make("p", { class: "note" }, text)));
  const place = one("#part-cases .list"), open = all("details.case[open]", place).map((d) => d.dataset.name);
  place.replaceChildren(...cases.map(caseOf));
  for (const d of all("details.case", place)) if (open.includes(d.dataset.name)) d.open = true;
  filterCases();
}

const stateOf = (s) => (s.no_action ? ["none", "no action"] : s.leaks ? ["leak", "leaks"] : ["sound", "no leak"]);

function caseOf(c) {
  const badges = c.states.map((s, i) => s && make("span", { class: "verdict", "data-run": i }, swatch(i), make("span", { class: `badge ${stateOf(s)[0]}` }, stateOf(s)[1] + (s.score === null ? "" : `, ${s.score}`))));
  const details = make("details", { class: "case", "data-name": c.name }, make("summary", {}, make("span", { class: "name" }, c.name), badges, make("span", { class: "faint" }, ` ${c.source} · ${c.principle}`)));
  details.addEventListener("toggle", async () => {
    if (!details.open || details.dataset.full) return;
    details.dataset.full = "yes";
    try {
      details.append(bodyOf(await get("case", { name: c.name })));
    } catch (e) {
      details.append(make("p", { class: "warning" }, e.message));
    }
  });
  return details;
}

const fold = (title, text) => text && make("details", {}, make("summary", {}, title), make("pre", {}, text));

function bodyOf(c) {
  const visible = shownRuns();
  return make("div", { class: "body" }, c.task && [make("h3", {}, "Task"), make("p", { class: "text" }, c.task)],
    c.facts.length > 0 && make("dl", {}, c.facts.map((f) => [make("dt", {}, f.name), make("dd", {}, f.value)]).flat()), fold("Story", c.story), fold("Past of the agent", c.past),
    make("div", { class: "columns" }, c.runs.filter((r) => visible.includes(r.run)).map(deedOf)));
}

function deedOf(d) {
  const action = d.too_long ? make("p", { class: "note" }, "The model was not asked: the prompt has more tokens than the model has positions.")
    : d.no_action ? [make("p", { class: "note" }, "The output has no action: it was not judged, and counts as no leak."), make("pre", {}, d.final)]
    : !d.known ? make("p", { class: "note" }, "The action is not known: its verdicts were recorded.")
    : [fold("Before the action", d.before), make("pre", {}, d.pieces.map((p) => (p.items ? make("mark", { "data-items": p.items, title: `item ${p.items}` }, p.text) : p.text)))];
  const items = make("ol", { class: "items" }, d.items.map((item) => make("li", {}, make("span", { class: "text" }, item.item), " ",
    d.no_action ? make("span", { class: "badge none" }, "not judged") : make("span", { class: `badge ${item.leaks ? "leak" : "sound"}` }, item.leaks ? "leaks" : "no leak"),
    !item.parsed && make("span", { class: "badge odd" }, "unparsed"), fold("Judge's reply", item.reply))));
  return make("article", { class: "column", "aria-label": runs[d.run].name }, make("header", {}, make("h3", {}, swatch(d.run), runs[d.run].name)), make("h4", {}, "Final action"), action,
    d.cut && make("p", { class: "note" }, "The output met its length limit."), make("h4", {}, "Items that it should not give away"), items,
    d.helpfulness !== null && [make("p", {}, `Helpfulness: ${d.helpfulness} of 3`), fold("Judge's reply", d.reply)]);
}

// Which cases pass, by the value of the field "show".
const passes = {
  "": () => true,
  leaking: (states) => states.some((s) => s.leaks),
  differ: (states) => new Set(states.map((s) => s.leaks)).size > 1,
  none: (states) => states.some((s) => s.no_action),
};

function filterCases() {
  const visible = shownRuns(), words = one("#part-cases input[type=search]").value.trim().toLowerCase(), wanted = Object.hasOwn(passes, choice("cases")) ? choice("cases") : "";
  one("#part-cases select").value = wanted;
  let count = 0;
  all("#part-cases details.case").forEach((d, i) => {
    const c = lensCases.cases[i], states = visible.map((r) => c.states[r]).filter(Boolean);
    d.hidden = !states.length || !passes[wanted](states) || !`${c.name} ${c.source} ${c.principle} ${c.tool} ${c.task ?? ""}`.toLowerCase().includes(words);
    for (const v of all(".verdict", d)) v.hidden = !visible.includes(Number(v.dataset.run));
    if (!d.hidden) count++;
  });
  one("#part-cases output").textContent = `${count} of ${lensCases.cases.length} cases`;
}

function startCases() {
  one("#part-cases input[type=search]").addEventListener("input", filterCases);
  one("#part-cases select").addEventListener("change", (e) => {
    choose("cases", e.target.value);
    filterCases();
  });
}
