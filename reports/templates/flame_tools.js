// The tools of the heading, made here so that a page without scripts shows no dead buttons.

function makeTools() {
  const tools = {
    said: make(HTML, "span", { class: "rk-said", role: "status" }),
    search: make(HTML, "input", { type: "search", placeholder: "Search (regex)", "aria-label": "Search frames", class: "rk-search", size: 18, spellcheck: "false" }),
    lens: make(HTML, "input", { type: "text", placeholder: "Rank, e.g. 0-3,7", "aria-label": "Show only these ranks", class: "rk-lens", size: 14, spellcheck: "false" }),
    linear: make(HTML, "button", { type: "button", class: "rk-linear", "aria-pressed": "false", title: "Width by number of ranks instead of by distinct stack" }),
    flip: make(HTML, "button", { type: "button", class: "rk-flip", "aria-pressed": "false", title: "Root at the bottom, as in a flame graph" }),
    reset: make(HTML, "button", { type: "button", class: "rk-reset", title: "Show everything (Esc)" })
  };
  tools.linear.textContent = "Width by ranks";
  tools.flip.textContent = "Root at bottom";
  tools.reset.textContent = "Reset zoom";
  tools.reset.disabled = true;
  return tools;
}

function addTools(picture) {
  const tools = makeTools();
  const shell = make(SVG, "foreignObject", { height: 36, class: "rk-tools" });
  const bar = make(HTML, "div", { class: "rk-bar" });
  for (const key in tools) bar.append(tools[key]);
  shell.append(bar);
  picture.head.append(shell);
  picture.tools = tools;
  picture.toolShell = shell;
  picture.toolBar = bar;
}

function listenToTools(picture) {
  const tools = picture.tools, state = picture.state;
  for (const name of ["search", "lens"]) {
    tools[name].addEventListener("input", function () {
      state[name] = tools[name].value;
      mark(picture);
      saveAddress(picture);
    });
  }
  tools.reset.addEventListener("click", function () { zoom(picture, -1); });
  for (const name of ["linear", "flip"]) {
    tools[name].addEventListener("click", function () {
      state[name] = !state[name];
      tools[name].setAttribute("aria-pressed", state[name]);
      place(picture);
      saveAddress(picture);
    });
  }
}
