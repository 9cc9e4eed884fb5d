// Lanes over time: counters, CPUs, processes. Read first: `drawLanes`.
// Invariant: only lanes and times that can be seen are drawn; what is narrower than a pixel is drawn once a pixel.

const GUTTER = 190;
const RULER = 22;

/** The words in a lane of an event stand above what is drawn. */
const WORDS = 14;
const MARKS = 32;

/** All lanes from top to bottom, with their heights. */
function lanesOf(state) {
  const lanes = [{ kind: "ruler", height: RULER, name: "" }];
  if (data.marks.length) lanes.push({ kind: "marks", height: MARKS, name: "", samples: [], spans: [] });
  data.events.forEach((event, i) => {
    // How long those waited who were woken: arrows tell it better.
    if (byEvent[i].length && i !== WALL && !event.wakes) lanes.push({ kind: "event", id: i, height: 44 + WORDS, name: event.name, samples: byEvent[i], spans: [] });
  });
  cpuNumbers.forEach((cpu, i) => lanes.push({
    kind: "cpu", id: i, height: 24, name: `CPU ${cpu}`, samples: byCpu.samples[i], spans: byCpu.spans[i],
  }));
  const { shown, idle } = processesIn(state.order);
  const listed = state.idle ? [...shown, null, ...idle] : idle.length ? [...shown, null] : shown;
  for (const entry of listed) {
    if (entry === null) {
      const name = `${state.idle ? "▾" : "▸"} ${idle.length} idle process${idle.length === 1 ? "" : "es"}`;
      lanes.push({ kind: "idle", height: 22, name, samples: [], spans: [] });
      continue;
    }
    const { process, depth } = entry;
    const { name, pid } = data.processes[process];
    lanes.push({
      kind: "process", id: process, depth, height: 22, name: `${name} ${pid}`,
      samples: byProcess.samples[process], spans: byProcess.spans[process], waits: byProcess.waits[process],
    });
    if (!state.expanded.has(process)) continue;
    for (const thread of threadsOf[process]) {
      lanes.push({
        kind: "thread", id: thread, depth: depth + 1, height: 20, name: `${data.threads[thread].name} ${data.threads[thread].tid}`,
        samples: byThread.samples[thread], spans: byThread.spans[thread], waits: byThread.waits[thread],
      });
    }
  }
  let top = 0;
  for (const lane of lanes) { lane.top = top; top += lane.height; }
  return lanes;
}

/** Draws what can be seen between `scroll` and `scroll + height`. */
function drawLanes(context, lanes, state, { width, height, scroll, colours }) {
  const scale = (width - GUTTER) / (state.to - state.from);
  const x = (at) => GUTTER + (at - state.from) * scale;
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  context.textBaseline = "middle";
  const laneOfProcess = new Map();
  lanes.forEach((lane) => { if (lane.kind === "process") laneOfProcess.set(lane.id, lane); });
  lanes.forEach((lane, i) => {
    const top = lane.top - scroll;
    if (lane.kind === "ruler" || lane.kind === "marks" || top + lane.height < 0 || top > height) return;
    context.fillStyle = i % 2 ? colours.band : colours.paper;
    context.fillRect(0, top, width, lane.height);
    context.save();
    context.beginPath();
    context.rect(GUTTER, top, width - GUTTER, lane.height);
    context.clip();
    if (lane.kind === "event") drawRate(context, lane, top, x, state, width, colours);
    else if (lane.kind !== "idle") drawTask(context, lane, top, x, state, colours);
    context.restore();
    drawName(context, lane, top, state, colours);
  });
  drawBranches(context, lanes, laneOfProcess, x, scroll, state, colours);
  drawWakes(context, lanes, x, scroll, state, colours);
  drawMarks(context, x, height, width, state, colours);
  drawRuler(context, x, width, state, colours);
}

function drawName(context, lane, top, state, colours) {
  const isOnly = state.only && state.only.kind === lane.kind && state.only.id === lane.id;
  const isFound = state.search && lane.name.toLowerCase().includes(state.search.toLowerCase());
  context.fillStyle = isOnly ? colours.select : colours.paper;
  context.fillRect(0, top, GUTTER - 1, lane.height);
  context.fillStyle = isFound ? colours.found : colours.ink;
  const left = 8 + Math.min(lane.depth ?? 0, 8) * 10;
  context.fillText(lane.name, left, top + lane.height / 2, GUTTER - left - 6);
}

