// The reader's choices in the address of a picture that is a page of its own, so that a link shows the same.

function saveAddress(picture) {
  if (!picture.standalone) return;
  const query = new URLSearchParams(), state = picture.state;
  if (state.zoom >= 0) query.set("zoom", state.zoom);
  if (state.search) query.set("search", state.search);
  if (state.lens) query.set("rank", state.lens);
  if (state.linear) query.set("width", "ranks");
  if (state.flip) query.set("root", "bottom");
  try { history.replaceState(null, "", "#" + query); } catch (error) { /* a sandboxed page has no history */ }
}

function loadAddress(picture) {
  if (!picture.standalone) return;
  const query = new URLSearchParams(location.hash.slice(1)), state = picture.state, tools = picture.tools;
  const wanted = Number(query.get("zoom") ?? -1);
  state.zoom = Number.isInteger(wanted) && wanted < picture.boxes.length ? Math.max(-1, wanted) : -1;
  state.search = query.get("search") || "";
  state.lens = query.get("rank") || "";
  state.linear = query.get("width") === "ranks";
  state.flip = query.get("root") === "bottom";
  tools.search.value = state.search;
  tools.lens.value = state.lens;
  tools.linear.setAttribute("aria-pressed", state.linear);
  tools.flip.setAttribute("aria-pressed", state.flip);
  tools.reset.disabled = state.zoom < 0;
}
