// Shows of the drawn curves the ones that are asked for, and the values beneath the pointer. Nothing is computed anew.
"use strict";
const curves = document.querySelector(".curves");
const LEFT = 86, RIGHT = 742, WIDTH = 760;
for (const part of document.querySelectorAll(".controls [hidden]")) part.hidden = false;

document.querySelector(".controls").addEventListener("change", (event) => {
  const input = event.target;
  if (input.id === "smooth") document.body.classList.toggle("is-smoothed", input.checked);
  if (input.name === "axis")
    for (const one of curves.querySelectorAll(".variant")) one.classList.toggle("is-shown", one.dataset.axis === input.value);
  if (input.dataset.run)
    for (const one of curves.querySelectorAll(".run-" + input.dataset.run)) one.style.display = input.checked ? "" : "none";
});

function pointsOf(line) {
  if (!line.kept) line.kept = Array.from(line.points, (point) => [point.x, point.y]);
  return line.kept;
}

function nearest(points, x) {
  let low = 0, high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle + 1; else high = middle;
  }
  return low > 0 && x - points[low - 1][0] < points[low][0] - x ? points[low - 1] : points[low];
}

function shown(value) {
  const size = Math.abs(value);
  if (size >= 1e5) return value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 4 });
  return size > 0 && size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

function placed(axis, x) {
  if (axis !== "time") return axis + " " + Math.round(x).toLocaleString("en");
  const minutes = Math.floor(x / 60);
  return minutes < 60 ? minutes + "m" + Math.round(x % 60) + "s" : Math.floor(minutes / 60) + "h" + (minutes % 60) + "m";
}

function point(variant, event) {
  const svg = variant.querySelector("svg"), box = svg.getBoundingClientRect();
  const x = (event.clientX - box.left) / box.width * WIDTH, frame = JSON.parse(variant.dataset.frame);
  leave(variant);
  if (x < LEFT || x > RIGHT) return;
  const kind = document.body.classList.contains("is-smoothed") ? ".smooth" : ".raw";
  const rows = [], seen = new Set();
  let at = null;
  for (const line of svg.querySelectorAll("polyline.curve" + kind)) {
    const name = line.querySelector("title").textContent;
    if (line.style.display === "none") continue;
    const found = nearest(pointsOf(line), x);
    if (seen.has(name) || Math.abs(found[0] - x) > 60) continue;
    seen.add(name);
    at = at === null || Math.abs(found[0] - x) < Math.abs(at - x) ? found[0] : at;
    let value = frame.y[0] + (frame.ground - found[1]) / (frame.ground - frame.top) * (frame.y[1] - frame.y[0]);
    if (frame.log) value = 10 ** value;
    rows.push([name, line.getAttribute("stroke"), value]);
  }
  if (at === null) return;
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
  for (const [key, value] of Object.entries({ class: "cursor", x1: at, x2: at, y1: frame.top, y2: frame.ground }))
    cursor.setAttribute(key, value);
  svg.append(cursor);
  const tip = document.createElement("div");
  tip.className = "tip";
  const head = document.createElement("div");
  head.textContent = placed(variant.dataset.axis, frame.x[0] + (at - LEFT) / (RIGHT - LEFT) * (frame.x[1] - frame.x[0]));
  tip.append(head);
  for (const [name, color, value] of rows) {
    const row = document.createElement("div"), number = document.createElement("b");
    row.style.color = color;
    number.textContent = shown(value);
    row.append(number, " " + name);
    tip.append(row);
  }
  variant.append(tip);
  const left = at / WIDTH * box.width;
  tip.style.left = (left + 12 + tip.offsetWidth > box.width ? Math.max(0, left - 12 - tip.offsetWidth) : left + 12) + "px";
}

function leave(variant) {
  for (const one of variant.querySelectorAll(".tip, .cursor")) one.remove();
}

for (const variant of document.querySelectorAll(".variant")) {
  variant.addEventListener("pointermove", (event) => point(variant, event));
  variant.addEventListener("pointerdown", (event) => point(variant, event));
  variant.addEventListener("pointerleave", () => leave(variant));
}
