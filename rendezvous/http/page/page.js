// The page of rendezvousd: shows /api/v1/jobs and /api/v1/jobs/ID, refreshed after each event of /api/v1/events, and
// every two seconds for changes that are not events (steps, losses). Texts of jobs are only ever set as text.
"use strict";

const POLL_MS = 2000;      // while the page is visible
const SETTLE_MS = 120;     // events that occur together cause one refresh
const RETRY_MS = 1000;     // after a lost connection
const ROW = 30;            // height of a row of the node table in pixels; as in page.css
const MAX_EVENTS = 200;
const MAX_JOBS = 500;
const LATE_STEPS = 1;      // a rank this far behind the newest step is marked

const state = {
  view: "list", job: "", jobs: [], nodes: [], phases: [], loss: [], events: [], filter: "", stream: null, busy: false,
  again: false, more: false, follows: false, settle: 0, newest: -1, step: 0, ranks: [],
};
const $ = (id) => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
// Changes only differences: a refresh of an unchanged table costs nothing and keeps the selection.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
function setClass(node, name) {
  if (node.className !== name) node.className = name;
}

// ---- numbers as text

const DASH = "\u2013";
const number = (value) => (value === null || value === undefined ? DASH : String(value));
const lossText = (value) => (value === null || value === undefined ? DASH : Number(value).toPrecision(4));
function seconds(value) {
  if (value === null || value === undefined) return DASH;
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${(value / 3600).toFixed(1)} h`;
  return `${(value / 86400).toFixed(1)} d`;
}
// In the time zone of the browser.
function clock(time) {
  return time === undefined ? DASH : new Date(time).toLocaleString();
}
const STATES = { running: "good", finished: "good", succeeded: "good", failed: "bad", waiting: "wait",
  last_call: "wait", stopping: "wait", recovering: "wait", spare: "", idle: "" };
function badge(node, name) {
  setText(node, name.replace("_", " "));
  setClass(node, `badge ${STATES[name] || ""}`);
}

// ---- the server

class NeedsLogin extends Error {}
async function fetchJson(path) {
  const response = await fetch(path, { credentials: "same-origin" });
  if (response.status === 401) throw new NeedsLogin();
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error || `HTTP ${response.status}`);
  return answer;
}
function showNotice(text, url = "") {
  const notice = $("notice");
  notice.hidden = !text;
  if (notice.textContent === text + url) return;
  notice.replaceChildren(text, ...(url ? [el("a", { href: url }, url)] : []));
}
// A follower has no jobs. Servers mostly listen for HTTP on the same port.
function showLeader(leader) {
  showLink("follower", "wait");
  if (!leader) return showNotice("This server does not lead, and does not know which one does.");
  const host = leader.replace(/:\d+$/, "");
  showNotice(`This server does not lead; ${leader} does. Its page: `,
    `${location.protocol}//${host}${location.port ? `:${location.port}` : ""}/${location.hash}`);
}
function showLink(name, kind) {
  setText($("link"), name);
  setClass($("link"), `pill ${kind}`);
}

async function refresh() {
  if (state.busy) {
    state.again = true;
    return;
  }
  state.busy = true;
  const view = state.view, job = state.job;
  try {
    const server = await fetchJson("/api/v1/server");
    setText($("server"), server.not_ready ?
      server.not_ready : `version ${server.version}, ${server.launchers} launchers`);
    state.follows = !server.leads;
    if (state.follows) showLeader(server.leader);
    else if (view === "list") {
      const answer = await fetchJson(`/api/v1/jobs?limit=${MAX_JOBS}`);
      state.more = answer.next !== undefined;
      paintJobs(answer.jobs);
    } else {
      const answer = await fetchJson(`/api/v1/jobs/${encodeURIComponent(job)}`);
      if (state.job === job) paintJob(answer);
    }
    $("login").hidden = true;
    if (!state.follows) showNotice("");
  } catch (error) {
    if (error instanceof NeedsLogin) askForToken();
    else if (error instanceof TypeError) showLink("reconnecting", "wait"); // no response
    else showNotice(error.message);
  }
  state.busy = false;
  if (state.again) {
    state.again = false;
    refresh();
  }
}
function refreshSoon() {
  if (!state.settle) state.settle = setTimeout(() => { state.settle = 0; refresh(); }, SETTLE_MS);
}

