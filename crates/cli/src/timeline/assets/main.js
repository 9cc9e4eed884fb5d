// What mouse, keys and the link do. Read first: `state`.
// Invariant: all that is shown follows from `state`; code that changes it calls `refresh`. What was chosen stands in the link.

const state = {
  from: 0, to: data.length,
  selected: null, only: null, zoomed: null,
  search: "", found: null,
  event: Math.max(byEvent.findIndex((list) => list.length > 0), 0),
  // Where waits are known, threads are what is looked at, as long as they are few.
  expanded: new Set(waits.length ? [...threadsOf.keys()].filter((i) => threadsOf[i].length > 1 && threadsOf[i].length <= FEW) : []),
  order: "busy", idle: false,
};
const element = (id) => document.getElementById(id);
const lanesCanvas = element("lanes"), flameCanvas = element("flame"), scroller = element("scroll"), tip = element("tip");
let lanes = [], flame = null, layout = null, planned = false;

function colours() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const style = getComputedStyle(document.documentElement);
  const own = Object.fromEntries(["ink", "faint", "paper", "band", "line"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  return { ...own, dark, tick: dark ? "#c9d3e6" : "#39465c", found: "#c2187a", gap: "#c0392b", branch: "#2f6fb0", wake: "#5a4fcf", trigger: "#d62728", select: "#7fb2e5" };
}

/** Makes a canvas so large, in pixels of the screen. */
function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(Math.round(width * ratio), 1);
  canvas.height = Math.max(Math.round(height * ratio), 1);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

function draw() {
  planned = false;
  const theme = colours();
  lanes = lanesOf(state);
  const last = lanes[lanes.length - 1];
  element("tall").style.height = `${last.top + last.height}px`;
  const width = scroller.clientWidth, height = scroller.clientHeight;
  drawLanes(sized(lanesCanvas, width, height), lanes, state, { width, height, scroll: scroller.scrollTop, colours: theme });
  flame = flameOf(state);
  layout = layoutFlame(flame, state.zoomed);
  const flameWidth = element("flamescroll").clientWidth, flameHeight = layout.rows * ROW;
  drawFlame(sized(flameCanvas, flameWidth, flameHeight), layout, state, { width: flameWidth, height: flameHeight, colours: theme });
  element("status").textContent = status();
  document.body.dataset.drawn = String(lanes.length);
}

function status() {
  const event = data.events[state.event];
  const [from, to] = state.selected ?? [state.from, state.to];
  const where = state.only ? ` of ${state.only.name}` : "";
  let text = `${flame.count} samples of ${event.name}${where}, ${amount(flame.all, event)}, from ${moment(from)} to ${moment(to)} (${time(to - from)})`;
  if (state.found) {
    const share = flame.count ? (flame.found * 100 / flame.count).toFixed(1) : "0.0";
    text += `; “${state.search}” is in ${flame.found} of them (${share} %)`;
  }
  return text;
}

function refresh() {
  const link = new URLSearchParams();
  if (state.from > 0 || state.to < data.length) link.set("view", `${Math.round(state.from)}-${Math.round(state.to)}`);
  if (state.selected) link.set("select", state.selected.map(Math.round).join("-"));
  if (state.search) link.set("search", state.search);
  if (state.event !== Number(element("event").options[0]?.value)) link.set("event", data.events[state.event].name);
  if (state.order !== "busy") link.set("order", state.order);
  history.replaceState(null, "", link.size ? `#${link}` : location.pathname + location.search);
  if (!planned) { planned = true; requestAnimationFrame(draw); }
}

/** Shows another time, as wide as it may be. */
function show(from, to) {
  const least = Math.min(100, data.length);
  const width = Math.min(Math.max(to - from, least), data.length);
  state.from = Math.min(Math.max(from, 0), data.length - width);
  state.to = state.from + width;
  refresh();
}

const at = (x) => state.from + (x - GUTTER) / (scroller.clientWidth - GUTTER) * (state.to - state.from);
const laneAt = (y) => lanes.find((lane) => y < RULER ? lane.kind === "ruler" : y + scroller.scrollTop >= lane.top && y + scroller.scrollTop < lane.top + lane.height);

function search(text) {
  state.search = text;
  state.found = matching(text);
  refresh();
}

lanesCanvas.addEventListener("wheel", (event) => {
  if (event.altKey || (event.offsetX < GUTTER)) return;
  event.preventDefault();
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    const by = event.deltaX / (scroller.clientWidth - GUTTER) * (state.to - state.from);
    return show(state.from + by, state.to + by);
  }
  const middle = at(event.offsetX), factor = Math.exp(event.deltaY * 0.002);
  show(middle - (middle - state.from) * factor, middle + (state.to - middle) * factor);
}, { passive: false });

