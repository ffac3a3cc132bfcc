"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const find = (selector) => document.querySelector(selector);
const all = (selector) => [...document.querySelectorAll(selector)];
const state = { column: data.column, axis: "t", curve: data.curve, hidden: {} };
const AXES = {
  t: { title: "time t", reversed: true },
  sigma: { title: "sigma", reversed: true, type: "log" },
  logsnr: { title: "log-SNR" },
};
const DASHES = { solid: "", dash: "6 4", dot: "2 3", dashdot: "6 3 2 3" };
const GLYPHS = {
  circle: "●", square: "■", diamond: "◆", "triangle-up": "▲", "triangle-down": "▼", cross: "✚", x: "✖", star: "★", hexagon: "⬢", bowtie: "⧓", pentagon: "⬟",
};

// Colours are variables of the style sheet; a probe says what they are in the theme of the moment.
const probe = document.body.appendChild(Object.assign(document.createElement("i"), { hidden: true }));
function colour(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

function short(x) {
  return x === null ? "–" : String(Number(x.toPrecision(4)));
}

// ---- What all charts share

function axisOf(name) {
  const { title, reversed, type } = AXES[name];
  return { title: { text: `${title}   (noise → clean)` }, autorange: reversed ? "reversed" : true, type: type || "linear" };
}

function layout(xaxis, yaxis, more = {}) {
  const quiet = colour("quiet"), line = colour("line");
  const common = {
    fixedrange: true, gridcolor: line, linecolor: line, zeroline: false, automargin: true, tickfont: { color: quiet },
  };
  const titled = (axis) => ({ ...common, ...axis, title: axis.title && { ...axis.title, font: { color: quiet, size: 13 } } });
  return {
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("ink") },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 8, r: 16, t: 12, b: 44 },
    height: 340,
    showlegend: false,
    dragmode: false,
    hovermode: "closest",
    hoverlabel: { bgcolor: colour("raised"), bordercolor: quiet, font: { color: colour("ink") } },
    xaxis: titled(xaxis),
    yaxis: titled(yaxis),
    ...more,
  };
}

function lookOf(name) {
  return data.looks[name] || { colour: "ink", dash: "solid", mark: "circle", strong: false };
}

function styled(name, look, more) {
  return {
    name,
    type: "scatter",
    hovertemplate: "%{text}<extra></extra>",
    line: { color: colour(look.colour), dash: look.dash, width: look.strong ? 3 : 1.8 },
    marker: { color: colour(look.colour), symbol: look.mark, size: look.strong ? 10 : 8 },
    ...more,
  };
}

// Numbers beyond the chart's logarithm would break the bars; the text of the hover stays exact.
function bars(points, place) {
  const [value, low, high] = [points.map((p) => p[place]), points.map((p) => p[place + 1]), points.map((p) => p[place + 2])];
  return {
    type: "data", symmetric: false, thickness: 1.4, width: 4,
    array: value.map((v, i) => high[i] - v),
    arrayminus: value.map((v, i) => Math.min(v - low[i], 0.95 * v)),
  };
}

function draw(name, traces, itsLayout, isSwitched = false) {
  const place = document.getElementById(`chart-${name}`);
  const hidden = (state.hidden[name] ||= new Set());
  for (const trace of traces) trace.visible = !hidden.has(trace.name);
  Plotly.react(place, traces, itsLayout, { displayModeBar: false, responsive: true });
  if (isSwitched) drawLegend(name, traces, hidden);
}

function drawLegend(name, traces, hidden) {
  const legend = document.getElementById(`legend-${name}`);
  const { of, name: focused } = document.activeElement.dataset;
  legend.replaceChildren(...traces.map((trace) => {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", onclick: () => toggle(name, trace.name) });
    Object.assign(button.dataset, { of: name, name: trace.name });
    button.setAttribute("aria-pressed", String(!hidden.has(trace.name)));
    button.innerHTML = `<svg width="28" height="12" aria-hidden="true"><line x1="0" x2="28" y1="6" y2="6"
      stroke="${trace.line.color}" stroke-width="2" stroke-dasharray="${DASHES[trace.line.dash] || ""}"/><text x="14" y="10"
      font-size="11" text-anchor="middle" fill="${trace.line.color}">${trace.mode === "lines" ? "" : GLYPHS[trace.marker.symbol]}</text></svg>`;
    button.append(trace.name);
    return button;
  }));
  if (of === name) [...legend.children].find((button) => button.dataset.name === focused)?.focus();
}

function toggle(chart, name) {
  const hidden = state.hidden[chart];
  if (!hidden.delete(name)) hidden.add(name);
  CHARTS[chart]();
}