function listen() {
  if (state.stream) state.stream.close();
  const job = state.view === "job" ? `&job=${encodeURIComponent(state.job)}` : "";
  const stream = new EventSource(`/api/v1/events?backlog=${MAX_EVENTS}${job}`);
  state.stream = stream;
  stream.onopen = () => { showLink("live", "good"); refreshSoon(); };
  // A new server process restarts the event numbers.
  stream.addEventListener("reset", () => { state.events = []; state.newest = -1; paintEvents(); });
  stream.onmessage = (message) => {
    if (stream !== state.stream) return;
    addEvent(JSON.parse(message.data));
    refreshSoon();
  };
  stream.onerror = () => {
    if (!state.follows) showLink("reconnecting", "wait");
    // An HTTP error closes the stream for good.
    if (stream.readyState === EventSource.CLOSED) {
      setTimeout(() => { if (stream === state.stream && $("login").hidden) listen(); }, RETRY_MS);
      refreshSoon();
    }
  };
}

function askForToken() {
  if (state.stream) state.stream.close();
  state.stream = null;
  showLink("not logged in", "wait");
  for (const id of ["list", "job", "events"]) $(id).hidden = true;
  if ($("login").hidden) {
    $("login").hidden = false;
    $("token").focus();
  }
}
async function logIn(submit) {
  submit.preventDefault();
  const response = await fetch("/login", { method: "POST", body: `token=${encodeURIComponent($("token").value)}` });
  if (!response.ok) return showNotice((await response.json()).error);
  $("token").value = "";
  $("login").hidden = true;
  showNotice("");
  route();
}

// ---- all jobs

function paintJobs(jobs) {
  state.jobs = jobs;
  const wanted = state.filter.toLowerCase();
  const shown = jobs.filter((job) => !wanted || `${job.job_id} ${job.state}`.toLowerCase().includes(wanted));
  const body = $("jobs").tBodies[0];
  const rows = new Map([...body.rows].map((row) => [row.dataset.job, row]));
  let last = null;
  for (const job of shown) {
    const row = rows.get(job.job_id) || newJobRow(job.job_id);
    rows.delete(job.job_id);
    fillJobRow(row, job);
    const next = last ? last.nextSibling : body.firstChild;
    if (next !== row) body.insertBefore(row, next);
    last = row;
  }
  for (const row of rows.values()) row.remove();
  const all = state.more ? `the first ${jobs.length}` : String(jobs.length);
  setText($("list-count"), shown.length === jobs.length ? all : `${shown.length} of ${all}`);
  $("list-empty").hidden = jobs.length > 0;
}
function newJobRow(id) {
  const row = el("tr");
  row.dataset.job = id;
  const cells = ["", "", "n nodes-cell", "n", "n", "n", "n step-cell", "n", "n", "why"];
  for (const name of cells) row.append(el("td", name ? { class: name } : {}));
  row.cells[0].append(el("span"));
  row.cells[1].append(el("a", { href: `#/jobs/${encodeURIComponent(id)}` }, id));
  return row;
}
function fillJobRow(row, job) {
  const settings = job.settings, progress = job.training || {};
  const why = job.hang && !isSlow(job) && !job.verdict ? hangLines(job.hang)[0] : job.reason;
  badge(row.cells[0].firstChild, job.state);
  const limits = settings.min_nodes === settings.max_nodes ? settings.max_nodes
    : `${settings.min_nodes}-${settings.max_nodes}`;
  const texts = [`${job.node_count}/${limits}`, number(job.world_size), number(job.round), number(job.restart_count),
    number(progress.step), lossText(progress.loss), seconds(job.age), why];
  texts.forEach((text, i) => setText(row.cells[i + 2], text));
  row.cells[8].title = `${clock(job.begin)} ${DASH} ${job.end === undefined ? "now" : clock(job.end)}`;
  row.cells[9].title = why;
}

// ---- one job

// The phases of a job's time, with their titles and colors.
const TIMES = [["training", "Training", "p2"], ["lost", "Lost (steps made again)", "p4"],
  ["starting", "Starting", "p0"], ["re_forming", "Re-forming", "p3"], ["waiting", "Waiting for nodes", "p5"]];

