// What the two fields mean: a list of ranks, and a regular expression.

// "0-3,8-64:8" -> [[0, 3, 1], [8, 64, 8]]; null for what is no rank list.
function parseRanks(text) {
  const spans = [];
  for (const part of text.split(",")) {
    const match = /^\s*(\d{1,9})(?:\s*-\s*(\d{1,9})(?::(\d{1,9}))?)?\s*$/.exec(part);
    if (!match) return null;
    const low = Number(match[1]), high = match[2] === undefined ? low : Number(match[2]);
    if (low > high) return null;
    spans.push([low, high, Math.max(1, Number(match[3] || 1))]);
  }
  return spans;
}

// Whether a set of the table and the ranks that somebody typed have one in common.
function meets(set, wanted) {
  for (const [low, high, step] of set) {
    for (const [from, to, every] of wanted) {
      if (every > 1) {
        for (let rank = from; rank <= to; rank += every) {
          if (rank >= low && rank <= high && (rank - low) % step === 0) return true;
        }
        continue;
      }
      const start = Math.max(low, from), end = Math.min(high, to);
      if (start <= end && low + Math.ceil((start - low) / step) * step <= end) return true;
    }
  }
  return false;
}

function searcher(text) {
  if (!text) return null;
  try {
    const regex = new RegExp(text, "i");
    return { test: function (s) { return regex.test(s); }, bad: false };
  } catch (error) {
    const plain = text.toLowerCase();
    return { test: function (s) { return s.toLowerCase().includes(plain); }, bad: true };
  }
}