let drag = null;
lanesCanvas.addEventListener("pointerdown", (event) => {
  if (event.offsetX < GUTTER) return;
  lanesCanvas.setPointerCapture(event.pointerId);
  drag = { x: event.offsetX, from: state.from, to: state.to, selects: event.shiftKey, moved: false };
});
lanesCanvas.addEventListener("pointermove", (event) => {
  if (!drag) return tell(event);
  drag.moved ||= Math.abs(event.offsetX - drag.x) > 3;
  if (!drag.moved) return;
  const by = (drag.x - event.offsetX) / (scroller.clientWidth - GUTTER) * (drag.to - drag.from);
  if (drag.selects) {
    const ends = [at(drag.x), at(event.offsetX)].sort((a, b) => a - b);
    state.selected = ends.map((end) => Math.min(Math.max(end, 0), data.length));
    refresh();
  } else show(drag.from + by, drag.to + by);
});
lanesCanvas.addEventListener("pointerup", () => {
  if (drag && !drag.moved) { state.selected = null; refresh(); }
  drag = null;
});
lanesCanvas.addEventListener("click", (event) => {
  const lane = laneAt(event.offsetY);
  if (event.offsetX >= GUTTER || !lane) return;
  if (lane.kind === "idle") { state.idle = !state.idle; return refresh(); }
  if (lane.kind === "event") state.event = lane.id;
  const isSame = state.only && state.only.kind === lane.kind && state.only.id === lane.id;
  state.only = isSame || !["cpu", "process", "thread"].includes(lane.kind) ? null : lane;
  element("event").value = String(state.event);
  refresh();
});
lanesCanvas.addEventListener("dblclick", (event) => {
  const lane = laneAt(event.offsetY);
  if (lane?.kind !== "process") return;
  if (!state.expanded.delete(lane.id)) state.expanded.add(lane.id);
  refresh();
});

function tell(event) {
  const lane = laneAt(event.offsetY), when = at(event.offsetX);
  if (!lane || ["ruler", "marks", "idle"].includes(lane.kind) || event.offsetX < GUTTER) return hide();
  const lines = [`${lane.name} at ${moment(when)}`];
  const near = (state.to - state.from) / (scroller.clientWidth - GUTTER) * 4;
  const span = lane.spans.map((i) => spans[i]).findLast((span) => span[2] <= when && span[3] >= when);
  if (span) {
    const { name, tid } = data.threads[span[0]];
    lines.push(`${name} ${tid} on ${cpuName(span[1])} for ${time(span[3] - span[2])}`);
  }
  const wait = waits[lane.waits?.[lowerBound(lane.waits, (i) => waits[i].to, when)]];
  if (wait && wait.from <= when) {
    const { name, tid } = data.threads[wait.waker] ?? {};
    const by = name ? `, ended by ${name} ${tid}` : wait.waker ? `, ended by ${wait.waker}` : "";
    lines.push(`waits for ${time(wait.to - wait.from)}: ${data.wait_kinds[wait.kind].name}${by}`);
  }
  const first = lowerBound(lane.samples, (i) => samples.at[i], when - near);
  const sample = lane.samples[first];
  if (sample !== undefined && samples.at[sample] <= when + near) {
    lines.push(`sample of ${data.events[samples.event[sample]].name}: ${data.names[data.nodes.label[samples.node[sample]]]}`);
  }
  for (const gap of data.gaps) {
    if (lane.kind === "cpu" && (gap.cpu === null || place(gap.cpu) === lane.id) && gap.from <= when && gap.to >= when) lines.push(gap.what);
  }
  say(event, lines);
}