function paintJob(job) {
  state.nodes = job.nodes.sort((a, b) => order(a) - order(b));
  state.ranks = state.nodes.flatMap((node) =>
    node.progress.map((rank) => Object.assign(rank, { rank: node.base_rank + rank.local_rank, host: node.host })));
  const training = job.training || {};
  state.step = training.step;
  setText($("job-title"), job.job_id);
  badge($("job-state"), job.state);
  setText($("job-reason"), job.verdict ? job.verdict.reason : job.reason);
  paintHang(isSlow(job) ? undefined : job.hang);
  paintTiles([
    ["Round", number(job.round)], ["Restarts", `${job.restart_count} of ${job.settings.max_restarts}`],
    ["Nodes", `${job.node_count} (${job.settings.min_nodes} to ${job.settings.max_nodes})`],
    ["Workers", number(job.world_size)], ["Step", number(training.step)], ["Loss", lossText(training.loss)],
    ["Began", clock(job.begin)], ["Ended", clock(job.end)], ["Duration", seconds(job.age)],
    ["Behind", training.step === undefined ? DASH : `${training.steps_behind} steps`],
  ]);
  paintTime(job);
  if (job.training && training.losses.length) state.loss = training.losses;
  paintLoss();
  paintNodes();
  paintSlow(job);
  paintCauses(job);
}
// True if the report is about ranks that are slow, and nothing hangs.
function isSlow(job) {
  return job.hang !== undefined && job.hang.kind === "straggler";
}
// The first line says who waits for whom.
function hangLines(hang) {
  const [first, ...rest] = hang.text.split("\n");
  return [first, rest.join("\n")];
}
function paintHang(hang) {
  const box = $("job-hang"), details = box.querySelector("details");
  box.hidden = !hang;
  if (!hang) return;
  const [first, rest] = hangLines(hang);
  setText(box.querySelector("strong"), `${timeText(hang.at)} ${first}`);
  setText(box.querySelector("pre"), rest);
  details.hidden = !rest;
}
function paintTime(job) {
  const times = TIMES.map(([name]) => (job.goodput || {})[name] || 0);
  const total = times.reduce((sum, time) => sum + time, 0);
  $("time").hidden = total <= 0;
  if (total <= 0) return;
  const bar = $("time-bar"), legend = $("time-legend");
  if (!bar.firstChild) {
    for (const [, , color] of TIMES) {
      bar.append(el("span", { class: color }));
      legend.append(el("span", {}, el("span", { class: `key ${color}` }), el("span")));
    }
  }
  const texts = TIMES.map(([, title], i) => `${title} ${(100 * times[i] / total).toFixed(1)} % (${seconds(times[i])})`);
  texts.forEach((text, i) => {
    bar.children[i].style.width = `${(100 * times[i] / total).toFixed(2)}%`;
    setText(legend.children[i].lastChild, text);
  });
  bar.setAttribute("aria-label", texts.join(", "));
  $("time-note").hidden = times[0] > 0 || Boolean(job.training);
}
// Sorts nodes with ranks first, by rank.
function order(node) {
  return node.group_rank < 0 ? Infinity : node.group_rank;
}
function paintTiles(pairs) {
  const tiles = $("tiles");
  while (tiles.children.length < pairs.length) tiles.append(el("div", {}, el("dt"), el("dd")));
  pairs.forEach(([name, text], i) => {
    setText(tiles.children[i].children[0], name);
    setText(tiles.children[i].children[1], text);
  });
}

