// What the page adds for those whose browser runs it: sorting, filtering, arm toggles, values under the pointer.
// Everything is there without it.
(() => {
  "use strict";
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };

  // Tables: each head is a button; it sorts down, up, and back to the study's order. What has no value stands last.
  const value = (row, column) => {
    const cell = row.cells[column];
    const text = (cell.dataset.v ?? cell.textContent.trim()).replaceAll("\u2212", "-").replaceAll("\u202f", "");
    const number = /^[-+]?\d+(\.\d+)?(e[-+]?\d+)?(?=$| ?[[(])/.exec(text); // perhaps with an interval behind it
    return text === "" || text === "–" ? null : number ? Number(number[0]) : text.toLowerCase();
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  const sort = (table, column, order) => {
    const rows = all("tbody tr", table);
    const sign = order === "descending" ? -1 : 1;
    rows.sort((a, b) => {
      if (order === "none") return a.dataset.place - b.dataset.place;
      const [x, y] = [value(a, column), value(b, column)];
      if (x === null || y === null) return (x === null) - (y === null) || a.dataset.place - b.dataset.place;
      return sign * compare(x, y) || a.dataset.place - b.dataset.place;
    });
    table.tBodies[0].append(...rows);
    all("thead th", table).forEach((head, index) => head.setAttribute("aria-sort", index === column ? order : "none"));
  };
  for (const table of all("table.sortable")) {
    all("tbody tr", table).forEach((row, place) => (row.dataset.place = place));
    all("thead th", table).forEach((head, column) => {
      const button = make("button", { type: "button", title: "sort by this column" }, ...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      const turns = head.dataset.first === "descending" ? ["descending", "ascending"] : ["ascending", "descending"];
      button.addEventListener("click", () => {
        const now = turns.indexOf(head.getAttribute("aria-sort"));
        sort(table, column, [...turns, "none"][now + 1]);
      });
    });
  }

  // The filter leaves the rows of arms whose name or overrides hold every word.
  const field = document.getElementById("filter");
  if (field) {
    const rows = all("tr[data-words]");
    const names = (some) => new Set(some.map((row) => row.dataset.arm)).size;
    const apply = () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      const left = rows.filter((row) => {
        const out = !words.every((word) => row.dataset.words.toLowerCase().includes(word));
        row.classList.toggle("out", out);
        return !out;
      });
      document.getElementById("left").textContent = words.length ? `${names(left)} of ${names(rows)} arms` : "";
    };
    field.addEventListener("input", apply);
    field.closest("[hidden]").hidden = false;
    apply();
  }

  // Arms: one set of switches for all figures. The rules live in a style sheet of their own, for the screen alone.
  const off = new Set();
  const rules = document.head.appendChild(make("style"));
  const switches = new Map();
  const show = () => {
    const hidden = [...off].map((key) => `figure .${key}{display:none}figure [id$=legend_1] .${key}{display:inline;opacity:.3}`);
    rules.textContent = `@media screen{${hidden.join("")}}`;
    for (const [key, button] of switches) button.setAttribute("aria-pressed", String(!off.has(key)));
  };
  const toggle = (key) => {
    if (!off.delete(key)) off.add(key);
    show();
  };
  for (const legend of all(".legend")) {
    for (const name of all("[data-key]", legend)) {
      const button = make("button", { type: "button", class: "key", "data-key": name.dataset.key }, ...name.childNodes);
      button.addEventListener("click", () => toggle(button.dataset.key));
      switches.set(button.dataset.key, button);
      name.replaceWith(button);
    }
    for (const [text, act] of [["show all", () => off.clear()], ["hide all", () => [...switches.keys()].forEach((key) => off.add(key))]]) {
      const button = make("button", { type: "button", class: "key plain" }, text);
      button.addEventListener("click", () => (act(), show()));
      legend.append(button);
    }
  }
  for (const entry of all("figure [id$=legend_1] g[class^=arm]")) {
    if (!switches.has(entry.getAttribute("class"))) continue;
    entry.style.cursor = "pointer";
    entry.addEventListener("click", () => toggle(entry.getAttribute("class")));
  }
  if (switches.size) show();

  // Values: what stands at the nearest place, in the words of the table; with a pointer, a finger or the arrow keys.
  const said = JSON.parse(document.getElementById("said")?.textContent ?? "{}");
  const tip = document.body.appendChild(make("div", { id: "tip", role: "status", hidden: "" }));
  const SVG = "http://www.w3.org/2000/svg";
  const along = (v, [low, high], log, from, to) => {
    const f = log ? Math.log : (x) => x;
    return from + ((to - from) * (f(v) - f(low))) / (f(high) - f(low));
  };
  const points = (figure) =>
    figure.marks.flatMap((marks) => {
      const panel = figure.panels[marks.panel];
      const [left, top, right, bottom] = panel.box;
      return marks.x.map((x, i) => ({
        marks, x, panel: marks.panel, text: marks.text[i], at: marks.at?.[i],
        left: along(x, panel.x, panel.log[0], left, right), top: along(marks.y[i], panel.y, panel.log[1], bottom, top),
      }));
    });
  const describe = (figure, chosen) => {
    const { at, x } = chosen[0];
    const title = at !== undefined ? `${figure.name} ${at}` : figure.by === "x" ? `${figure.name} ${x}` : "";
    const lines = chosen.map((point) => {
      const swatch = !point.marks.bare && switches.get(point.marks.key)?.querySelector("svg")?.cloneNode(true);
      return make("div", {}, ...(swatch ? [swatch] : []), make("b", {}, point.marks.arm), make("span", {}, point.text));
    });
    tip.replaceChildren(...(title ? [make("i", {}, title)] : []), ...lines);
  };
  const hide = () => {
    tip.hidden = true;
    all("svg .cursor").forEach((cursor) => cursor.remove());
  };
  const mark = (svg, figure, chosen) => {
    all("svg .cursor").forEach((cursor) => cursor.remove());
    const group = document.createElementNS(SVG, "g");
    group.setAttribute("class", "cursor");
    const [, top, , bottom] = figure.panels[chosen[0].panel].box;
    const draw = (tag, attributes) => {
      const shape = group.appendChild(document.createElementNS(SVG, tag));
      for (const [name, v] of Object.entries(attributes)) shape.setAttribute(name, v);
    };
    if (figure.by === "x") draw("line", { x1: chosen[0].left, x2: chosen[0].left, y1: top, y2: bottom });
    for (const { left, top: y } of chosen) if (y >= top - 1 && y <= bottom + 1) draw("circle", { cx: left, cy: y, r: 5 });
    svg.append(group);
  };
  const place = (svg, point, pointer) => {
    const there = pointer ?? new DOMPoint(point.left, point.top).matrixTransform(svg.getScreenCTM());
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const gap = 14;
    const x = there.x + gap + width > innerWidth - 4 ? there.x - gap - width : there.x + gap;
    tip.style.left = `${Math.max(4, x)}px`;
    tip.style.top = `${Math.max(4, Math.min(there.y + gap, innerHeight - height - 4))}px`;
  };
  for (const [name, figure] of Object.entries(said)) {
    const svg = document.querySelector(`figure[data-figure="${name}"] svg`);
    const known = points(figure);
    let current = null;
    const tell = (nearest, pointer) => {
      current = nearest;
      const seen = known.filter((point) => !off.has(point.marks.key));
      const together = seen.filter((point) => point.panel === nearest.panel && point.x === nearest.x);
      const chosen = figure.by === "x" ? together.sort((a, b) => a.top - b.top) : [nearest];
      mark(svg, figure, chosen);
      describe(figure, chosen);
      place(svg, nearest, pointer);
    };
    const point = (event) => {
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const inside = figure.panels.findIndex(({ box }) => at.x >= box[0] - 6 && at.x <= box[2] + 6 && at.y >= box[1] - 6 && at.y <= box[3] + 6);
      const seen = known.filter((one) => one.panel === inside && !off.has(one.marks.key));
      if (!seen.length) return hide();
      const far = (one) => Math.hypot(one.left - at.x, figure.by === "x" ? 0 : one.top - at.y);
      tell(seen.reduce((best, one) => (far(one) < far(best) ? one : best)), { x: event.clientX, y: event.clientY });
    };
    svg.tabIndex = 0;
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      const seen = known.filter((one) => !off.has(one.marks.key));
      const stops = figure.by === "point" ? seen : seen.filter((one, i) => seen.findIndex((other) => other.panel === one.panel && other.x === one.x) === i);
      stops.sort((a, b) => a.panel - b.panel || a.left - b.left || a.top - b.top);
      if (!stops.length) return;
      const here = current ? stops.findIndex((one) => one.panel === current.panel && one.x === current.x && (figure.by === "x" || one === current)) : -1;
      tell(stops[Math.max(0, Math.min(stops.length - 1, here < 0 ? 0 : here + step))]);
    });
  }
  document.addEventListener("pointerdown", (event) => event.target.closest("figure[data-figure] svg") || hide());
  addEventListener("scroll", () => tip.hidden || hide(), { passive: true });

  // Every figure as a file, in the colours of light pages, and what it shows as a table.
  const saved = JSON.parse(document.getElementById("saved").textContent);
  const drawing = (figure) => {
    const copy = figure.querySelector("svg").cloneNode(true);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    all(".cursor", copy).forEach((cursor) => cursor.remove());
    const text = new XMLSerializer().serializeToString(copy);
    return text.replace(/var\(--([a-z]+\d*)\)/g, (whole, name) => saved.colors[name] ?? whole);
  };
  const table = async (number) => {
    const bytes = Uint8Array.from(atob(saved.csv[number]), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).text();
  };
  for (const figure of all("figure[id]")) {
    const number = figure.id.replace("figure", "");
    const kinds = [["svg", "image/svg+xml", () => drawing(figure)], ["csv", "text/csv", () => table(number)]];
    const made = kinds.filter(([kind]) => (kind === "svg" ? figure.querySelector("svg") : saved.csv[number]));
    const links = made.map(([kind, type, text]) => {
      const link = make("a", { href: "", download: `${figure.dataset.name}.${kind}` }, kind.toUpperCase());
      link.addEventListener("click", async (event) => {
        if (link.getAttribute("href")) return;
        event.preventDefault();
        link.href = URL.createObjectURL(new Blob([await text()], { type }));
        link.click();
        URL.revokeObjectURL(link.href);
        link.setAttribute("href", "");
      });
      return link;
    });
    figure.append(make("div", { class: "save" }, ...links));
  }

  // On paper nothing is folded away.
  let folded = [];
  addEventListener("beforeprint", () => {
    hide();
    folded = all("details:not([open])");
    folded.forEach((one) => (one.open = true));
  });
  addEventListener("afterprint", () => folded.forEach((one) => (one.open = false)));
})();
