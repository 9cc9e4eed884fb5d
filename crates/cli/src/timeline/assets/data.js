// What the page shows, ready to be drawn. Read first: `data`.
// Invariant: nothing here draws, and nothing changes once this file was run.

const data = JSON.parse(document.getElementById("data").textContent);

/** Numbers of what belongs to each member of a list, in the order of time. */
function grouped(count, from, memberOf) {
  const groups = Array.from({ length: count }, () => []);
  for (let i = 0; i < from; i++) {
    const member = memberOf(i);
    if (member >= 0) groups[member].push(i);
  }
  return groups;
}

/** Numbers that were packed: seven bits to a byte, the lowest first, with the eighth bit where more follow; in base 64. */
function column(text, into) {
  const bytes = atob(text);
  for (let at = 0, i = 0; i < into.length; i++) {
    let value = 0, unit = 1, byte;
    do {
      byte = bytes.charCodeAt(at++);
      value += (byte & 127) * unit;
      unit *= 128;
    } while (byte & 128);
    into[i] = value;
  }
  return into;
}

const sampleCount = data.samples.count;
const samples = {
  at: column(data.samples.at, new Float64Array(sampleCount)),
  weight: column(data.samples.weight, new Float64Array(sampleCount)),
  cpu: column(data.samples.cpu, new Int32Array(sampleCount)).map((cpu) => cpu - 1),
  thread: column(data.samples.thread, new Int32Array(sampleCount)),
  event: column(data.samples.event, new Int32Array(sampleCount)),
  node: column(data.samples.node, new Int32Array(sampleCount)),
};
for (let i = 1; i < sampleCount; i++) samples.at[i] += samples.at[i - 1];
data.samples = null;
const spans = data.spans.sort((a, b) => a[2] - b[2]);
const cpuNumbers = [...new Set([...new Set(samples.cpu), ...spans.map((s) => s[1]), ...data.gaps.map((g) => g.cpu)])]
  .filter((cpu) => cpu !== null && cpu >= 0).sort((a, b) => a - b);
const cpuPlace = new Map(cpuNumbers.map((cpu, place) => [cpu, place]));
const place = (cpu) => cpuPlace.get(cpu) ?? -1;
const cpuName = (cpu) => (cpu < 0 ? "a CPU" : `CPU ${cpu}`);
const processOf = (thread) => data.threads[thread].process;

const byCpu = {
  samples: grouped(cpuNumbers.length, sampleCount, (i) => place(samples.cpu[i])),
  spans: grouped(cpuNumbers.length, spans.length, (i) => place(spans[i][1])),
};
const byThread = {
  samples: grouped(data.threads.length, sampleCount, (i) => samples.thread[i]),
  spans: grouped(data.threads.length, spans.length, (i) => spans[i][0]),
};
const byProcess = {
  samples: grouped(data.processes.length, sampleCount, (i) => processOf(samples.thread[i])),
  spans: grouped(data.processes.length, spans.length, (i) => processOf(spans[i][0])),
};
const threadsOf = grouped(data.processes.length, data.threads.length, (i) => data.threads[i].process);

/** Waits by thread: from when to when, for what, and who ended them. Each is a sample, too. */
const waits = data.waits.map(([sample, from, to, kind, waker]) => ({ sample, thread: samples.thread[sample], from, to, kind, waker }));
const waitAt = new Int32Array(sampleCount).fill(-1);
waits.forEach((wait, i) => { waitAt[wait.sample] = i; });
/** The wait that a sample tells of. */
const waitOf = (sample) => waits[waitAt[sample]];
byThread.waits = grouped(data.threads.length, waits.length, (i) => waits[i].thread);
/** Those of a process with one thread stand in its lane, others in those of its threads. */
byProcess.waits = threadsOf.map((threads) => (threads.length === 1 ? byThread.waits[threads[0]] : []));
/** How long after its beginning a wait is told at most: when its thread has a CPU again. */
const longestWait = waits.reduce((longest, wait) => Math.max(longest, samples.at[wait.sample] - wait.from), 0);

/**
 * Since when what a sample stands for was counted, and how much of it is drawn. Time is what passed before the sample, and a CPU has no
 * more of it than passed; of what else is counted, the sample of the same event before is known. One occurrence has no length.
 */
