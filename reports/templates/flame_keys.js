// The keyboard: arrows walk from box to box, Enter zooms, Escape goes back, / and r go to the fields.

function focusBox(picture, index) {
  const boxes = picture.boxes;
  if (picture.current >= 0) boxes[picture.current].g.classList.remove("rk-here");
  picture.current = index;
  if (index < 0) return;
  boxes[index].g.classList.add("rk-here");
  describe(picture, index);
  const spot = boxes[index].rect.getBoundingClientRect();
  if (spot.top < picture.top || spot.bottom > window.innerHeight) window.scrollBy(0, spot.top - window.innerHeight / 2);
}

function isSeen(box) { return box.visible && !box.hidden; }

// The boxes that stand side by side below one; hidden frames of a folded chain are passed through.
function seenChildren(boxes, parent) {
  let list = boxes.filter(function (box) { return box.parent === parent; });
  while (list.length === 1 && list[0].hidden) list = list[0].children.map(function (i) { return boxes[i]; });
  return list.filter(isSeen).map(function (box) { return box.index; });
}

function walk(picture, key) {
  const boxes = picture.boxes, zoomed = picture.state.zoom;
  if (picture.current < 0 || !isSeen(boxes[picture.current])) {
    focusBox(picture, zoomed >= 0 ? zoomed : (seenChildren(boxes, -1)[0] ?? -1));
    return;
  }
  let parent = boxes[picture.current].parent;
  while (parent >= 0 && boxes[parent].hidden) parent = boxes[parent].parent;
  const deeper = picture.state.flip ? "ArrowUp" : "ArrowDown";
  if (key === deeper) {
    const list = seenChildren(boxes, picture.current);
    if (list.length) focusBox(picture, list[0]);
  } else if (key === "ArrowUp" || key === "ArrowDown") {
    if (parent >= 0) focusBox(picture, parent);
  } else {
    const list = seenChildren(boxes, parent);
    const next = list[list.indexOf(picture.current) + (key === "ArrowRight" ? 1 : -1)];
    if (next !== undefined) focusBox(picture, next);
  }
}

function isOnScreen(picture) {
  const spot = picture.svg.getBoundingClientRect();
  return spot.width > 0 && spot.bottom > 0 && spot.top < window.innerHeight;
}

// Empties the field, leaves the field, or shows the whole picture: the first of these there is to do.
function goBack(picture, field) {
  const state = picture.state, tools = picture.tools;
  if (field && field.value) {
    field.value = "";
    field.dispatchEvent(new Event("input"));
  } else if (field) {
    field.blur();
  } else {
    state.search = state.lens = state.family = tools.search.value = tools.lens.value = "";
    focusBox(picture, -1);
    zoom(picture, -1);
    mark(picture);
  }
}

function onKey(picture, event) {
  if (event.defaultPrevented || !isOnScreen(picture)) return;
  const tools = picture.tools, key = event.key, control = event.ctrlKey || event.metaKey;
  const typing = /^(input|textarea|select)$/i.test(event.target.tagName || "");
  const field = event.target === tools.search || event.target === tools.lens ? event.target : null;
  if (key === "Escape" && (!typing || field)) goBack(picture, field);
  else if (typing) return;
  else if (key === "/" || (picture.standalone && control && key === "f")) tools.search.focus();
  else if (control || event.altKey) return;
  else if (key === "r") tools.lens.focus();
  else if (key === "Enter" && picture.current >= 0) { zoom(picture, picture.current); return; }
  else if (key.startsWith("Arrow") && (picture.standalone || picture.current >= 0)) walk(picture, key);
  else return;
  event.preventDefault();
}
