// Cuts names to the width of a box: the same rules as markup.py and flame_text.py.
const PAD = 6, CHAR = 7.3, SMALL = 6.7;

function cells(text) {
  let width = 0;
  for (const char of text) {
    const code = char.codePointAt(0);
    width += code < 0x530 || (code >= 0x2000 && code < 0x2c00) ? 1 : 2;
  }
  return width;
}

function cppTail(text, columns) {
  const all = Array.from(text);
  let start = all.length, width = 0;
  while (start > 0 && width + cells(all[start - 1]) <= columns) width += cells(all[--start]);
  const tail = all.slice(start).join(""), part = tail.indexOf("::");
  return part >= 0 && cells(tail.slice(part)) * 2 >= columns ? tail.slice(part) : tail;
}

function endCut(text, columns) {
  if (cells(text) <= columns) return text;
  if (text.includes("::")) return columns > 1 ? "…" + cppTail(text, columns - 1) : "";
  let kept = "", width = 0;
  for (const char of text) {
    width += cells(char);
    if (width > columns - 1) break;
    kept += char;
  }
  return kept ? kept + "…" : "";
}

function middleCut(text, limit) {
  const all = Array.from(text);
  if (all.length <= limit) return text;
  const head = Math.ceil((limit - 1) / 2);
  return all.slice(0, head).join("") + "…" + all.slice(all.length - (limit - 1 - head)).join("");
}

// The same rules as fit() in flame_text.py.
function fit(box, width) {
  const room = width - 1 - 2 * PAD;
  const need = Math.max(1, cells(box.name)), short = box.shortMark;
  for (const [ranks, least] of [[box.mark, need], [short, need], [box.mark, 10], [short, 10]]) {
    const columns = Math.floor((room - ranks.length * SMALL - 10) / CHAR);
    if (columns < least) continue;
    const title = endCut(box.name, columns);
    const left = Math.floor((room - ranks.length * SMALL - 18 - cells(title) * CHAR) / SMALL);
    return [title, title === box.name && cells(box.extra) <= left ? box.extra : "", ranks];
  }
  const all = Math.floor(room / CHAR);
  return [all >= Math.min(4, need) ? endCut(box.name, all) : "", "", ""];
}