function paintLoss() {
  const points = state.loss.filter((point) => Number.isFinite(point.loss));
  if (points.length < 2) {
    $("loss").replaceChildren(el("p", { class: "quiet" }, points.length ? "One value so far." : "Not reported."));
    return;
  }
  const width = 600, height = 200, left = 46, bottom = 20;
  const xs = points.map((point) => point.step), ys = points.map((point) => point.loss);
  const x0 = Math.min(...xs), x1 = Math.max(...xs, x0 + 1);
  let y0 = Math.min(...ys), y1 = Math.max(...ys);
  if (y1 - y0 < 1e-9) { y0 -= 0.5; y1 += 0.5; }
  const x = (v) => left + (v - x0) / (x1 - x0) * (width - left - 8);
  const y = (v) => 8 + (y1 - v) / (y1 - y0) * (height - bottom - 14);
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `Loss from ${lossText(ys[0])} to ${lossText(ys[ys.length - 1])} over steps ${x0} to ${x1}` });
  for (const v of [y0, (y0 + y1) / 2, y1]) {
    chart.append(svg("line", { x1: left, x2: width - 8, y1: y(v), y2: y(v) }));
    chart.append(svg("text", { x: 2, y: y(v) + 4 }, v.toPrecision(3)));
  }
  chart.append(svg("text", { x: left, y: height - 4 }, `step ${x0}`));
  chart.append(svg("text", { x: width - 8, y: height - 4, "text-anchor": "end" }, String(x1)));
  chart.append(svg("polyline", { points: xs.map((v, i) => `${x(v).toFixed(1)},${y(ys[i]).toFixed(1)}`).join(" ") }));
  $("loss").replaceChildren(chart);
}

function phaseColor(phase) {
  let index = state.phases.indexOf(phase);
  if (index < 0) index = state.phases.push(phase) - 1;
  return `p${Math.min(index, 5)}`;
}

// Only visible rows exist, so that jobs with hundreds of nodes cost no more than small ones.
function paintNodes() {
  const box = $("nodes"), space = $("nodes-space"), count = state.nodes.length;
  const height = `${count * ROW}px`;
  if (space.style.height !== height) space.style.height = height;
  box.setAttribute("aria-rowcount", String(count + 1));
  setText($("nodes-count"), String(count));
  const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 4);
  const last = Math.min(count, first + Math.ceil(box.clientHeight / ROW) + 9);
  while (space.children.length < last - first) space.append(newNodeRow());
  while (space.children.length > last - first) space.lastChild.remove();
  for (let i = first; i < last; i += 1) fillNodeRow(space.children[i - first], state.nodes[i], i);
  const legend = $("legend");
  if (legend.childElementCount !== state.phases.length) {
    legend.replaceChildren(...state.phases.map((phase) =>
      el("span", {}, el("span", { class: `key ${phaseColor(phase)}` }), phase)));
  }
}
function newNodeRow() {
  const row = el("div", { class: "node", role: "row" });
  for (let i = 0; i < 6; i += 1) row.append(el("span", { role: "cell" }));
  row.children[2].append(el("span"));
  row.children[5].className = "ranks";
  return row;
}
function fillNodeRow(row, node, index) {
  const top = `${index * ROW}px`;
  if (row.style.top !== top) row.style.top = top;
  row.setAttribute("aria-rowindex", String(index + 2));
  const cells = row.children, list = node.progress;
  setText(cells[0], node.group_rank < 0 ? DASH : String(node.group_rank));
  setText(cells[1], node.host);
  cells[1].title = `${node.host} (${node.address})`;
  badge(cells[2].firstChild, node.connected ? node.state : "disconnected");
  setText(cells[3], seconds(node.last_heard));
  setText(cells[4], list.length ? String(Math.min(...list.map((rank) => rank.step))) : DASH);
  const box = cells[5];
  if (!list.length) {
    if (box.textContent !== "not reported") box.replaceChildren("not reported");
    return;
  }
  if (box.children.length !== list.length) {
    box.replaceChildren(...list.map(() => el("span", { class: "rank", role: "img" })));
  }
  list.forEach((rank, i) => {
    const cell = box.children[i], late = state.step - rank.step > LATE_STEPS;
    setClass(cell, `rank ${rank.phase ? phaseColor(rank.phase) : ""} ${late ? "late" : ""}`);
    setText(cell, late ? "!" : "");
    const text = `rank ${rank.rank}: step ${rank.step}, ${rank.phase || "no phase"}${late ? ", late" : ""}`;
    if (cell.title !== text) { cell.title = text; cell.setAttribute("aria-label", text); }
  });
}

