// Life for relkit's stack pictures: zoom, search, rank lens, widths, direction, keyboard.
// Names from the dump files reach the page through textContent only.
const SVG = "http://www.w3.org/2000/svg", HTML = "http://www.w3.org/1999/xhtml";
const MARGIN = 16, ROW = 21, FOLD_ROW = 15, FOOT = 24;

function make(space, name, attributes) {
  const node = document.createElementNS(space, name);
  for (const key in attributes || {}) node.setAttribute(key, attributes[key]);
  return node;
}

function start(svg) {
  const standalone = document.documentElement === svg;
  const body = svg.querySelector(".rk-body"), head = svg.querySelector(".rk-head");
  const detail = svg.querySelector(".rk-detail"), cover = svg.querySelector(".rk-cover");
  const facts = JSON.parse(svg.querySelector(".rk-facts").textContent);
  const present = facts.present;
  const state = { zoom: -1, search: "", lens: "", linear: false, flip: false, family: "" };
  const firstTop = Number(/ ([\d.]+)\)/.exec(body.getAttribute("transform"))[1]);
  const shift = Array.from(head.children).filter(function (node) { return node !== cover; });
  const baseTransforms = shift.map(function (node) { return node.getAttribute("transform") || ""; });
  let width = 0, top = firstTop, bodyHeight = 0, current = -1, hover = -1, narrow = false;

  const boxes = Array.from(body.children).map(function (g, index) {
    const get = function (key) { return g.getAttribute("data-" + key); };
    const label = get("label"), func = label.slice(0, Number(get("c")));
    const kind = g.classList;
    return {
      g: g, index: index, rect: g.querySelector("rect"), label: label, func: func,
      name: get("t") === null ? func : get("t"), extra: get("x") || "", mark: get("b") || "all", shortMark: get("q") || "all",
      parent: Number(get("p")), count: Number(get("n")), set: Number(get("s")), ends: get("e") === "1",
      fold: kind.contains("rk-fold"), more: kind.contains("rk-more"), gone: kind.contains("rk-gone"), inner: kind.contains("rk-inner"),
      hidden: kind.contains("rk-inner"), children: [], x: 0, y: 0, w: 0, h: 0, visible: false,
      family: /rk-(python|torch|cpp|state|system|role)/.exec(g.getAttribute("class"))[1]
    };
  });
  for (const box of boxes) if (box.parent >= 0) boxes[box.parent].children.push(box.index);

  function inZoom(box) {
    for (let i = box.index; i >= 0; i = boxes[i].parent) if (i === state.zoom) return true;
    return state.zoom < 0;
  }

  function place() {
    const full = width - 2 * MARGIN;
    const up = new Set();
    for (let i = state.zoom; i >= 0; i = boxes[i].parent) if (i !== state.zoom) up.add(i);
    const shown = boxes.filter(inZoom);
    const leaves = shown.filter(function (b) { return !b.children.length; });
    const endsHere = function (b) { return b.ends && b.children.length && !b.fold && !b.more; };
    const result = leafWidths(leaves, shown.filter(endsHere).length, full, present, state.linear);
    for (const box of boxes) { box.w = 0; box.visible = false; }
    for (let i = shown.length - 1; i >= 0; i--) {
      const box = shown[i];
      if (!box.children.length) box.w = result[0].get(box);
      else if (endsHere(box)) box.w += result[1];
      if (box.index !== state.zoom && box.parent >= 0) boxes[box.parent].w += box.w;
      box.visible = true;
    }
    const cursor = new Map();
    bodyHeight = 0;
    for (const box of boxes) {
      if (up.has(box.index)) { box.visible = true; box.w = full; }
      if (!box.visible) continue;
      const above = box.parent >= 0 ? boxes[box.parent] : null;
      box.x = up.has(box.index) || box.index === state.zoom ? 0 : cursor.get(box.parent) || 0;
      box.y = above ? above.y + above.h : 0;
      box.h = box.hidden ? 0 : box.fold ? FOLD_ROW : ROW;
      cursor.set(box.parent, box.x + box.w);
      cursor.set(box.index, box.x);
      bodyHeight = Math.max(bodyHeight, box.y + box.h);
      box.up = up.has(box.index);
    }
    boxes.forEach(draw);
    const height = Math.ceil(top + Math.max(60, bodyHeight) + FOOT);
    svg.setAttribute("viewBox", "0 0 " + width + " " + height);
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    body.setAttribute("transform", "translate(" + MARGIN + " " + top + ")");
    stick();
  }

  function draw(box) {
    const g = box.g, seen = box.visible && !box.hidden;
    g.style.display = seen ? "" : "none";
    if (!seen) return;
    const y = state.flip ? bodyHeight - box.y - box.h : box.y;
    g.setAttribute("transform", "translate(" + box.x.toFixed(2) + " " + y + ")");
    g.classList.toggle("rk-up", Boolean(box.up));
    box.rect.setAttribute("width", Math.max(0.5, box.w - 1).toFixed(2));
    box.rect.setAttribute("height", Math.max(0, box.h - 1));
    for (const text of Array.from(g.querySelectorAll("text"))) text.remove();
    const parts = fit(box, box.w), baseline = box.fold ? 11 : 14.5;
    if (parts[0]) {
      const text = make(SVG, "text", { x: PAD, y: baseline });
      text.textContent = parts[0];
      if (parts[1]) {
        const tail = make(SVG, "tspan", { class: "rk-src", dx: 8 });
        tail.textContent = parts[1];
        text.append(tail);
      }
      g.append(text);
    }
    if (parts[2]) {
      const mark = make(SVG, "text", { class: "rk-mark", x: (box.w - 1 - PAD).toFixed(2), y: baseline });
      mark.textContent = parts[2];
      g.append(mark);
    }
  }

  // Search, lens and legend: what is lit, and how much it is.
  const setSpans = facts.sets.map(function (text) {
    return text.startsWith("~") ? null : parseRanks(text) || [];
  });
  const absent = facts.absent ? parseRanks(facts.absent) : [];

  function mark() {
    const search = searcher(state.search), spans = state.lens.trim() ? parseRanks(state.lens) : null;
    const lit = spans && setSpans.map(function (set) { return set === null || meets(set, spans); });
    let found = 0, held = 0, maybe = 0;
    const foundIn = new Set();
    for (const box of boxes) {
      const real = !box.fold;
      const text = box.more ? box.g.querySelector("title").textContent : box.label;
      const hit = Boolean(search) && real && search.test(text);
      const inLens = !lit || lit[box.set], inFamily = !state.family || box.family === state.family;
      if (hit) { found += 1; foundIn.add(box.set); }
      if (lit && lit[box.set] && real) { held += 1; if (setSpans[box.set] === null) maybe += 1; }
      box.hit = hit;
      box.dim = !inLens || !inFamily;
      box.g.classList.toggle("rk-dim", box.dim);
      box.g.classList.toggle("rk-found", hit);
    }
    for (const box of boxes) {
      // A folded chain is found if any frame in it is.
      if (!box.hit || !box.hidden) continue;
      let i = box.parent;
      while (i >= 0 && !boxes[i].fold) i = boxes[i].parent;
      if (i >= 0) boxes[i].g.classList.add("rk-found");
    }
    const said = [];
    let bad = false;
    if (search) {
      said.push(found + (found === 1 ? " match" : " matches") + (search.bad ? " (plain text)" : ""));
    }
    if (state.lens.trim()) {
      if (!spans) { said.push("no rank list"); bad = true; }
      else if (meets(absent, spans)) { said.push("absent: no dump"); bad = true; }
      else if (!held) { said.push("no such rank of " + facts.world.toLocaleString("en")); bad = true; }
      else said.push((/[-,]/.test(state.lens) ? "ranks " : "rank ") + state.lens.trim() + ": " + held + (held === 1 ? " frame" : " frames") + (maybe ? ", " + maybe + " uncertain" : ""));
    }
    ui.said.textContent = said.join(" · ");
    ui.said.classList.toggle("rk-bad", bad);
    ui.lens.classList.toggle("rk-bad", bad);
    ui.search.classList.toggle("rk-bad", Boolean(search && search.bad));
    for (const key of svg.querySelectorAll(".rk-key")) {
      key.style.opacity = !state.family || key.getAttribute("data-family") === state.family ? "" : "0.35";
    }
  }

  const HINT = "Click a box to zoom, Esc to go back · / searches · r asks for a rank · arrows walk · labels read func@path@stuck|leak";

  const SHORT_HINT = "Click a box to zoom, Esc to go back · / searches · r asks for a rank";

  function small() { return width < 1180; }

  function describe(index) {
    const room = Math.max(40, Math.floor((width - 2 * MARGIN) / 7.7));
    if (index < 0) {
      const path = [];
      for (let i = state.zoom; i >= 0; i = boxes[i].parent) if (!boxes[i].hidden) path.unshift(boxes[i].name);
      detail.classList.toggle("rk-hint", !path.length);
      detail.textContent = path.length ? middleCut("all › " + path.join(" › "), room) : small() ? SHORT_HINT : HINT;
      return;
    }
    detail.classList.remove("rk-hint");
    const box = boxes[index];
    const rest = box.label.slice(box.func.length);
    const ranks = rest.slice(rest.lastIndexOf("@")), source = rest.slice(0, rest.lastIndexOf("@"));
    const tail = middleCut(ranks, Math.max(20, Math.floor(room * 0.4)));
    const func = middleCut(box.func, Math.max(20, Math.floor(room * 0.5)));
    detail.textContent = func + middleCut(source, Math.max(12, room - tail.length - func.length)) + tail;
  }

  function zoom(index) {
    const box = boxes[index];
    if (index >= 0 && box.fold) {
      let i = box.children[0];
      while (i !== undefined && boxes[i].inner) {
        boxes[i].hidden = !boxes[i].hidden;
        i = boxes[i].children.find(function (child) { return boxes[child].inner; });
      }
    } else {
      state.zoom = index === state.zoom ? -1 : index;
    }
    ui.reset.disabled = state.zoom < 0;
    place();
    describe(-1);
    save();
  }

  function focusBox(index) {
    if (current >= 0) boxes[current].g.classList.remove("rk-here");
    current = index;
    if (index < 0) return;
    boxes[index].g.classList.add("rk-here");
    describe(index);
    const spot = boxes[index].rect.getBoundingClientRect();
    if (spot.top < top || spot.bottom > window.innerHeight) window.scrollBy(0, spot.top - window.innerHeight / 2);
  }

  function walk(key) {
    const seen = function (i) { return boxes[i].visible && !boxes[i].hidden; };
    const family = function (parent) {
      let list = boxes.filter(function (b) { return b.parent === parent; });
      while (list.length === 1 && list[0].hidden) list = list[0].children.map(function (i) { return boxes[i]; });
      return list.map(function (b) { return b.index; }).filter(seen);
    };
    if (current < 0 || !seen(current)) { focusBox(state.zoom >= 0 ? state.zoom : (family(-1)[0] ?? -1)); return; }
    let parent = boxes[current].parent;
    while (parent >= 0 && boxes[parent].hidden) parent = boxes[parent].parent;
    const down = state.flip ? "ArrowUp" : "ArrowDown";
    if (key === down) { const list = family(current); if (list.length) focusBox(list[0]); return; }
    if (key === "ArrowUp" || key === "ArrowDown") { if (parent >= 0) focusBox(parent); return; }
    const list = family(parent), next = list[list.indexOf(current) + (key === "ArrowRight" ? 1 : -1)];
    if (next !== undefined) focusBox(next);
  }

  function save() {
    if (!standalone) return;
    const query = new URLSearchParams();
    if (state.zoom >= 0) query.set("zoom", state.zoom);
    if (state.search) query.set("search", state.search);
    if (state.lens) query.set("rank", state.lens);
    if (state.linear) query.set("width", "ranks");
    if (state.flip) query.set("root", "bottom");
    try { history.replaceState(null, "", "#" + query); } catch (error) { /* a sandboxed page has no history */ }
  }

  function load() {
    if (!standalone) return;
    const query = new URLSearchParams(location.hash.slice(1));
    const wanted = Number(query.get("zoom") ?? -1);
    state.zoom = Number.isInteger(wanted) && wanted < boxes.length ? Math.max(-1, wanted) : -1;
    state.search = query.get("search") || "";
    state.lens = query.get("rank") || "";
    state.linear = query.get("width") === "ranks";
    state.flip = query.get("root") === "bottom";
    ui.search.value = state.search;
    ui.lens.value = state.lens;
    ui.linear.setAttribute("aria-pressed", state.linear);
    ui.flip.setAttribute("aria-pressed", state.flip);
    ui.reset.disabled = state.zoom < 0;
  }

  // The tools, made here so that a page without scripts shows no dead buttons.
  const shell = make(SVG, "foreignObject", { height: 36, class: "rk-tools" });
  const bar = make(HTML, "div", { class: "rk-bar" });
  const ui = {
    said: make(HTML, "span", { class: "rk-said", role: "status" }),
    search: make(HTML, "input", { type: "search", placeholder: "Search (regex)", "aria-label": "Search frames", class: "rk-search", size: 18, spellcheck: "false" }),
    lens: make(HTML, "input", { type: "text", placeholder: "Rank, e.g. 0-3,7", "aria-label": "Show only these ranks", class: "rk-lens", size: 14, spellcheck: "false" }),
    linear: make(HTML, "button", { type: "button", class: "rk-linear", "aria-pressed": "false", title: "Width by number of ranks instead of by distinct stack" }),
    flip: make(HTML, "button", { type: "button", class: "rk-flip", "aria-pressed": "false", title: "Root at the bottom, as in a flame graph" }),
    reset: make(HTML, "button", { type: "button", class: "rk-reset", title: "Show everything (Esc)" })
  };
  ui.linear.textContent = "Width by ranks";
  ui.flip.textContent = "Root at bottom";
  ui.reset.textContent = "Reset zoom";
  ui.reset.disabled = true;
  for (const key in ui) bar.append(ui[key]);
  shell.append(bar);
  head.append(shell);

  ui.search.addEventListener("input", function () { state.search = ui.search.value; mark(); save(); });
  ui.lens.addEventListener("input", function () { state.lens = ui.lens.value; mark(); save(); });
  ui.reset.addEventListener("click", function () { zoom(-1); });
  for (const name of ["linear", "flip"]) {
    ui[name].addEventListener("click", function () {
      state[name] = !state[name];
      ui[name].setAttribute("aria-pressed", state[name]);
      place();
      save();
    });
  }
  svg.addEventListener("click", function (event) {
    const g = event.target.closest(".rk-box"), key = event.target.closest(".rk-key");
    if (g) zoom(boxes.findIndex(function (box) { return box.g === g; }));
    if (key) {
      const name = key.getAttribute("data-family");
      state.family = state.family === name ? "" : name;
      mark();
    }
  });
  svg.addEventListener("mouseover", function (event) {
    const g = event.target.closest(".rk-box");
    const index = g ? boxes.findIndex(function (box) { return box.g === g; }) : -1;
    if (index !== hover) { hover = index; describe(index); }
  });
  svg.addEventListener("mouseleave", function () { hover = -1; describe(-1); });

  function onScreen() {
    const spot = svg.getBoundingClientRect();
    return spot.width > 0 && spot.bottom > 0 && spot.top < window.innerHeight;
  }

  window.addEventListener("keydown", function (event) {
    if (event.defaultPrevented || !onScreen()) return;
    const typing = /^(input|textarea|select)$/i.test(event.target.tagName || "");
    const ours = event.target === ui.search || event.target === ui.lens;
    if (event.key === "Escape" && (!typing || ours)) {
      if (ours && event.target.value) {
        event.target.value = "";
        event.target.dispatchEvent(new Event("input"));
      } else if (ours) {
        event.target.blur();
      } else {
        state.search = state.lens = state.family = ui.search.value = ui.lens.value = "";
        focusBox(-1);
        zoom(-1);
        mark();
      }
      event.preventDefault();
      return;
    }
    if (typing) return;
    const find = event.key === "/" || (standalone && (event.ctrlKey || event.metaKey) && event.key === "f");
    if (find) { ui.search.focus(); event.preventDefault(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "r") { ui.lens.focus(); event.preventDefault(); }
    else if (event.key === "Enter" && current >= 0) zoom(current);
    else if (event.key.startsWith("Arrow") && (standalone || current >= 0)) { walk(event.key); event.preventDefault(); }
  });

  // The heading stays in sight while the stacks scroll below it.
  function stick() {
    const room = Math.max(0, Number(svg.getAttribute("height")) - top - 80);
    const above = standalone ? window.scrollY : -svg.getBoundingClientRect().top;
    head.setAttribute("transform", "translate(0 " + Math.min(room, Math.max(0, Math.round(above))) + ")");
  }

  function resize() {
    const outer = standalone ? document.documentElement.clientWidth || window.innerWidth : (svg.parentElement || svg).clientWidth;
    if (!outer || outer === width) return;
    width = Math.max(480, outer);
    const room = small() ? width - 2 * MARGIN : 900;
    shell.setAttribute("width", room);
    shell.setAttribute("x", width - MARGIN - room);
    shell.setAttribute("y", small() ? 62 : 10);
    bar.style.justifyContent = small() ? "flex-start" : "flex-end";
    ui.said.style.order = small() ? 9 : 0;
    const extra = small() ? 40 : 0;
    shift.forEach(function (node, i) {
      const moved = extra && !/rk-h[12]/.test(node.getAttribute("class") || "");
      const own = baseTransforms[i];
      node.setAttribute("transform", (moved ? "translate(0 " + extra + ") " : "") + own);
    });
    top = firstTop + extra;
    cover.setAttribute("height", top - 4);
    const sum = svg.querySelector(".rk-sum");
    sum.setAttribute("x", width - MARGIN);
    sum.style.display = width < 1350 ? "none" : "";
    svg.querySelector(".rk-scale").style.display = width < 980 ? "none" : "";
    for (const band of svg.querySelectorAll(".rk-absent > rect")) band.setAttribute("width", width - 2 * MARGIN);
    place();
    describe(-1);
  }

  if (!standalone) {
    // On a page the picture's own title would only be a tooltip over its empty parts.
    const title = svg.querySelector("title");
    svg.setAttribute("aria-label", title.textContent);
    title.remove();
  }
  load();
  resize();
  mark();
  describe(-1);
  window.addEventListener("scroll", stick, { passive: true });
  window.addEventListener("resize", resize);
  if (standalone) {
    window.addEventListener("hashchange", function () { load(); place(); mark(); describe(-1); });
  } else if (window.ResizeObserver && svg.parentElement) {
    new ResizeObserver(resize).observe(svg.parentElement);
  }
  svg.setAttribute("data-ready", "1");
}

for (const svg of document.querySelectorAll("svg.rk-flame:not([data-ready])")) start(svg);