const since = new Float64Array(sampleCount), until = new Float64Array(sampleCount), counted = new Float64Array(sampleCount);
const longest = data.events.map(() => 0);
{
  const last = new Map();
  for (let i = 0; i < sampleCount; i++) {
    const event = samples.event[i], at = samples.at[i], weight = samples.weight[i];
    const key = `${event} ${samples.cpu[i] < 0 ? `of ${samples.thread[i]}` : samples.cpu[i]}`;
    const before = last.get(key) ?? 0;
    const wait = waitOf(i);
    since[i] = wait ? wait.from : data.events[event].ns ? Math.max(at - weight, before) : weight > 1 ? before : at;
    until[i] = wait ? wait.to : at;
    counted[i] = data.events[event].ns ? until[i] - since[i] : weight;
    last.set(key, at);
    longest[event] = Math.max(longest[event], at - since[i]);
  }
}
const byEvent = grouped(data.events.length, sampleCount, (i) => samples.event[i]);
/** What ran and what waited, as one event, which has no lane. Two clocks count the same time. */
const clock = data.events.findIndex((event, i) => event.clock && byEvent[i].length > 0);
const WALL = waits.length ? data.events.length : -1;
const isOfWall = (i) => waitAt[i] >= 0 || samples.event[i] === clock;
if (WALL >= 0) {
  byEvent.push(Array.from(samples.at.keys()).filter(isOfWall));
  data.events.push({ name: "wall-clock", ns: true, clock: false });
  longest.push(Math.max(longestWait, clock < 0 ? 0 : longest[clock]));
}
/** Whether a sample is of an event. */
const isOf = (event, i) => samples.event[i] === event || (event === WALL && isOfWall(i));

/** How busy each process was: for how long it had a CPU, or how many samples it has where switches were not recorded. */
const busy = byProcess.samples.map((list, i) => (
  spans.length ? byProcess.spans[i].reduce((sum, span) => sum + spans[span][3] - spans[span][2], 0) : list.length
));
/** The same with all that it has started. A child comes behind its parent in the list. */
const busyBelow = busy.slice();
for (let i = data.processes.length - 1; i >= 0; i--) {
  const { parent } = data.processes[i];
  if (parent !== null && parent < i) busyBelow[parent] += busyBelow[i];
}
const allBusy = busy.reduce((sum, one) => sum + one, 0);
/** Less than this share of all is idle, where there are many processes. */
const IDLE = 0.005, FEW = 12;

/** Ways to put processes beside each other into order. */
const ORDERS = {
  busy: (a, b) => busyBelow[b] - busyBelow[a] || a - b,
  start: (a, b) => (data.processes[a].born ?? -1) - (data.processes[b].born ?? -1) || a - b,
  name: (a, b) => (data.processes[a].name < data.processes[b].name ? -1 : data.processes[a].name > data.processes[b].name ? 1 : a - b),
};

/** Processes as they come from each other: each with its depth, children behind their parents; and those that are idle with all below. */
function processesIn(order) {
  const children = grouped(data.processes.length, data.processes.length, (i) => data.processes[i].parent ?? -1);
  const roots = data.processes.map((process, i) => i).filter((i) => data.processes[i].parent === null);
  const shown = [], idle = [];
  const open = roots.sort(ORDERS[order]).reverse().map((root) => [root, 0]);
  while (open.length) {
    const [process, depth] = open.pop();
    const isIdle = data.processes.length > FEW && busyBelow[process] < allBusy * IDLE;
    (isIdle ? idle : shown).push({ process, depth });
    for (const child of children[process].slice().sort(ORDERS[order]).reverse()) open.push([child, depth + 1]);
  }
  return { shown, idle };
}

/** A time for people. */
function time(ns) {
  const size = Math.abs(ns);
  if (size >= 1e9) return `${(ns / 1e9).toFixed(3)} s`;
  if (size >= 1e6) return `${(ns / 1e6).toFixed(3)} ms`;
  if (size >= 1e3) return `${(ns / 1e3).toFixed(3)} µs`;
  return `${Math.round(ns)} ns`;
}

/** A moment for people: counted from the first sample of the recording, of which this may be a part. */
const moment = (at) => time(at + data.begin);

/** A number for people. */
function amount(value, event) {
  return event.ns ? time(value) : Math.round(value).toLocaleString("en");
}

/** The first place in a sorted list whose time is not before this one. */
function lowerBound(list, timeOf, at) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (timeOf(list[middle]) < at) low = middle + 1; else high = middle;
  }
  return low;
}

/** Which stacks have a function whose name has this text; `null` without a text. */
function matching(text) {
  if (!text) return null;
  const wanted = text.toLowerCase();
  const isName = data.names.map((name) => name.toLowerCase().includes(wanted));
  const { parent, label } = data.nodes;
  const found = new Uint8Array(parent.length);
  // Parents come first.
  for (let node = 0; node < parent.length; node++) {
    found[node] = isName[label[node]] || (parent[node] !== node && found[parent[node]]) ? 1 : 0;
  }
  return found;
}

/** A colour that a number always has. */
const hue = (number) => (number * 137.508) % 360;
