// Search, rank lens and legend: what is lit, and the words for how much it is.

function mark(picture) {
  const state = picture.state;
  const search = searcher(state.search), wanted = state.lens.trim() ? parseRanks(state.lens) : null;
  const lit = wanted && picture.setSpans.map(function (set) { return set === null || meets(set, wanted); });
  const counts = { matches: 0, lit: 0, uncertain: 0 };
  for (const box of picture.boxes) markBox(picture, box, search, lit, counts);
  markFoldsOfMatches(picture.boxes);
  const lens = lensWords(picture, wanted, counts), words = [];
  if (search) {
    words.push(counts.matches + (counts.matches === 1 ? " match" : " matches") + (search.bad ? " (plain text)" : ""));
  }
  if (lens.text) words.push(lens.text);
  showWords(picture, words.join(" · "), lens.isBad, Boolean(search && search.bad));
}

function markBox(picture, box, search, lit, counts) {
  const family = picture.state.family;
  const text = box.more ? box.g.querySelector("title").textContent : box.label;
  const isLit = !lit || lit[box.set];
  // A folded chain is no frame: the frames in it are searched and counted themselves.
  box.isMatch = Boolean(search) && !box.fold && search.test(text);
  if (box.isMatch) counts.matches += 1;
  if (lit && isLit && !box.fold) {
    counts.lit += 1;
    if (picture.setSpans[box.set] === null) counts.uncertain += 1;
  }
  box.g.classList.toggle("rk-dim", !isLit || Boolean(family && box.family !== family));
  box.g.classList.toggle("rk-found", box.isMatch);
}

// A folded chain is found if any frame in it is.
function markFoldsOfMatches(boxes) {
  for (const box of boxes) {
    if (!box.isMatch || !box.hidden) continue;
    let i = box.parent;
    while (i >= 0 && !boxes[i].fold) i = boxes[i].parent;
    if (i >= 0) boxes[i].g.classList.add("rk-found");
  }
}

function lensWords(picture, wanted, counts) {
  const typed = picture.state.lens.trim();
  if (!typed) return { text: "", isBad: false };
  if (!wanted) return { text: "no rank list", isBad: true };
  if (meets(picture.absent, wanted)) return { text: "absent: no dump", isBad: true };
  if (!counts.lit) return { text: "no such rank of " + picture.facts.world.toLocaleString("en"), isBad: true };
  const frames = counts.lit + (counts.lit === 1 ? " frame" : " frames");
  const uncertain = counts.uncertain ? ", " + counts.uncertain + " uncertain" : "";
  return { text: (/[-,]/.test(typed) ? "ranks " : "rank ") + typed + ": " + frames + uncertain, isBad: false };
}

function showWords(picture, text, isLensBad, isSearchBad) {
  const tools = picture.tools, family = picture.state.family;
  tools.said.textContent = text;
  tools.said.classList.toggle("rk-bad", isLensBad);
  tools.lens.classList.toggle("rk-bad", isLensBad);
  tools.search.classList.toggle("rk-bad", isSearchBad);
  for (const key of picture.svg.querySelectorAll(".rk-key")) {
    key.style.opacity = !family || key.getAttribute("data-family") === family ? "" : "0.35";
  }
}
