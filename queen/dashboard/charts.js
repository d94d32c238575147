// Line charts, drawn by uPlot, with the same data as a table for screen readers.

import uPlot from "./uplot/uPlot.esm.js";
import { facts, fill, h } from "./dom.js";
import { bytes, count, once } from "./format.js";

const HEIGHT = 200;
const DAY_S = 86400;
// Grid steps of times, because labels tell no seconds, and for sizes in bytes.
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 4320, 10_080].map((minutes) => 60 * minutes);
const DOUBLES = Array.from({ length: 50 }, (_, power) => 2 ** power);
const CLOCK = once(() => new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }));
const DATE = once(() => new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" }));

export class Chart {
  // `series`: label and colour (a token of style.css) of each line; `text` formats a value.
  constructor(title, series, text = count) {
    this.title = title;
    this.series = series;
    this.text = text;
    this.plot = null;
    this.data = null;
    this.place = h("div", { class: "plot", role: "img", "aria-label": title }, h("p", { class: "empty" }, "Collecting…"));
    this.figures = h("div");
    this.details = h("details", { ontoggle: () => this.#list() }, h("summary", {}, "Data"), this.figures);
    this.element = h("figure", { class: "card" }, h("figcaption", {}, title), this.place, this.details);
    this.observer = new ResizeObserver(() => this.#fit());
    this.observer.observe(this.place);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.redraw = () => this.#draw();
    this.dark.addEventListener("change", this.redraw);
    document.addEventListener("theme", this.redraw);
  }

  close() {
    this.observer.disconnect();
    this.dark.removeEventListener("change", this.redraw);
    document.removeEventListener("theme", this.redraw);
    this.plot?.destroy();
  }

  // `times` in seconds since 1970, oldest first; one list of values per line, null where there is none.
  show(times, ...lines) {
    this.data = [times, ...lines];
    this.place.setAttribute("aria-label", this.#summary());
    if (this.plot && !this.#early()) this.plot.setData(this.data);
    else this.#draw();
    this.#tellLatest();
    this.#list();
  }

  // The legend shows the latest values unless the cursor is on the chart.
  #tellLatest() {
    requestAnimationFrame(() => {
      if (this.plot && (this.plot.cursor.idx ?? null) === null) this.plot.setLegend({ idx: this.data[0].length - 1 }, false);
    });
  }

  #summary() {
    const latest = this.series.map((each, n) => {
      const figures = this.data[n + 1].filter((figure) => figure !== null);
      return figures.length ? `${each.label} ${this.text(figures.at(-1))}, max ${this.text(Math.max(...figures))}` : `${each.label}: no data`;
    });
    return `${this.title}. ${latest.join(". ")}.`;
  }

  #draw() {
    this.plot?.destroy();
    this.plot = null;
    if (!this.data) return;
    const early = this.#early();
    fill(this.place, early);
    if (early) return;
    this.plot = new uPlot(this.#options(), this.data, this.place);
    this.#tellLatest();
  }

  // What is shown in place of lines that have less than two points.
  #early() {
    const [times, ...lines] = this.data;
    if (!lines.some((line) => line.some((figure) => figure !== null))) return h("p", { class: "empty" }, "No data for this time range yet");
    if (times.length > 1) return null;
    return h("div", { class: "early" },
      facts(this.series.map(({ label }, n) => [label, lines[n][0] === null ? "–" : this.text(lines[n][0])])),
      h("p", { class: "empty" }, `Collecting since ${CLOCK().format(times[0] * 1000)}: the chart begins with the second point`));
  }

  #fit() {
    if (this.plot && this.place.clientWidth) this.plot.setSize({ width: this.place.clientWidth, height: HEIGHT });
  }

  #options() {
    const ink = colour("--quiet");
    const axis = { stroke: ink, grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const clock = (value) => (this.#long() ? `${DATE().format(value * 1000)} ` : "") + CLOCK().format(value * 1000);
    const written = (_, figure) => (figure === null || figure === undefined ? "–" : this.text(figure));
    return {
      width: this.place.clientWidth || 300,
      height: HEIGHT,
      cursor: { points: { size: 6 }, drag: { x: false, y: false } },
      legend: { live: true },
      scales: { y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.1 : 1] } },
      axes: [
        { ...axis, size: 30, space: 70, incrs: STEPS_S, values: (_, splits) => splits.map((value) => (this.#long() ? DATE : CLOCK)().format(value * 1000)) },
        { ...axis, size: 76, incrs: this.text === bytes ? DOUBLES : undefined, values: (_, splits) => splits.map((value) => this.text(value)) },
      ],
      series: [
        { label: "Time", value: (_, value) => (Number.isFinite(value) ? clock(value) : "–") },
        ...this.series.map((each, n) => ({
          label: each.label, stroke: colour(each.colour), fill: n ? undefined : faint(colour(each.colour)), width: 2, value: written,
          points: { size: 5, filter: (plot, line, dense) => (dense ? null : alone(plot.data[line])) },
        })),
      ],
    };
  }

  #long() {
    const times = this.data[0];
    return times.at(-1) - times[0] > 2 * DAY_S;
  }

  #list() {
    if (!this.details.open || !this.data) return;
    const [times, ...lines] = this.data;
    const rows = times.map((time, n) => h("tr", {}, h("th", { scope: "row" }, CLOCK().format(time * 1000)), lines.map((line) => h("td", { class: "number" }, line[n] === null ? "–" : this.text(line[n])))));
    const heads = ["Time", ...this.series.map((each) => each.label)].map((name) => h("th", { scope: "col" }, name));
    fill(this.figures, h("div", { class: "scroll figures", tabindex: "0", role: "region", "aria-label": `Data of ${this.title}` },
      h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows.reverse()))));
  }
}

// Values between two gaps: they get a point, because no line leads to them.
function alone(line) {
  const missing = (n) => (line[n] ?? null) === null;
  return line.flatMap((figure, n) => (figure !== null && missing(n - 1) && missing(n + 1) ? [n] : []));
}

// The current colour of a token of style.css, light or dark.
function colour(token) {
  const probe = h("span", { style: { color: `var(${token})` } });
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function faint(rgb) {
  return rgb.replace("rgb(", "rgba(").replace(")", ", 0.12)");
}