function say(event, lines) {
  tip.textContent = lines.join("\n");
  tip.hidden = false;
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
}
const hide = () => { tip.hidden = true; };
lanesCanvas.addEventListener("pointerleave", hide);

const frameAt = (event) => {
  const share = event.offsetX / flameCanvas.clientWidth, depth = Math.floor(event.offsetY / ROW);
  return layout.frames.find((frame) => frame.depth === depth && share >= frame.from && share < frame.from + frame.share);
};
flameCanvas.addEventListener("pointermove", (event) => {
  const frame = frameAt(event);
  if (!frame) return hide();
  const weight = flame.weights[frame.node];
  say(event, [data.names[data.nodes.label[frame.node]], `${amount(weight, data.events[state.event])}, ${(weight * 100 / flame.all).toFixed(1)} %`]);
});
flameCanvas.addEventListener("pointerleave", hide);
flameCanvas.addEventListener("click", (event) => {
  const frame = frameAt(event);
  // The one that is zoomed into leads back to its caller.
  const parent = frame && data.nodes.parent[frame.node];
  state.zoomed = !frame ? null : frame.node !== state.zoomed ? frame.node : parent !== frame.node ? parent : null;
  refresh();
});

element("search").addEventListener("input", (event) => search(event.target.value.trim()));
element("event").addEventListener("change", (event) => { state.event = Number(event.target.value); refresh(); });
element("order").addEventListener("change", (event) => { state.order = event.target.value; refresh(); });
element("all").addEventListener("click", () => { state.selected = null; state.zoomed = null; show(0, data.length); });
scroller.addEventListener("scroll", refresh);
addEventListener("resize", refresh);
addEventListener("keydown", (event) => {
  if (["INPUT", "SELECT"].includes(event.target.tagName)) return;
  const width = state.to - state.from, middle = (state.from + state.to) / 2;
  const keys = {
    "+": () => show(middle - width / 4, middle + width / 4), "-": () => show(middle - width, middle + width),
    ArrowLeft: () => show(state.from - width / 8, state.to - width / 8), ArrowRight: () => show(state.from + width / 8, state.to + width / 8),
    0: () => show(0, data.length), Escape: () => { state.selected = null; state.only = null; state.zoomed = null; refresh(); },
    "/": () => element("search").focus(),
  };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});

/** Takes what stands in the link. */
function follow() {
  const link = new URLSearchParams(location.hash.slice(1));
  const range = (name) => {
    const ends = (link.get(name) ?? "").split("-").map(Number);
    return ends.length === 2 && ends[0] >= 0 && ends[1] > ends[0] && ends[1] <= data.length ? ends : null;
  };
  const event = data.events.findIndex((event) => event.name === link.get("event"));
  if (event >= 0) state.event = event;
  state.order = Object.hasOwn(ORDERS, link.get("order")) ? link.get("order") : "busy";
  element("order").value = state.order;
  state.selected = range("select");
  const view = range("view") ?? [0, data.length];
  element("search").value = link.get("search") ?? "";
  state.search = element("search").value;
  state.found = matching(state.search);
  show(...view);
}

element("title").textContent = data.file;
element("about").textContent = [time(data.length), `${sampleCount} samples`, data.host, data.kernel && `Linux ${data.kernel}`, data.command, ...data.remarks]
  .filter(Boolean).join(" · ");
data.events.forEach((event, i) => { if (byEvent[i].length) element("event").add(new Option(event.name, String(i))); });
addEventListener("hashchange", follow);
follow();
element("event").value = String(state.event);
// At once: a page that is not shown yet may wait for its first frame.
draw();