function paintSlow(job) {
  const slow = state.ranks.sort((a, b) => a.step - b.step || b.ago - a.ago).slice(0, 5);
  const lines = slow.map((rank) => {
    const behind = state.step - rank.step;
    return `rank ${rank.rank} on ${rank.host}: step ${rank.step}${behind > 0 ? ` (${behind} behind)` : ""}` +
      `, ${rank.phase || "no phase"} for ${seconds(rank.ago)}`;
  });
  if (isSlow(job)) lines.unshift(hangLines(job.hang)[0]);
  fillList($("slow"), lines.length ? lines : ["Not reported."]);
}
function fillList(list, lines) {
  while (list.children.length < lines.length) list.append(el("li"));
  while (list.children.length > lines.length) list.lastChild.remove();
  lines.forEach((line, i) => setText(list.children[i], line));
}

function causeText(failure) {
  const how = failure.signal ? `signal ${failure.signal}` : `exit code ${failure.exit_code}`;
  const who = failure.rank < 0 ? failure.host : `rank ${failure.rank} on ${failure.host}`;
  const where = failure.progress ? `, ${failure.progress}` : "";
  const memory = failure.oom_killed ? "out of memory, " : "";
  return `${who}: ${memory}${how}${where}${failure.message ? `: ${failure.message}` : ""}`;
}
function paintCauses(job) {
  const items = state.events.filter((event) => event.kind === "round.stopped" || event.kind === "job.failed");
  const cause = !items.length && job.verdict && job.verdict.first_cause;  // the events are lost
  if (cause) items.push({ round: job.round, time: job.end, failure: cause });
  const key = `${items.length}:${state.newest}`;
  if ($("causes").dataset.key === key) return;
  $("causes").dataset.key = key;
  const nodes = items.map((event) => {
    const item = el("li", {}, el("strong", {}, `Round ${event.round}`), ` ${timeText(event.time)} `,
      event.failure ? causeText(event.failure) : event.detail);
    if (event.failure && event.failure.traceback) {
      item.append(el("details", {}, el("summary", {}, "Traceback"), el("pre", {}, event.failure.traceback)));
    }
    return item;
  });
  $("causes").replaceChildren(...(nodes.length ? nodes : [el("li", { class: "quiet" }, "None.")]));
}

// ---- what the workers do: asked for by a click, and again by the next one

const LOOKS = { output: outputText, usage: usageText, stacks: stacksText };
async function look(submit) {
  submit.preventDefault();
  const what = submit.submitter.value, job = state.job;
  const ranks = $("look-ranks").value.trim();
  setText($("look-status"), "asking");
  let status, text = "";
  try {
    const answer = await fetchJson(
      `/api/v1/inspect?job=${encodeURIComponent(job)}&what=${what}&rank=${encodeURIComponent(ranks)}`);
    if (answer.error) throw new Error(answer.error);
    text = LOOKS[what](answer) +
      answer.silent.map((node) => `node ${node.host}: no answer: ${node.reason}\n`).join("");
    status = timeText(new Date());
  } catch (error) {
    if (error instanceof NeedsLogin) return askForToken();
    status = error instanceof TypeError ? "no response" : error.message;
  }
  if (state.job !== job) return;
  setText($("look-status"), status);
  $("look-text").hidden = !text;
  setText($("look-text"), text);
  if (what === "output") $("look-text").scrollTop = $("look-text").scrollHeight;
}
function outputText(answer) {
  const lines = (output) => (output.text ? output.text.split("\n") : []);
  const unseen = answer.outputs.filter((output) => !output.seen);
  return answer.outputs.flatMap((output) =>
    lines(output).map((line) => `[rank${output.rank} ${output.host}]: ${line}\n`)).join("") +
    unseen.map((output) => `rank ${output.rank}: its ${output.stream} does not pass through the launcher; ` +
      "start ddprun with --log-dir\n").join("");
}
function usageText(answer) {
  const percent = (share) => (share === undefined ? DASH : `${Math.round(100 * share)}%`);
  const size = (bytes) => (bytes === undefined ? DASH : `${(bytes / 1048576).toFixed(1)} MiB`);
  const rows = answer.usages.map((u) => [String(u.rank), u.host, u.pid ? String(u.pid) : "not running", percent(u.cpu),
    size(u.memory_bytes), percent(u.gpu), size(u.gpu_memory_bytes), size(u.net), size(u.io),
    u.collectives === undefined ? DASH : u.collectives.toFixed(1)]);
  rows.unshift(["RANK", "HOST", "PID", "CPU", "MEMORY", "GPU", "GPU MEMORY", "NETWORK/s", "FILES/s", "COLLECTIVES/s"]);
  const widths = rows[0].map((_, i) => Math.max(...rows.map((row) => row[i].length)));
  return rows.map((row) => `${row.map((cell, i) => cell.padEnd(widths[i] + 2)).join("").trimEnd()}\n`).join("");
}
function stacksText(answer) {
  return answer.ranks.map((rank) =>
    `rank ${rank.rank} (${rank.host}${rank.pid ? `, pid ${rank.pid}` : ""}): ${rank.state}\n${rank.text}\n`).join("");
}

