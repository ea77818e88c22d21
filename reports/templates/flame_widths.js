// How wide each column is.
const LEAF_MIN = 24, ODD_MIN = 150, ODD_SHARE = 0.6, DIFFERENCE = 1.5, OWN_END = 10;

// Widths of the columns and of the gap beside a frame in which stacks end: as flame_layout.py.
function leafWidths(leaves, gaps, room, present, linear) {
  const out = new Map();
  if (linear) {
    const least = Math.min(3, room / Math.max(1, leaves.length));
    const all = leaves.reduce(function (sum, b) { return sum + b.count; }, 0) || 1;
    for (const b of leaves) out.set(b, least + (room - least * leaves.length) * b.count / all);
    return [out, 0];
  }
  const gap = gaps ? Math.min(OWN_END, room / 4 / gaps) : 0;
  const free = room - gap * gaps;
  const odd = function (b) { return b.gone || (!b.more && b.count < present); };
  const many = leaves.filter(odd).length, others = leaves.length - many;
  let wide = many ? Math.min(ODD_MIN, (others ? ODD_SHARE : 1) * free / many) : 0;
  let least = others ? Math.min(LEAF_MIN, (free - wide * many) / others) : 0;
  if (many && wide < least) wide = least = Math.min(LEAF_MIN, free / leaves.length);
  const spare = Math.max(0, free - wide * many - least * others);
  const weight = function (b) {
    const count = b.count * 3 <= present ? Math.max(b.count, present - 1) : b.count;
    return Math.log2(1 + count) * (count < present ? DIFFERENCE : 1);
  };
  const all = leaves.reduce(function (sum, b) { return sum + weight(b); }, 0) || 1;
  for (const b of leaves) out.set(b, (odd(b) ? wide : least) + spare * weight(b) / all);
  return [out, gap];
}
