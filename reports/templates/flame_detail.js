// The line below the heading: the box under the pointer, else the path to the zoomed one, else a hint.
const SHORT_HINT = "Click a box to zoom, Esc to go back · / searches · r asks for a rank";
const HINT = SHORT_HINT + " · arrows walk · labels read func@path@stuck|leak";

function describe(picture, index) {
  const room = Math.max(40, Math.floor((picture.width - 2 * MARGIN) / 7.7));
  if (index < 0) return describeZoom(picture, room);
  picture.detail.classList.remove("rk-hint");
  const box = picture.boxes[index];
  const rest = box.label.slice(box.func.length);
  const ranks = rest.slice(rest.lastIndexOf("@")), source = rest.slice(0, rest.lastIndexOf("@"));
  const tail = middleCut(ranks, Math.max(20, Math.floor(room * 0.4)));
  const func = middleCut(box.func, Math.max(20, Math.floor(room * 0.5)));
  picture.detail.textContent = func + middleCut(source, Math.max(12, room - tail.length - func.length)) + tail;
}

function describeZoom(picture, room) {
  const path = [], boxes = picture.boxes;
  for (let i = picture.state.zoom; i >= 0; i = boxes[i].parent) if (!boxes[i].hidden) path.unshift(boxes[i].name);
  picture.detail.classList.toggle("rk-hint", !path.length);
  picture.detail.textContent = path.length ? middleCut("all › " + path.join(" › "), room) : isNarrow(picture) ? SHORT_HINT : HINT;
}
