// Charts as SVG. Colours come from the stylesheet, numbers from the API.
import { bytes, el } from "./dom.js";

const SVG = "http" + ":" + "//www.w3.org/2000/svg";

function draw(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// What could be deleted as a line, what was deleted as bars, on one scale. As wide as it is shown, so that its words
// are as large as the others; see `room`.
export function trend({ days, width }) {
  if (days.length < 2) return el("p", { class: "quiet" }, "A trend needs plans of two days.");
  const height = 180, edge = 66, bottom = 22, top = 8;
  const most = Math.max(1, ...days.map((day) => Math.max(day.waste_bytes, day.freed_bytes)));
  const thick = Math.max(2, Math.min(12, ((width - edge) / days.length) * 0.6));
  const left = edge + thick / 2, right = width - thick / 2;
  const floor = height - bottom, step = (right - left) / (days.length - 1);
  const x = (index) => left + index * step, y = (value) => top + (floor - top) * (1 - value / most);
  const line = days.map((day, index) => `${x(index).toFixed(1)},${y(day.waste_bytes).toFixed(1)}`).join(" ");
  const last = days[days.length - 1];
  const picture = draw("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `From ${days[0].date} to ${last.date}: ${bytes(days[0].waste_bytes)} deletable at first, ${bytes(last.waste_bytes)} now`,
  });
  for (const value of [0, most / 2, most]) {
    picture.append(
      draw("line", { class: "axis", x1: edge, x2: width, y1: y(value), y2: y(value) }),
      draw("text", { x: edge - 6, y: y(value) + 4, "text-anchor": "end" }, bytes(Math.round(value))),
    );
  }
  picture.append(draw("polygon", { class: "area", points: `${left},${floor} ${line} ${x(days.length - 1)},${floor}` }));
  days.forEach((day, index) => {
    if (!day.freed_bytes) return;
    picture.append(draw("rect", {
      class: "freed", x: x(index) - thick / 2, y: y(day.freed_bytes), width: thick, height: floor - y(day.freed_bytes),
    }, draw("title", {}, `${day.date}: ${bytes(day.freed_bytes)} freed`)));
  });
  picture.append(
    draw("polyline", { class: "line", points: line }),
    draw("text", { x: edge, y: height - 6 }, days[0].date),
    draw("text", { x: width, y: height - 6, "text-anchor": "end" }, last.date),
  );
  const legend = [["waste", "could be deleted"], ["freed", "freed that day"]];
  return el("figure", {}, picture, el("figcaption", { class: "quiet legend" },
    ...legend.map(([kind, words]) => el("span", {}, el("span", { class: `key ${kind}` }), words))));
}

// Pixels that a chart in this element has, in steps: a scroll bar that comes must not draw it anew.
export const room = (element) => Math.max(240, Math.min(1200, Math.floor((element.clientWidth || 600) / 20) * 20));

// How much of everything is what.
export function stacked(figures, label) {
  const parts = ["live", "young", "reserved", "foreign", "expired", "orphan"];
  const total = parts.reduce((sum, part) => sum + figures[part], 0);
  const picture = draw("svg", { viewBox: "0 0 600 20", role: "img", "aria-label": label, preserveAspectRatio: "none", class: "stack" });
  let start = 0;
  for (const part of parts) {
    if (!figures[part]) continue;
    const width = Math.max(1.5, (figures[part] / total) * 600);
    picture.append(draw("rect", { class: part, x: start, y: 0, width, height: 20 }, draw("title", {}, `${part} ${bytes(figures[part])}`)));
    start += width;
  }
  const legend = parts.filter((part) => figures[part]).map((part) =>
    el("span", {}, el("span", { class: `key ${part}` }), `${part} ${bytes(figures[part])} `));
  return el("figure", {}, picture, el("figcaption", { class: "quiet legend" }, ...legend));
}
