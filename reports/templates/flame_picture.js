// One stack picture as the script knows it: its elements, its boxes, and what the reader has chosen.
// Names from the dump files reach the page through textContent only.
const SVG = "http://www.w3.org/2000/svg", HTML = "http://www.w3.org/1999/xhtml";
const MARGIN = 16, ROW = 21, FOLD_ROW = 15, FOOT = 24;
// Below these widths (pixels) the tools go below the title, and parts of the heading are left out.
// TOOLS is what they take beside it, with what the search has found.
const NARROW = 1180, TOOLS = 800, SUMMARY_FROM = 1350, SCALE_FROM = 980, WIDTH_MIN = 480;

function make(space, name, attributes) {
  const node = document.createElementNS(space, name);
  for (const key in attributes || {}) node.setAttribute(key, attributes[key]);
  return node;
}

function readBox(g, index) {
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
}

function readBoxes(body) {
  const boxes = Array.from(body.children).map(readBox);
  for (const box of boxes) if (box.parent >= 0) boxes[box.parent].children.push(box.index);
  return boxes;
}

function readPicture(svg) {
  const body = svg.querySelector(".rk-body"), head = svg.querySelector(".rk-head");
  const cover = svg.querySelector(".rk-cover");
  const facts = JSON.parse(svg.querySelector(".rk-facts").textContent);
  const shifted = Array.from(head.children).filter(function (node) { return node !== cover; });
  const firstTop = Number(/ ([\d.]+)\)/.exec(body.getAttribute("transform"))[1]);
  return {
    svg: svg, body: body, head: head, cover: cover, detail: svg.querySelector(".rk-detail"),
    standalone: document.documentElement === svg,
    facts: facts, boxes: readBoxes(body),
    setSpans: facts.sets.map(function (text) { return text.startsWith("~") ? null : parseRanks(text) || []; }),
    absent: facts.absent ? parseRanks(facts.absent) : [],
    shifted: shifted,
    baseTransforms: shifted.map(function (node) { return node.getAttribute("transform") || ""; }),
    firstTop: firstTop, top: firstTop, width: 0, bodyHeight: 0,
    current: -1, hover: -1,
    state: { zoom: -1, search: "", lens: "", linear: false, flip: false, family: "" }
  };
}

function isNarrow(picture) {
  const title = picture.head.querySelector(".rk-h1").getBBox();
  return picture.width < Math.max(NARROW, title.x + title.width + TOOLS);
}