// ---- The charts

function drawRanking() {
  const { entries, measure, ruler } = data.columns[state.column];
  const measured = entries.filter((entry) => entry.error);
  const traces = measured.map((entry) => {
    const look = lookOf(entry.name);
    return styled(entry.name, look, {
      mode: "markers",
      x: [entry.error[0]],
      y: [escaped(entry.name)],
      error_x: { ...bars([entry.error], 0), color: colour(look.colour) },
      text: [`<b>${escaped(entry.name)}</b><br>${escaped(measure)} ${short(entry.error[0])}<br>95 % interval ` +
        `${short(entry.error[1])} to ${short(entry.error[2])}` +
        (entry.matches === "–" ? "" : `<br>same error as ${entry.matches} ${ruler}`)],
    });
  });
  const errors = { title: { text: escaped(measure) }, rangemode: "tozero" };
  const rows = rowsOf(measured);
  draw("ranking", traces, layout(errors, rows, { height: 70 + 25 * measured.length }));
}

// The first entry on top.
function rowsOf(entries) {
  return { type: "category", categoryorder: "array", categoryarray: entries.map((entry) => escaped(entry.name)).reverse() };
}

function drawCurves() {
  const { series, title } = data.curves[state.curve];
  const names = Object.keys(series);
  state.hidden.curves ||= startsHidden();
  const traces = names.map((name) => {
    const points = series[name], look = lookOf(name), steps = (p) => (look.level ? "" : `${p[0]} steps, ${short(p[1])} calls<br>`);
    return styled(name, look, {
      mode: look.level ? "lines" : "lines+markers",
      x: points.map((p) => p[1]),
      y: points.map((p) => p[2]),
      error_y: look.level ? {} : { ...bars(points, 2), color: colour(look.colour) },
      text: points.map((p) => `<b>${escaped(name)}</b><br>${steps(p)}${short(p[2])}, 95 % interval ` +
        `${short(p[3])} to ${short(p[4])}`),
    });
  });
  const calls = [...new Set(names.flatMap((name) => series[name].map((p) => p[1])))].sort((a, b) => a - b);
  const across = { title: { text: "network calls per sample" }, type: "log", tickvals: calls, ticktext: calls.map(short) };
  const points = names.flatMap((name) => series[name]);
  const isLong = Math.max(...points.map((p) => p[4])) > 10 * Math.min(...points.map((p) => p[3])); // than a decade
  const up = { title: { text: escaped(title) }, type: "log", dtick: isLong ? "D2" : "D1", tickformat: "~g" };
  draw("curves", traces, layout(across, up, { height: 440, ...drawnMatch() }), true);
  find("#all-curves").setAttribute("aria-pressed", String(state.hidden.curves.size === 0));
}

// The headline, drawn: from the schedule across to as many uniform calls, and the interval there.
function drawnMatch() {
  const { match } = data;
  if (!match || match.curve !== state.curve || state.hidden.curves.has(match.name)) return {};
  const [from, to, low, high] = match.calls;
  const line = { color: colour("ink"), width: 1.2, dash: "dot" };
  return {
    shapes: [
      { type: "line", x0: from, x1: to, y0: match.error, y1: match.error, line },
      { type: "rect", x0: low, x1: high, y0: 0, y1: 1, yref: "paper", line: { width: 0 }, fillcolor: colour("red"), opacity: 0.12 },
    ],
    // Curves fall, so that the corner below their beginning is free.
    annotations: [{
      x: 0.01, y: 0.01, xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false, align: "left",
      text: `${escaped(match.name)} matches<br>${match.matches} uniform steps`, font: { color: colour("ink"), size: 13 },
    }],
  };
}

// Of many curves a reader wants few: ours, the best uniform one, the best of the others.
function startsHidden() {
  const { series } = data.curves[state.curve];
  const names = Object.keys(series);
  const kinds = Object.fromEntries(data.columns.flatMap(({ entries }) => entries.map((entry) => [entry.name, entry.kind])));
  const first = (name) => series[name][0][2];
  const best = (kind) => names.filter((name) => kinds[name] === kind).sort((a, b) => first(a) - first(b))[0];
  const matched = data.match ? [data.match.name] : [];
  const shown = [...matched, "tuned", "geosprint", best("today"), best("ours"), best("uniform"), best("other"), best("limit")];
  return new Set(names.filter((name) => !shown.includes(name)));
}