// ---- events

function timeText(time) {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? "" : date.toLocaleTimeString([], { hour12: false });
}
function addEvent(event) {
  if (event.number <= state.newest) return;
  state.newest = event.number;
  state.events.unshift(event);
  if (state.events.length > MAX_EVENTS) state.events.pop();
  const list = $("timeline");
  list.prepend(eventItem(event, true));
  while (list.children.length > MAX_EVENTS) list.lastChild.remove();
}
function eventItem(event, fresh) {
  const item = el("li", fresh ? { class: "fresh" } : {}, el("time", { datetime: event.time }, timeText(event.time)),
    el("span", { class: "kind" }, event.kind));
  if (state.view === "list" && event.job_id) {
    item.append(el("a", { href: `#/jobs/${encodeURIComponent(event.job_id)}` }, event.job_id), " ");
  }
  const what = [event.round ? `round ${event.round}` : "", event.host || "", event.detail || "",
    event.actor ? `by ${event.actor}` : ""];
  item.append(what.filter((part) => part).join(", "));
  return item;
}
function paintEvents() {
  $("timeline").replaceChildren(...state.events.map((event) => eventItem(event, false)));
}

// ---- views, keys, theme

function route() {
  const match = /^#\/jobs\/(.+)$/.exec(location.hash);
  state.view = match ? "job" : "list";
  state.job = "";
  if (match) {
    try { state.job = decodeURIComponent(match[1]); } catch { state.view = "list"; }
  }
  Object.assign(state, { nodes: [], phases: [], loss: [], events: [], newest: -1 });
  $("nodes").scrollTop = 0;
  delete $("causes").dataset.key;
  $("look-text").hidden = true;
  setText($("look-status"), "");
  $("list").hidden = state.view !== "list";
  $("job").hidden = state.view !== "job";
  $("events").hidden = false;
  document.title = state.view === "job" ? `${state.job} - rendezvousd` : "rendezvousd";
  paintEvents();
  listen();
  refresh();
}
function moveFocus(by) {
  const links = [...$("jobs").tBodies[0].querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  const next = links[Math.min(links.length - 1, Math.max(0, at + by))];
  if (next) next.focus();
}
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !$("login").hidden) return;
  if (event.target instanceof HTMLInputElement) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const list = state.view === "list";
  if (event.key === "/" && list) $("filter").focus();
  else if (event.key === "j" && list) moveFocus(1);
  else if (event.key === "k" && list) moveFocus(-1);
  else if (event.key === "u" && !list) location.hash = "#/";
  else if (event.key === "t") switchTheme();
  else return;
  event.preventDefault();
}
function setTheme(name) {
  document.documentElement.dataset.theme = name;
}
function switchTheme() {
  const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", name); } catch { /* it then lasts as long as the page */ }
  setTheme(name);
}
function firstTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let kept = null;
  try { kept = localStorage.getItem("theme"); } catch { /* not allowed */ }
  setTheme(kept || (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => { if (!kept) setTheme(dark.matches ? "dark" : "light"); });
}

firstTheme();
$("theme").addEventListener("click", switchTheme);
$("login-form").addEventListener("submit", logIn);
$("look").addEventListener("submit", look);
$("filter").addEventListener("input", () => { state.filter = $("filter").value; paintJobs(state.jobs); });
$("nodes").addEventListener("scroll", () => requestAnimationFrame(paintNodes), { passive: true });
document.addEventListener("keydown", onKey);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
addEventListener("hashchange", route);
setInterval(() => { if (!document.hidden && $("login").hidden) refresh(); }, POLL_MS);
route();
