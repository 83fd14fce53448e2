// Curves: a chart for each chosen metric, with all runs; held-out values (eval_…) are dashed, beside the others.
const chartHeight = 260;
const axisNames = { step: "step", epoch: "epochs", time: "time", tokens: "tokens", samples: "samples" };
const charts = new Map(); // by metric

const baseOf = (metric) => metric.replace(/^eval_/, "");
const namesOf = (base) => [base, "eval_" + base].filter((name) => runs.some((r) => r.metrics.includes(name)));
const bases = () => [...new Set(runs.flatMap((r) => r.metrics.map(baseOf)))].sort();

// chosen are the metrics with a chart: those of the address, else those that the runs draw at first.
function chosen() {
  if (shown.query.has("m")) return choice("m").split(",").filter((m) => m !== "");
  return [...new Set(runs.flatMap((r) => r.first.map(baseOf)))].slice(0, 8);
}

// smoothing is the number of a smooth line, or "".
const smoothing = () => (["0", "1", "2"].includes(choice("smooth")) ? choice("smooth") : "");

// axisNow is the chosen axis.
const axisNow = () => (Object.hasOwn(axisNames, choice("x")) ? choice("x") : "step");

// wholes are the distances of ticks between steps.
const wholes = [...Array(9).keys()].flatMap((n) => [1, 2, 5].map((d) => d * 10 ** n));

// units are those that times are shown in, with their seconds.
const units = [["h", 3600], ["min", 60], ["s", 1]];
const unitFor = (most) => units.find(([, seconds]) => most >= 3 * seconds) ?? units[2];

// large writes a count as 12k or 3.4M.
function large(v) {
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (Math.abs(v) >= size) return Number((v / size).toPrecision(4)) + letter;
  return String(Number(v.toPrecision(6)));
}

// places are where the points of a curve are on the chosen axis; null: it does not have the axis.
const placesOf = (curve, axis) => (axis === "step" ? curve.steps : curve.axes[axis] ?? null);

// ascending puts the columns of a table into the order of the first.
function ascending(table) {
  const x = table[0];
  if (x.every((v, i) => i === 0 || x[i - 1] <= v)) return table;
  const order = x.map((v, i) => i).sort((a, b) => x[a] - x[b]);
  return table.map((column) => order.map((i) => column[i]));
}