function drawSteps() {
  const placed = data.columns[state.column].entries.filter((entry) => entry.places);
  const traces = placed.map((entry) => {
    const look = lookOf(entry.name);
    return styled(entry.name, look, {
      mode: "markers",
      x: entry.places[state.axis],
      y: entry.places.t.map(() => escaped(entry.name)),
      marker: { symbol: "line-ns", size: 15, line: { width: look.strong ? 3.2 : 2, color: colour(look.colour) } },
      text: entry.places.t.map((t, i) => `<b>${escaped(entry.name)}</b><br>step ${i + 1}: t ${short(t)}<br>sigma ` +
        `${short(entry.places.sigma[i])}, log-SNR ${short(entry.places.logsnr[i])}`),
    });
  });
  draw("steps", traces, layout(axisOf(state.axis), rowsOf(placed), { height: 70 + 25 * placed.length }));
}

const PLAIN = [
  { colour: "red", dash: "solid", strong: true }, { colour: "blue", dash: "dash" }, { colour: "grey", dash: "dot" },
];

const SHARES = { title: { text: "w(t)" }, rangemode: "tozero" };
const DENSITY = { title: { text: "density" }, type: "log", tickformat: "~g" };

function drawLines(name, up) {
  const { t, sigma, "log-SNR": logsnr, ...series } = data.bends[name].columns;
  const places = { t, sigma, logsnr }, names = Object.keys(series);
  const traces = names.map((one, i) => styled(one, { ...PLAIN[names.length - 1 - i] }, {
    mode: "lines",
    x: places[state.axis],
    y: series[one],
    customdata: places.t,
    hovertemplate: `${one}<br>t %{customdata:.4~g}: %{y:.4~g}<extra></extra>`,
  }));
  draw(name, traces, layout(axisOf(state.axis), up), true);
}

function drawOracle() {
  const { columns: { K: steps, score: scores }, marks: { target, chosen } } = data.bends.oracle;
  const seen = steps.map((k, i) => [k, scores[i]]).filter((p) => p[1] > 0);
  const curve = styled("score of K steps", PLAIN[1], {
    mode: "lines", x: seen.map((p) => p[0]), y: seen.map((p) => p[1]), hovertemplate: "%{x} steps: %{y:.4~g}<extra></extra>",
  });
  const goal = styled("target", PLAIN[2], {
    mode: "lines", x: [steps[0], steps[steps.length - 1]], y: [target, target], hovertemplate: "target %{y:.4~g}<extra></extra>",
  });
  const reached = styled(`${chosen} steps`, { colour: "red", dash: "solid", mark: "circle", strong: true }, {
    mode: "markers", x: [chosen], y: [scores[steps.indexOf(chosen)]], hovertemplate: "%{x} steps: %{y:.4~g}<extra></extra>",
  });
  const across = { title: { text: "steps K" }, type: "log", tickvals: [2, 3, 5, 10, 20, 50, 100, 200], tickformat: "d" };
  const up = { title: { text: "score" }, type: "log", dtick: 1, exponentformat: "power" };
  draw("oracle", [curve, goal, reached], layout(across, up), true);
}

function drawCounts() {
  const { states, samples } = data.bends.counts.columns;
  const trace = {
    name: "samples", type: "bar", x: states, y: samples, marker: { color: colour("green") },
    hovertemplate: "%{y} samples need %{x} states<extra></extra>",
  };
  const across = { title: { text: "states that a sample needs" }, ...(states.length < 16 && { tickvals: states }) };
  draw("counts", [trace], layout(across, { title: { text: "samples" } }, { height: 260, bargap: 0.15 }));
}

const CHARTS = {
  ranking: drawRanking, curves: drawCurves, steps: drawSteps, retention: () => drawLines("retention", SHARES),
  densities: () => drawLines("densities", DENSITY), halves: () => drawLines("halves", SHARES), oracle: drawOracle,
  counts: drawCounts,
};

function drawAll(names = Object.keys(CHARTS)) {
  for (const name of names) if (document.getElementById(`chart-${name}`)) CHARTS[name]();
}

// Plotly reads a few tags in its texts; a name is never one.
function escaped(text) {
  return String(text).replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
}

// ---- Samples

let flickering = null;

function pictured() {
  return data.columns[state.column].entries.filter((entry) => entry.picture);
}

function showPicture() {
  const slider = find("#slider");
  if (!slider) return; // there are no pictures
  const column = data.columns[state.column], entries = pictured();
  slider.max = String(Math.max(entries.length - 1, 0));
  const entry = entries[Number(slider.value)];
  find("#picture-reference").src = column.reference || "data:,";
  if (!entry) return;
  const error = entry.error ? `, ${column.measure} ${short(entry.error[0])}` : "";
  find("#picture").src = entry.picture;
  find("#picture").alt = `Samples of ${entry.name} from the same noise`;
  find("#picture-name").textContent = `${entry.name}${error}`;
  slider.setAttribute("aria-valuetext", entry.name);
}