/** Who had the CPU, what was met, and what is missing. */
function drawTask(context, lane, top, x, state, colours) {
  const bar = lane.height - 8;
  const life = lane.kind === "process" ? data.processes[lane.id] : lane.kind === "thread" ? data.threads[lane.id] : null;
  if (life) {
    context.fillStyle = colours.line;
    const from = x(life.born ?? 0), to = x(life.ended ?? data.length);
    context.fillRect(from, top + lane.height / 2 - 1, Math.max(to - from, 1), 2);
  }
  // One that began before may last until now; spans of one CPU don't overlap, those of a process do a little.
  const first = Math.max(lowerBound(lane.spans, (i) => spans[i][2], state.from) - 64, 0);
  let drawnTo = -1;
  for (let at = first; at < lane.spans.length; at++) {
    const [thread, cpu, from, to] = spans[lane.spans[at]];
    if (from > state.to) break;
    if (to < state.from || (lane.kind === "cpu" && data.threads[thread].tid === 0)) continue;
    const left = x(from), right = Math.max(x(to), left + 1);
    if (right <= drawnTo) continue;
    context.fillStyle = `hsl(${hue(lane.kind === "cpu" ? processOf(thread) : cpu)} 45% ${colours.dark ? 42 : 72}%)`;
    context.fillRect(Math.max(left, drawnTo), top + 4, right - Math.max(left, drawnTo), bar);
    drawnTo = right;
    if (right - left > 60) {
      context.fillStyle = colours.ink;
      const { name, tid } = data.threads[thread];
      const text = lane.kind === "cpu" ? `${name} ${tid}` : cpuName(cpu);
      context.fillText(text, Math.max(left, GUTTER) + 3, top + lane.height / 2 - 2, right - Math.max(left, GUTTER) - 6);
    }
  }
  drawWaits(context, lane, top, x, state, colours);
  drawTicks(context, lane, top, x, state, colours);
  if (lane.kind === "cpu") {
    for (const gap of data.gaps) {
      if (gap.cpu !== null && place(gap.cpu) !== lane.id) continue;
      if (!gap.thin) drawGap(context, x(gap.from), x(gap.to), top, lane.height, gap.what, colours);
    }
    drawThin(context, lane, top, x, state, colours);
  }
}

/** What the thread waited for, lower than what it had a CPU for. */
function drawWaits(context, lane, top, x, state, colours) {
  const list = lane.waits ?? [];
  let drawnTo = -1;
  // They don't overlap: a thread waits for one thing at a time.
  for (let at = lowerBound(list, (i) => waits[i].to, state.from); at < list.length; at++) {
    const { from, to, kind } = waits[list[at]];
    if (from > state.to) break;
    const begin = Math.max(x(from), GUTTER), right = Math.max(x(to), begin + 1), left = Math.max(begin, drawnTo);
    if (right < drawnTo + 0.5) continue;
    drawnTo = right;
    const { name, colour } = data.wait_kinds[kind];
    context.fillStyle = `rgb(${colour})`;
    context.fillRect(left, top + 7, right - left, lane.height - 13);
    if (right - left > 60) {
      context.fillStyle = colours.dark ? "#10131a" : colours.ink;
      context.fillText(name, left + 3, top + lane.height / 2, right - left - 6);
    }
  }
}

/** More arrows than this say nothing. */
const MOST_ARROWS = 200;