// Chart is a metric's place on the page: its name, its picture, and a table with the numbers.
class Chart {
  constructor(base) {
    this.base = base;
    this.plot = make("div", { class: "plot", role: "img" });
    this.rows = make("tbody");
    this.note = make("p", { class: "faint notes" });
    const head = ["", "cursor", "last", "least", "greatest"].map((text, i) => make("th", { scope: "col", class: ["line", "n", "n", "n wide", "n wide"][i] }, text));
    const close = make("button", { type: "button", class: "close", "aria-label": `remove the chart of ${base}`, title: "remove this chart" }, "×");
    close.addEventListener("click", () => chooseMetric(base, false));
    this.card = make("article", { class: "chart", "aria-label": base }, make("header", {}, make("h2", {}, base), close), this.plot,
      make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, head)), this.rows)), this.note);
    this.watch = new ResizeObserver(() => this.resize());
    this.watch.observe(this.plot);
  }

  resize() {
    const width = this.plot.clientWidth;
    if (this.u && width > 0 && width !== this.u.width) this.u.setSize({ width, height: chartHeight });
  }

  remove() {
    this.watch.disconnect();
    this.u?.destroy();
    this.card.remove();
  }

  // load asks for the curves and draws them. Of several answers under way the last one counts.
  async load() {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const found = await Promise.all(namesOf(this.base).map((metric) => get("curves", { metric })));
    if (turn !== this.turn) return;
    this.found = found;
    this.draw();
  }

  // lines are the curves of the runs that are shown and have the axis.
  lines() {
    const axis = axisNow(), visible = shownRuns();
    return (this.found ?? []).flatMap(({ metric, curves }) => curves
      .filter((c) => visible.includes(c.run) && placesOf(c, axis))
      .map((c) => ({ run: c.run, held: metric.startsWith("eval_"), curve: c, x: placesOf(c, axis) })));
  }

  draw() {
    const lines = this.lines(), axis = axisNow();
    const logarithmic = choice("log") !== "" && lines.some((l) => l.curve.values.some((v) => v > 0));
    const smooth = smoothing();
    const unit = unitFor(Math.max(0, ...lines.map((l) => l.x.at(-1) ?? 0)));
    const tables = lines.map((l) => {
      const x = axis === "time" ? l.x.map((v) => v / unit[1]) : l.x;
      const usable = (v) => (logarithmic && v !== null && v <= 0 ? null : v);
      const columns = smooth === "" ? [l.curve.values] : [l.curve.values, l.curve.smooth[smooth]];
      return ascending([x, ...columns.map((values) => values.map(usable))]);
    });
    const data = tables.length ? uPlot.join(tables) : [[], []];
    const form = JSON.stringify([axis, unit[0], logarithmic, smooth, dark.matches, lines.map((l) => [l.run, l.held])]);
    if (this.u && form === this.form) {
      const { min, max } = this.u.scales.x, before = this.u.data[0];
      const zoomed = min > before[0] || max < before.at(-1);
      this.u.setData(data, !zoomed);
      if (zoomed) this.u.redraw();
    } else {
      this.form = form;
      this.u?.destroy();
      this.u = new uPlot(this.options(lines, axis, unit[0], logarithmic, smooth), data, this.plot);
    }
    this.tell(lines, axis, logarithmic);
  }

  options(lines, axis, unit, logarithmic, smooth) {
    const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(name).trim();
    const series = lines.flatMap((l) => {
      const look = { stroke: colour(`--run-${l.run % 8}`), dash: l.held ? [6, 4] : [], width: 1.75, points: { show: l.x.length <= 40, size: 5 } };
      return smooth === "" ? [look] : [{ ...look, alpha: 0.3, width: 1, points: { show: false } }, { ...look, points: { show: false } }];
    });
    const common = { stroke: colour("--faint"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { stroke: colour("--grid"), width: 1 }, font: "12px system-ui, sans-serif" };
    const label = axis === "time" ? `time (${unit})` : axisNames[axis];
    return {
      width: Math.max(this.plot.clientWidth, 120), height: chartHeight, legend: { show: false },
      scales: { x: { time: false }, y: { distr: logarithmic ? 3 : 1 } },
      series: [{}, ...(series.length ? series : [{}])],
      axes: [
        { ...common, label, labelSize: 18, labelFont: common.font, size: 34, ...(axis === "step" ? { incrs: wholes } : {}), values: (u, all) => all.map(large) },
        { ...common, size: 64, values: (u, all) => all.map((v) => (v === null ? "" : figure(v))) },
      ],
      cursor: { sync: { key: "posttrain" }, drag: { x: true, y: false }, points: { size: 6 } },
      hooks: { setCursor: [(u) => this.point(u, lines, smooth)] },
    };
  }

  // tell writes the table, and the words for those who cannot see the picture.
  tell(lines, axis, logarithmic) {
    const name = (l) => runs[l.run].name + (l.held ? ", held-out" : "");
    const at = (mark) => (mark ? [figure(mark.value), " ", make("small", {}, `at ${mark.step}`)] : ["–"]);
    this.cells = lines.map(() => make("td", { class: "n" }, "–"));
    this.rows.replaceChildren(...lines.map((l, i) => make("tr", {}, make("th", { scope: "row", class: "line" }, swatch(l.run, l.held), name(l)), this.cells[i],
      make("td", { class: "n" }, figure(l.curve.last?.value)), make("td", { class: "n" }, ...at(l.curve.least)), make("td", { class: "n" }, ...at(l.curve.greatest)))));
    const notes = lines.filter((l) => l.curve.lost).map((l) => `${name(l)}: not finite at step ${l.curve.lost_step}` + (l.curve.lost > 1 ? `, the first of ${l.curve.lost} values.` : "."));
    if (choice("log") && !logarithmic && lines.length) notes.push("No value is above 0: the axis is not logarithmic.");
    else if (logarithmic && lines.some((l) => l.curve.values.some((v) => v !== null && v <= 0))) notes.push("Values of 0 and below are not drawn.");
    const lacking = (this.found ?? []).flatMap(({ curves }) => curves).filter((c) => !placesOf(c, axis)).map((c) => runs[c.run].name);
    if (lacking.length) notes.push(`Without ${axisNames[axis]}: ${[...new Set(lacking)].join(", ")}.`);
    this.note.textContent = notes.join(" ");
    this.plot.setAttribute("aria-label", `${this.base} over ${axisNames[axis]}. ` +
      lines.map((l) => `${name(l)}: last ${figure(l.curve.last?.value)}.`).join(" ") + " The table below has the numbers.");
  }

  // point writes the values at the cursor, of each line the nearest at or before it.
  point(u, lines, smooth) {
    if (!this.cells) return;
    const each = smooth === "" ? 1 : 2;
    this.cells.forEach((cell, i) => {
      let at = u.cursor.idx ?? -1;
      const values = u.data[1 + i * each + (each - 1)];
      while (at >= 0 && (values?.[at] === undefined || values[at] === null)) at--;
      const text = at < 0 ? "–" : figure(values[at]);
      if (cell.textContent !== text) cell.textContent = text;
    });
  }
}

