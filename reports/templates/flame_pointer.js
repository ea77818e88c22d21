// What a click and the pointer do: zoom, unfold, choose a colour of the legend, describe a box.

function zoom(picture, index) {
  const box = picture.boxes[index];
  if (index >= 0 && box.fold) {
    toggleFold(picture.boxes, box);
  } else {
    picture.state.zoom = index === picture.state.zoom ? -1 : index;
  }
  picture.tools.reset.disabled = picture.state.zoom < 0;
  place(picture);
  describe(picture, -1);
  saveAddress(picture);
}

function toggleFold(boxes, fold) {
  let i = fold.children[0];
  while (i !== undefined && boxes[i].inner) {
    boxes[i].hidden = !boxes[i].hidden;
    i = boxes[i].children.find(function (child) { return boxes[child].inner; });
  }
}

function listenToPointer(picture) {
  const svg = picture.svg, state = picture.state;
  const indexUnder = function (event) {
    const g = event.target.closest(".rk-box");
    return g ? picture.boxes.findIndex(function (box) { return box.g === g; }) : -1;
  };
  svg.addEventListener("click", function (event) {
    const key = event.target.closest(".rk-key");
    if (event.target.closest(".rk-box")) zoom(picture, indexUnder(event));
    if (key) {
      const name = key.getAttribute("data-family");
      state.family = state.family === name ? "" : name;
      mark(picture);
    }
  });
  svg.addEventListener("mouseover", function (event) {
    const index = indexUnder(event);
    if (index !== picture.hover) { picture.hover = index; describe(picture, index); }
  });
  svg.addEventListener("mouseleave", function () { picture.hover = -1; describe(picture, -1); });
}