/** From each thread that ended a wait to the one that waited; of one lane, if one is chosen. */
function drawWakes(context, lanes, x, scroll, state, colours) {
  const laneOfThread = new Map();
  lanes.forEach((lane) => {
    if (lane.kind === "process") threadsOf[lane.id].forEach((thread) => laneOfThread.set(thread, lane));
    if (lane.kind === "thread") laneOfThread.set(lane.id, lane);
  });
  const arrows = [];
  // They are in the order in which threads had a CPU again, which is after they were woken.
  for (let at = lowerBound(waits, (wait) => samples.at[wait.sample], state.from); at < waits.length; at++) {
    const wait = waits[at];
    if (samples.at[wait.sample] > state.to + longestWait) break;
    if (typeof wait.waker !== "number" || wait.to < state.from || wait.to > state.to) continue;
    const from = laneOfThread.get(wait.waker), to = laneOfThread.get(wait.thread);
    const isChosen = !state.only || [from, to].some((lane) => lane && lane.kind === state.only.kind && lane.id === state.only.id);
    if (from && to && from !== to && isChosen) arrows.push([from, to, wait]);
    if (arrows.length > MOST_ARROWS) return;
  }
  context.save();
  context.beginPath();
  context.rect(GUTTER, RULER, 1e5, 1e5);
  context.clip();
  for (const [from, to, { to: when, kind }] of arrows) {
    const middle = (lane) => lane.top - scroll + lane.height / 2;
    const down = to.top > from.top ? 1 : -1, end = middle(to) - down * 4, at = x(when);
    context.strokeStyle = context.fillStyle = colours.dark ? `rgb(${data.wait_kinds[kind].colour})` : colours.wake;
    context.beginPath();
    context.moveTo(at, middle(from));
    context.lineTo(at, end);
    context.stroke();
    context.beginPath();
    context.moveTo(at, end + down * 2);
    context.lineTo(at - 3, end - down * 5);
    context.lineTo(at + 3, end - down * 5);
    context.fill();
  }
  context.restore();
}

function drawTicks(context, lane, top, x, state, colours) {
  let last = -1;
  for (let at = lowerBound(lane.samples, (i) => samples.at[i], state.from); at < lane.samples.length; at++) {
    const sample = lane.samples[at];
    if (samples.at[sample] > state.to) break;
    const left = Math.round(x(samples.at[sample]));
    const isFound = state.found && state.found[samples.node[sample]];
    if (left === last && !isFound) continue;
    last = left;
    context.fillStyle = isFound ? colours.found : colours.tick;
    context.fillRect(left, top + lane.height - (isFound ? 12 : 6), isFound ? 2 : 1, isFound ? 12 : 6);
  }
}

/** A stretch of which nothing is known: hatched, with a sentence. */
function drawGap(context, from, to, top, height, what, colours) {
  const width = Math.max(to - from, 3);
  context.save();
  context.beginPath();
  context.rect(from, top + 1, width, height - 2);
  context.clip();
  context.fillStyle = colours.paper;
  context.fillRect(from, top + 1, width, height - 2);
  context.strokeStyle = colours.gap;
  for (let at = Math.max(from, 0) - height; at < Math.min(from + width, 8192); at += 6) {
    context.beginPath();
    context.moveTo(at, top + height);
    context.lineTo(at + height, top);
    context.stroke();
  }
  if (width > 50) {
    context.fillStyle = colours.ink;
    context.fillText(what, Math.max(from, GUTTER) + 4, top + height / 2, width - 8);
  }
  context.restore();
}

/** Stretches of which less is known, of which there may be very many: a line on top, once a pixel. */
function drawThin(context, lane, top, x, state, colours) {
  let drawnTo = -1;
  context.fillStyle = colours.gap;
  for (const gap of data.gaps) {
    if (!gap.thin || (gap.cpu !== null && place(gap.cpu) !== lane.id) || gap.to < state.from || gap.from > state.to) continue;
    const from = Math.max(x(gap.from), drawnTo), to = Math.max(x(gap.to), x(gap.from) + 1);
    if (to <= drawnTo) continue;
    context.fillRect(from, top + 1, to - from, 2);
    drawnTo = to;
  }
}

/** How much was counted in each of some equal parts of a time, from when to when it was counted. */
function ratesOf(list, event, from, to, parts) {
  const bins = new Float64Array(parts), part = (to - from) / parts;
  for (let at = lowerBound(list, (i) => samples.at[i], from); at < list.length; at++) {
    const sample = list[at], begin = since[sample], end = until[sample];
    if (samples.at[sample] > to + longest[event]) break;
    if (begin > to || end < from) continue;
    const first = Math.max(Math.floor((begin - from) / part), 0), last = Math.min(Math.floor((end - from) / part), parts - 1);
    if (end === begin) {
      if (first < parts) bins[first] += counted[sample];
      continue;
    }
    for (let bin = first; bin <= last; bin++) {
      const inside = Math.min(end, from + (bin + 1) * part) - Math.max(begin, from + bin * part);
      if (inside > 0) bins[bin] += counted[sample] * inside / (end - begin);
    }
  }
  return bins;
}

