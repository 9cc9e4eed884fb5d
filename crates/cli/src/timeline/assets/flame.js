// The flame graph of what is selected. Read first: `flameOf`, then `drawFlame`.
// Invariant: a frame is as wide as its share of what is shown; nothing is left out but what is narrower than a pixel.

const ROW = 17;

/** What each stack weighs in the selected time, with all that it calls. */
function flameOf(state) {
  const { parent, label } = data.nodes;
  const weights = new Float64Array(parent.length);
  const [from, to] = state.selected ?? [state.from, state.to];
  const list = state.only ? state.only.samples : byEvent[state.event];
  let count = 0, found = 0, all = 0;
  // Waits are told when they are over.
  const told = (data.events[state.event].ns && !data.events[state.event].clock) ? to + longestWait : to;
  for (let at = lowerBound(list, (i) => samples.at[i], from); at < list.length; at++) {
    const sample = list[at];
    if (samples.at[sample] > told) break;
    if (!isOf(state.event, sample)) continue;
    // Of a wait, as much as lies in the selected time.
    const wait = waitOf(sample);
    const weight = wait ? Math.min(wait.to, to) - Math.max(wait.from, from) : samples.weight[sample];
    if (wait ? weight <= 0 : samples.at[sample] > to) continue;
    weights[samples.node[sample]] += weight;
    all += weight;
    count++;
    if (state.found && state.found[samples.node[sample]]) found++;
  }
  const children = new Map(), roots = [];
  for (let node = parent.length - 1; node >= 0; node--) {
    if (weights[node] === 0) continue;
    if (parent[node] === node) { roots.push(node); continue; }
    weights[parent[node]] += weights[node];
    if (!children.has(parent[node])) children.set(parent[node], []);
    children.get(parent[node]).push(node);
  }
  const byName = (a, b) => (data.names[label[a]] < data.names[label[b]] ? -1 : 1);
  roots.sort(byName);
  for (const list of children.values()) list.sort(byName);
  return { weights, children, roots, all, count, found };
}

/** Where each frame is: in shares of the width. Of one frame and what it calls, if `zoomed` is one. */
function layoutFlame(flame, zoomed) {
  const frames = [];
  let deepest = 0;
  const begin = zoomed !== null && flame.weights[zoomed] > 0 ? [zoomed] : flame.roots;
  const all = begin.reduce((sum, node) => sum + flame.weights[node], 0) || 1;
  const open = [];
  let left = 0;
  for (const node of begin) { open.push([node, left, 0]); left += flame.weights[node] / all; }
  while (open.length) {
    const [node, from, depth] = open.pop();
    const share = flame.weights[node] / all;
    frames.push({ node, from, share, depth });
    deepest = Math.max(deepest, depth);
    let at = from;
    for (const child of flame.children.get(node) ?? []) {
      const own = flame.weights[child] / all;
      if (own > 0.0002) open.push([child, at, depth + 1]);
      at += own;
    }
  }
  return { frames, rows: deepest + 1 };
}

const KIND_HUES = { kernel: [26, 80], library: [48, 75], program: [6, 75], jit: [125, 40], wait: [0, 0], unknown: [0, 0] };
/** What is waited for, by the name of its frame. */
const WAIT_COLOURS = new Map(data.wait_kinds.map(({ name, colour }) => [name, `rgb(${colour})`]));

function drawFlame(context, layout, state, { width, height, colours }) {
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  context.textBaseline = "middle";
  for (const { node, from, share, depth } of layout.frames) {
    const wide = share * width;
    if (wide < 0.7) continue;
    const label = data.nodes.label[node], name = data.names[label];
    const [tone, strength] = KIND_HUES[data.kinds[label]];
    const waiting = data.kinds[label] === "wait" && WAIT_COLOURS.get(name);
    const isFound = state.search && name.toLowerCase().includes(state.search.toLowerCase());
    context.fillStyle = isFound ? colours.found : waiting || `hsl(${tone} ${strength}% ${(colours.dark ? 38 : 68) + (label * 7) % 9}%)`;
    context.fillRect(from * width, depth * ROW, Math.max(wide - 0.5, 0.5), ROW - 1);
    if (wide < 24) continue;
    context.fillStyle = isFound ? "#ffffff" : colours.ink;
    context.save();
    context.beginPath();
    context.rect(from * width, depth * ROW, wide - 2, ROW);
    context.clip();
    context.fillText(name, from * width + 3, depth * ROW + ROW / 2);
    context.restore();
  }
}
