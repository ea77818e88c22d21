// Where each box goes for the current zoom, widths and direction, and how it is drawn there.

function inZoom(picture, box) {
  const zoom = picture.state.zoom;
  for (let i = box.index; i >= 0; i = picture.boxes[i].parent) if (i === zoom) return true;
  return zoom < 0;
}

// The frames between the root and the box that was zoomed into.
function aboveZoom(picture) {
  const above = new Set(), zoom = picture.state.zoom;
  for (let i = zoom; i >= 0; i = picture.boxes[i].parent) if (i !== zoom) above.add(i);
  return above;
}

function stacksEndIn(box) { return box.ends && box.children.length && !box.fold && !box.more; }

function setWidths(picture, full) {
  const boxes = picture.boxes, state = picture.state;
  const shown = boxes.filter(function (box) { return inZoom(picture, box); });
  const leaves = shown.filter(function (box) { return !box.children.length; });
  const gaps = shown.filter(stacksEndIn).length;
  const [widths, gap] = leafWidths(leaves, gaps, full, picture.facts.present, state.linear);
  for (const box of boxes) { box.w = 0; box.visible = false; }
  for (let i = shown.length - 1; i >= 0; i--) {
    const box = shown[i];
    if (!box.children.length) box.w = widths.get(box);
    else if (stacksEndIn(box)) box.w += gap;
    if (box.index !== state.zoom && box.parent >= 0) boxes[box.parent].w += box.w;
    box.visible = true;
  }
}

function setPositions(picture, full) {
  const boxes = picture.boxes, zoom = picture.state.zoom;
  const above = aboveZoom(picture), cursor = new Map();
  picture.bodyHeight = 0;
  for (const box of boxes) {
    box.up = above.has(box.index);
    if (box.up) { box.visible = true; box.w = full; }
    if (!box.visible) continue;
    const parent = box.parent >= 0 ? boxes[box.parent] : null;
    box.x = box.up || box.index === zoom ? 0 : cursor.get(box.parent) || 0;
    box.y = parent ? parent.y + parent.h : 0;
    box.h = box.hidden ? 0 : box.fold ? FOLD_ROW : ROW;
    cursor.set(box.parent, box.x + box.w);
    cursor.set(box.index, box.x);
    picture.bodyHeight = Math.max(picture.bodyHeight, box.y + box.h);
  }
}

function place(picture) {
  const full = picture.width - 2 * MARGIN, svg = picture.svg;
  setWidths(picture, full);
  setPositions(picture, full);
  for (const box of picture.boxes) draw(picture, box);
  const height = Math.ceil(picture.top + Math.max(60, picture.bodyHeight) + FOOT);
  svg.setAttribute("viewBox", "0 0 " + picture.width + " " + height);
  svg.setAttribute("width", picture.width);
  svg.setAttribute("height", height);
  picture.body.setAttribute("transform", "translate(" + MARGIN + " " + picture.top + ")");
  keepHeadInSight(picture);
}

function draw(picture, box) {
  const g = box.g, isShown = box.visible && !box.hidden;
  g.style.display = isShown ? "" : "none";
  if (!isShown) return;
  const y = picture.state.flip ? picture.bodyHeight - box.y - box.h : box.y;
  g.setAttribute("transform", "translate(" + box.x.toFixed(2) + " " + y + ")");
  g.classList.toggle("rk-up", Boolean(box.up));
  box.rect.setAttribute("width", Math.max(0.5, box.w - 1).toFixed(2));
  box.rect.setAttribute("height", Math.max(0, box.h - 1));
  write(box);
}

function write(box) {
  const g = box.g, [title, source, ranks] = fit(box, box.w), baseline = box.fold ? 11 : 14.5;
  for (const text of Array.from(g.querySelectorAll("text"))) text.remove();
  if (title) {
    const text = make(SVG, "text", { x: PAD, y: baseline });
    text.textContent = title;
    if (source) {
      const tail = make(SVG, "tspan", { class: "rk-src", dx: 8 });
      tail.textContent = source;
      text.append(tail);
    }
    g.append(text);
  }
  if (ranks) {
    const mark = make(SVG, "text", { class: "rk-mark", x: (box.w - 1 - PAD).toFixed(2), y: baseline });
    mark.textContent = ranks;
    g.append(mark);
  }
}

// The heading stays in sight while the stacks scroll below it.
function keepHeadInSight(picture) {
  const room = Math.max(0, Number(picture.svg.getAttribute("height")) - picture.top - 80);
  const above = picture.standalone ? window.scrollY : -picture.svg.getBoundingClientRect().top;
  picture.head.setAttribute("transform", "translate(0 " + Math.min(room, Math.max(0, Math.round(above))) + ")");
}