const dark = matchMedia("(prefers-color-scheme: dark)");

// showCurves makes the charts of the chosen metrics, and loads them.
async function showCurves() {
  const wanted = chosen(), place = one(".charts");
  for (const [base, chart] of charts) {
    if (wanted.includes(base)) continue;
    chart.remove();
    charts.delete(base);
  }
  for (const base of wanted) if (!charts.has(base)) charts.set(base, new Chart(base));
  const cards = wanted.map((base) => charts.get(base).card);
  if (cards.some((card, i) => place.children[i] !== card) || place.children.length !== cards.length) place.replaceChildren(...cards);
  if (!cards.length) place.replaceChildren(make("p", { class: "note" }, bases().length ? "Choose metrics above." : "The runs have no metrics yet."));
  listMetrics();
  await Promise.all(wanted.map((base) => charts.get(base).load()));
}

function chooseMetric(base, on) {
  const now = chosen().filter((m) => m !== base);
  if (on) now.push(base);
  shown.query.set("m", now.join(","));
  writeAddress();
  refresh();
}

// listMetrics are the boxes to choose metrics by. They stay where they are while no metric comes.
function listMetrics() {
  const names = bases(), now = chosen(), place = one(".choices");
  if (place.dataset.of !== names.join("\n")) {
    place.dataset.of = names.join("\n");
    place.replaceChildren(...names.map((base) => make("label", { "data-metric": base }, make("input", { type: "checkbox", value: base }), " " + base)));
  }
  for (const box of all("input", place)) box.checked = now.includes(box.value);
  one(".metrics .count").textContent = `${now.length} of ${names.length}`;
  searchMetrics();
}

function searchMetrics() {
  const words = one(".metrics input[type=search]").value.trim().toLowerCase();
  for (const label of all(".choices label")) label.hidden = !label.dataset.metric.toLowerCase().includes(words);
}

function startCurves() {
  const form = one("#part-curves form");
  form.addEventListener("submit", (e) => e.preventDefault());
  one(".metrics input[type=search]").addEventListener("input", searchMetrics);
  form.addEventListener("change", (e) => {
    const { name, type } = e.target;
    if (e.target.closest(".choices")) return chooseMetric(e.target.value, e.target.checked);
    if (type === "search") return;
    choose(name, type === "checkbox" ? (e.target.checked ? "1" : "") : e.target.value === "step" ? "" : e.target.value);
    for (const chart of charts.values()) chart.draw();
  });
  dark.addEventListener("change", () => charts.forEach((chart) => chart.draw()));
}

// fillCurves sets the fields as the address says, and offers the axes that a run has.
function fillCurves() {
  const form = one("#part-curves form"), axes = new Set(["step", ...runs.flatMap((r) => r.axes)]);
  for (const option of form.elements.x.options) option.hidden = option.disabled = !axes.has(option.value);
  form.elements.x.value = axes.has(choice("x")) ? choice("x") : "step";
  form.elements.smooth.value = smoothing();
  form.elements.log.checked = choice("log") !== "";
}