function flicker() {
  const button = find("#flicker"), picture = find("#picture");
  clearInterval(flickering);
  flickering = flickering === null ? setInterval(() => {
    const { reference } = data.columns[state.column], entry = pictured()[Number(find("#slider").value)];
    picture.src = picture.src === reference ? entry.picture : reference;
  }, 450) : null;
  button.setAttribute("aria-pressed", String(flickering !== null));
  if (flickering === null) showPicture();
}

// ---- Copying

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages from a disk may not reach the clipboard; the old way may.
    const area = Object.assign(document.createElement("textarea"), { value: text, readOnly: true });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

const calmingDown = new Map(); // of each button that was pressed, so that pressing it again begins anew

async function copyFrom(button) {
  const source = document.getElementById(button.dataset.copies);
  const done = await copy(source.textContent);
  if (!done) getSelection().selectAllChildren(source);
  button.textContent = done ? "Copied" : "Press Ctrl-C";
  const status = find("#copied");
  if (status) status.textContent = done ? `Copied: ${button.parentElement.querySelector("h3").textContent}` : "";
  clearTimeout(calmingDown.get(button));
  calmingDown.set(button, setTimeout(() => (button.textContent = "Copy"), 2000));
}

function chooseText(index) {
  find("#pick-copyable").value = String(index);
  const { texts } = data.copyables[index];
  for (const place of all(".texts pre")) {
    const text = texts[place.id.replace("text-", "")];
    place.textContent = text || "";
    place.parentElement.hidden = !text;
  }
}

// ---- Theme

function isDark() {
  return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

// The button names the theme that it leads to.
function tellTheme() {
  find("#theme").textContent = isDark() ? "Light" : "Dark";
}

// Paper is white, whatever the screen is.
function printInLight() {
  const { theme } = root.dataset;
  root.dataset.theme = "light";
  drawAll();
  addEventListener("afterprint", () => {
    if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
    drawAll();
  }, { once: true });
}

function switchTheme() {
  root.dataset.theme = isDark() ? "light" : "dark";
  tellTheme();
  drawAll();
}

// ---- Controls

function chooseColumn(value) {
  state.column = Number(value);
  for (const select of all(".pick-column")) select.value = value;
  drawAll(["ranking", "steps"]);
  showPicture();
}

function chooseAxis(value) {
  state.axis = value;
  for (const input of all(".pick-axis input")) input.checked = input.value === value;
  drawAll(["steps", "retention", "densities", "halves"]);
}

function chooseCurve(value) {
  state.curve = Number(value);
  drawCurves();
}

function showAllCurves() {
  state.hidden.curves = state.hidden.curves.size ? new Set() : startsHidden();
  drawCurves();
}

function listen() {
  find("#theme").onclick = switchTheme;
  addEventListener("beforeprint", printInLight);
  for (const select of all(".pick-column")) select.value = String(state.column);
  if (find("#pick-curve")) find("#pick-curve").value = String(state.curve);
  if (find("#pick-copyable")) chooseText(data.copyable);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { tellTheme(); drawAll(); });
  for (const select of all(".pick-column")) select.onchange = () => chooseColumn(select.value);
  for (const input of all(".pick-axis input")) input.onchange = () => chooseAxis(input.value);
  for (const button of all(".copy")) button.onclick = () => copyFrom(button);
  if (find("#pick-curve")) find("#pick-curve").onchange = (event) => chooseCurve(event.target.value);
  if (find("#all-curves")) find("#all-curves").onclick = showAllCurves;
  if (find("#pick-copyable")) find("#pick-copyable").onchange = (event) => chooseText(Number(event.target.value));
  if (find("#slider")) Object.assign(find("#slider"), { oninput: showPicture });
  if (find("#flicker")) find("#flicker").onclick = flicker;
}

async function loadPlotly() {
  const packed = Uint8Array.from(atob(find("#plotly").textContent), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(unpacked).text();
  document.head.append(script);
}

async function start() {
  tellTheme();
  listen();
  showPicture();
  await loadPlotly();
  drawAll();
  document.getElementById("js-plotly-tester")?.setAttribute("aria-hidden", "true");  // where Plotly measures letters
  root.dataset.ready = "yes";
}

start().catch((wrong) => {
  find("#no-charts").hidden = false;
  throw wrong;
});
