// Life for relkit's stack pictures: zoom, search, rank lens, widths, direction, keyboard.
// All flame_*.js files are put before this one, in one function of the picture's own script.

function resize(picture) {
  const svg = picture.svg;
  const outer = picture.standalone ? document.documentElement.clientWidth || window.innerWidth : (svg.parentElement || svg).clientWidth;
  if (!outer || outer === picture.width) return;
  picture.width = Math.max(WIDTH_MIN, outer);
  placeHead(picture, isNarrow(picture));
  place(picture);
  describe(picture, -1);
}

function placeHead(picture, narrow) {
  const width = picture.width, svg = picture.svg, shell = picture.toolShell;
  const room = narrow ? width - 2 * MARGIN : 900;
  shell.setAttribute("width", room);
  shell.setAttribute("x", width - MARGIN - room);
  shell.setAttribute("y", narrow ? 62 : 10);
  picture.toolBar.style.justifyContent = narrow ? "flex-start" : "flex-end";
  picture.tools.said.style.order = narrow ? 9 : 0;
  const extra = narrow ? 40 : 0;
  picture.shifted.forEach(function (node, i) {
    const moved = extra && !/rk-h[12]/.test(node.getAttribute("class") || "");
    node.setAttribute("transform", (moved ? "translate(0 " + extra + ") " : "") + picture.baseTransforms[i]);
  });
  picture.top = picture.firstTop + extra;
  picture.cover.setAttribute("height", picture.top - 4);
  const sum = svg.querySelector(".rk-sum");
  sum.setAttribute("x", width - MARGIN);
  sum.style.display = width < SUMMARY_FROM ? "none" : "";
  svg.querySelector(".rk-scale").style.display = width < SCALE_FROM ? "none" : "";
  for (const band of svg.querySelectorAll(".rk-absent > rect")) band.setAttribute("width", width - 2 * MARGIN);
}

function listenToWindow(picture) {
  window.addEventListener("keydown", function (event) { onKey(picture, event); });
  window.addEventListener("scroll", function () { keepHeadInSight(picture); }, { passive: true });
  window.addEventListener("resize", function () { resize(picture); });
  if (picture.standalone) {
    window.addEventListener("hashchange", function () {
      loadAddress(picture);
      place(picture);
      mark(picture);
      describe(picture, -1);
    });
  } else if (window.ResizeObserver && picture.svg.parentElement) {
    new ResizeObserver(function () { resize(picture); }).observe(picture.svg.parentElement);
  }
}

// On a page the picture's own title would only be a tooltip over its empty parts.
function titleToLabel(svg) {
  const title = svg.querySelector("title");
  svg.setAttribute("aria-label", title.textContent);
  title.remove();
}

function start(svg) {
  const picture = readPicture(svg);
  addTools(picture);
  listenToTools(picture);
  listenToPointer(picture);
  if (!picture.standalone) titleToLabel(svg);
  loadAddress(picture);
  resize(picture);
  mark(picture);
  describe(picture, -1);
  listenToWindow(picture);
  svg.setAttribute("data-ready", "1");
}

for (const svg of document.querySelectorAll("svg.rk-flame:not([data-ready])")) start(svg);
