// Samples: an answer of each of several sets beside one another, to one item. A column is "run:label of the set".
let sets = [];
const columnOf = (set) => `${set.run}:${set.label}`;

async function showSamples() {
  ({ sets } = await get("samples"));
  await drawSamples();
}

// latest is the set of a run to show first: the last of training, else a test, else any.
function latest(run) {
  const own = sets.filter((s) => s.run === run);
  return own.filter((s) => s.label.startsWith("step ")).at(-1) ?? own.at(-1);
}

// columns are the chosen sets; without a choice the last of each run, or the first and the last of a run alone.
function columns() {
  const visible = shownRuns().filter((i) => sets.some((s) => s.run === i));
  const known = choice("cols").split("|").map((c) => sets.find((s) => columnOf(s) === c)).filter((s) => s && visible.includes(s.run));
  if (known.length) return known;
  if (visible.length !== 1) return visible.map(latest);
  const own = sets.filter((s) => s.run === visible[0]), steps = own.filter((s) => s.label.startsWith("step "));
  const of = steps.length > 1 ? steps : own;
  return [...new Set([of[0], of.at(-1)])];
}

// itemsOf are the items of the columns; with the choice "differ" those whose rewards are not all the same.
function itemsOf(chosenSets) {
  const items = [...new Set(chosenSets.flatMap((s) => s.items))];
  if (choice("differ") === "") return items;
  return items.filter((item) => new Set(chosenSets.filter((s) => s.items.includes(item)).map((s) => s.rewards[s.items.indexOf(item)])).size > 1);
}

let samplesTurn = 0;
async function drawSamples() {
  const turn = ++samplesTurn, now = columns(), items = itemsOf(now);
  const item = items.includes(choice("item")) ? choice("item") : items[0];
  const found = await Promise.all(now.map((s) => (s.items.includes(item) ? get("sample", { run: s.run, set: s.set, row: s.items.indexOf(item) }) : null)));
  if (turn !== samplesTurn) return;
  const select = one("#part-samples select[name=item]");
  if (select.dataset.of !== items.join("\n")) {
    select.dataset.of = items.join("\n");
    select.replaceChildren(...items.map((name) => make("option", { value: name }, name)));
  }
  select.value = item ?? "";
  one("#part-samples [name=differ]").checked = choice("differ") !== "";
  const left = now.reduce((sum, s) => sum + (s.left_out ?? 0), 0);
  one("#part-samples output").textContent = (item === undefined ? "no items" : `${items.indexOf(item) + 1} of ${items.length}`) + (left ? `; ${left} more are not in this file` : "");
  const prompts = new Set(found.filter(Boolean).map((f) => JSON.stringify(f.prompt)));
  const place = one(".columns"), open = all("#part-samples details[open]").map((d) => d.dataset.what);
  const shared = prompts.size === 1 ? promptOf(found.find(Boolean)) : null;
  one(".shared").replaceChildren(...(shared ? [shared] : []));
  place.replaceChildren(...now.map((s, i) => columnFor(s, i, now, found[i], !shared)));
  for (const d of all("#part-samples details")) d.open = open.includes(d.dataset.what);
}

const kinds = { required: "must be in the answer", restricted: "must not be in the answer", thought: "restricted, in the thoughts" };

function promptOf(sample) {
  return make("details", { class: "prompt", "data-what": "prompt" }, make("summary", {}, "Prompt"),
    sample.prompt.map((part) => [part.role && make("p", { class: "faint" }, part.role), make("pre", {}, part.text)]).flat(), sample.prefill && make("p", { class: "faint" }, "begun for the model"), sample.prefill && make("pre", {}, sample.prefill));
}

function columnFor(set, i, now, sample, withPrompt) {
  const name = `${runs[set.run].name} · ${set.label}`;
  const pick = make("select", { "aria-label": `column ${i + 1}`, "data-column": i },
    sets.filter((s) => shownRuns().includes(s.run)).map((s) => make("option", { value: columnOf(s), selected: s === set }, `${runs[s.run].name} · ${s.label}`)));
  const close = now.length > 1 && make("button", { type: "button", class: "close", "data-close": i, "aria-label": `remove the column ${name}`, title: "remove this column" }, "×");
  return make("article", { class: "column", "aria-label": name }, make("header", {}, swatch(set.run), pick, close),
    sample ? sampleOf(sample, withPrompt) : make("p", { class: "note" }, "This set has no answer to the item."));
}

function sampleOf(sample, withPrompt) {
  const badges = [make("span", { class: "badge" }, `reward ${figure(sample.reward)}`),
    sample.verdicts.map((v) => make("span", { class: `badge ${v.kept ? "sound" : "leak"}` }, `${v.name}: ${v.kept ? "yes" : "no"}`)),
    sample.reason === "length" && make("span", { class: "badge odd" }, "cut by length")].flat();
  return [make("p", { class: "badges" }, ...badges), sample.fault && make("p", { class: "note" }, `The format is broken: ${sample.fault}.`), withPrompt && promptOf(sample),
    make("pre", {}, sample.pieces.map((p) => (p.items ? markOf(p, sample.keywords) : p.text))), ...wordsOf(sample.keywords)];
}

function markOf(piece, keywords) {
  const of = piece.items.split(" ").map((n) => keywords[n - 1]);
  const kind = ["restricted", "thought", "required"].find((k) => of.some((w) => w.kind === k));
  return make("mark", { class: kind, "data-items": piece.items, title: of.map((w) => `${w.word}: ${kinds[w.kind]}`).join("; ") }, piece.text);
}

// wordsOf lists the keywords under the numbers that the marks have.
function wordsOf(keywords) {
  const states = { required: ["sound", "there", "odd", "missing"], restricted: ["leak", "there", "sound", "kept back"], thought: ["odd", "there", "", ""] };
  return Object.keys(kinds).filter((kind) => keywords.some((w) => w.kind === kind)).map((kind) => make("section", { class: "words" }, make("h3", {}, kinds[kind]),
    make("ul", {}, keywords.map((w, i) => [w, i]).filter(([w]) => w.kind === kind).map(([w, i]) => {
      const [yes, there, no, away] = states[kind];
      return make("li", {}, make("span", { class: "faint" }, `${i + 1} `), make("span", { class: "text" }, w.word), " ", make("span", { class: `badge ${w.found ? yes : no}` }, w.found ? there : away));
    }))));
}

function startSamples() {
  const part = one("#part-samples");
  const set = (list) => choose("cols", list.map(columnOf).join("|"));
  part.addEventListener("change", (e) => {
    const { name, dataset, value, checked } = e.target;
    if (name === "item") choose("item", value);
    else if (name === "differ") choose("differ", checked ? "1" : "");
    else if (dataset.column) set(columns().map((s, i) => (i === Number(dataset.column) ? sets.find((t) => columnOf(t) === value) : s)));
    drawAgain(drawSamples);
  });
  part.addEventListener("click", (e) => {
    const step = e.target.closest("[data-step]"), close = e.target.closest("[data-close]");
    if (step) {
      const select = one("select[name=item]", part), next = select.options[select.selectedIndex + Number(step.dataset.step)];
      if (next) choose("item", next.value);
    } else if (close) set(columns().filter((s, i) => i !== Number(close.dataset.close)));
    else if (e.target.closest(".more")) set([...columns(), columns().at(-1)]);
    else return;
    drawAgain(drawSamples);
  });
}