/** How much was counted in each two pixels, as a rate. */
function drawRate(context, lane, top, x, state, width, colours) {
  const step = 2, parts = Math.max(Math.ceil((width - GUTTER) / step), 1);
  const bins = ratesOf(lane.samples, lane.id, state.from, state.to, parts);
  const most = bins.reduce((a, b) => Math.max(a, b), 0);
  if (most === 0) return;
  context.fillStyle = `hsl(${hue(lane.id + 1)} 55% 55%)`;
  bins.forEach((bin, i) => {
    const high = (bin / most) * (lane.height - WORDS - 4);
    context.fillRect(GUTTER + i * step, top + lane.height - high, step, high);
  });
  const seconds = (state.to - state.from) / parts / 1e9;
  context.fillStyle = colours.faint;
  context.fillText(`at most ${amount(most / seconds, data.events[lane.id])} a second`, GUTTER + 4, top + WORDS / 2 + 1);
}

/** From each process to those that it has started; and where one ends. */
function drawBranches(context, lanes, laneOfProcess, x, scroll, state, colours) {
  context.save();
  context.beginPath();
  context.rect(GUTTER, 0, 1e5, 1e5);
  context.clip();
  context.lineWidth = 1;
  data.processes.forEach((process, id) => {
    const lane = laneOfProcess.get(id);
    if (!lane) return;
    const middle = lane.top - scroll + lane.height / 2;
    if (process.born !== null && process.parent !== null && laneOfProcess.has(process.parent) && process.born >= state.from && process.born <= state.to) {
      const above = laneOfProcess.get(process.parent);
      context.strokeStyle = colours.branch;
      context.beginPath();
      context.moveTo(x(process.born), above.top - scroll + above.height / 2);
      context.lineTo(x(process.born), middle);
      context.stroke();
    }
    context.fillStyle = colours.branch;
    if (process.ended !== null) context.fillRect(x(process.ended) - 1, middle - 7, 2, 14);
    for (const exec of process.execs) {
      context.beginPath();
      context.arc(x(exec), middle, 2.5, 0, 7);
      context.fill();
    }
  });
  context.restore();
}

function drawMarks(context, x, height, width, state, colours) {
  // Where each row of words ends: words that would lie on others go a row down.
  const ends = [];
  for (const mark of data.marks) {
    const at = x(mark.at);
    if (at < GUTTER || at > width) continue;
    context.fillStyle = mark.kind === "trigger" ? colours.trigger : colours.faint;
    context.fillRect(at - 1, RULER, mark.kind === "trigger" ? 2 : 1, height);
    const text = (mark.kind === "trigger" ? "trigger: " : "") + mark.what;
    const space = context.measureText(text).width;
    const left = at + space + 8 > width ? at - space - 5 : at + 5;
    let row = ends.findIndex((end) => left > end);
    if (row < 0) row = ends.length;
    ends[row] = left + space + 8;
    context.fillText(text, left, RULER + 8 + row * 14);
  }
  if (state.selected) {
    const [from, to] = state.selected;
    context.fillStyle = colours.select + "55";
    context.fillRect(Math.max(x(from), GUTTER), 0, Math.max(x(to) - Math.max(x(from), GUTTER), 1), height);
  }
}

function drawRuler(context, x, width, state, colours) {
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, width, RULER);
  const rough = (state.to - state.from) / ((width - GUTTER) / 110);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
  context.fillStyle = colours.faint;
  for (let at = Math.ceil(state.from / step) * step; at <= state.to; at += step) {
    context.fillRect(x(at), RULER - 6, 1, 6);
    context.fillText(moment(at), x(at) + 3, RULER / 2 - 1);
  }
  context.fillRect(0, RULER - 1, width, 1);
}
