// Bars and tables of answers, from the values that the command prints as JSON.
const shown = {
  size: (bytes) => scaled(bytes, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]),
  time: (seconds) => scaled(seconds * 1e9, 1000, ["ns", "us", "ms", "s"]),
  share: (value) => `${(100 * value).toFixed(1)} %`,
};

function scaled(value, factor, units) {
  let place = 0;
  while (Math.abs(value) >= factor && place < units.length - 1) { value /= factor; place += 1; }
  return `${Number(value.toPrecision(4))} ${units[place]}`;
}

function element(parent, name, properties = {}, text = "") {
  const made = document.createElement(name);
  Object.assign(made, properties);
  if (text !== "") made.textContent = text;
  parent.append(made);
  return made;
}

function table(parent, heads, rows) {
  const wide = element(parent, "div", {className: "wide", tabIndex: 0});
  const made = element(wide, "table"), head = element(element(made, "thead"), "tr"), body = element(made, "tbody");
  heads.forEach((text) => element(head, "th", {scope: "col"}, text));
  for (const row of rows) {
    const line = element(body, "tr");
    row.forEach((text) => element(line, "td", {}, String(text)));
  }
}

// A row of a name, a track with parts of a whole, and a text; an old row of the same name moves to its new widths.
function bar(parent, name, parts, whole, text, names) {
  let row = parent.querySelector(`[data-row="${CSS.escape(name)}"]`);
  if (!row) {
    row = element(parent, "div", {className: "row"});
    row.dataset.row = name;
    element(row, "span", {}, name);
    element(row, "div", {className: "track"}).setAttribute("role", "img");
    element(row, "span", {className: "text"});
  }
  const [, track, label] = row.children;
  label.textContent = text;
  track.setAttribute("aria-label", parts.map(([key, , said]) => `${key} ${said}`).join(", "));
  const old = new Map([...track.querySelectorAll(".part")].map((one) => [one.dataset.key, one]));
  for (const [key, value, said] of parts) {
    const part = old.get(key) || element(track, "div");
    old.delete(key);
    part.className = key === "bubble" ? "part waiting" : `part k${names.indexOf(key) % 10}`;
    part.dataset.key = key;
    part.title = `${key}: ${said}`;
    part.style.width = `${Math.max(100 * value / whole, 0)}%`;
  }
  old.forEach((part) => part.remove());
  row.dataset.fresh = "yes";
  return track;
}

function bars(parent, className, title, draw) {
  let group = parent.querySelector(`.${className}`);
  if (!group) {
    group = element(parent, "div", {className});
    element(group, "h3", {}, title);
    element(group, "div", {className: "rows"});
    element(group, "ul", {className: "legend"});
  }
  const [, rows, legend] = group.children;
  [...rows.children].forEach((row) => { row.dataset.fresh = ""; });
  const names = draw(rows);
  [...rows.children].filter((row) => !row.dataset.fresh).forEach((row) => row.remove());
  legend.replaceChildren();
  names.forEach((name, place) => {
    const item = element(legend, "li");
    element(item, "i", {className: name === "bubble" ? "waiting" : `k${place % 10}`});
    item.append(name);
  });
}

// Memory of each stage against the GPU's; the hatched end is the reserve.
function memoryBars(parent, answer) {
  const all = answer.memory_bytes, stages = answer.rows.filter((row) => row.memory_bytes);
  const pools = stages.length
    ? stages.map((row) => [`stage ${row.stage ?? row.rank}`, row.memory_bytes.pools, row.memory_bytes.total])
    : all ? [["each GPU", flat(all), all.total]] : [];
  if (!pools.length || !all || !all.of_gpu) return;
  bars(parent, "memory", `Memory of ${shown.size(all.of_gpu)} a GPU`, (rows) => {
    const names = [...new Set(pools.flatMap(([, parts]) => Object.keys(parts)))];
    const whole = Math.max(all.of_gpu, ...pools.map(([, , total]) => total));
    for (const [name, parts, total] of pools) {
      const track = bar(rows, name, Object.entries(parts).map(([key, value]) => [key, value, shown.size(value)]),
        whole, shown.size(total), names);
      track.querySelectorAll(".reserve, .mark").forEach((one) => one.remove());
      const reserve = element(track, "div", {className: "reserve", title: `reserve: ${shown.size(all.reserve)}`});
      reserve.style.left = `${100 * (all.of_gpu - all.reserve) / whole}%`;
      reserve.style.right = `${100 * (1 - all.of_gpu / whole)}%`;
      element(track, "div", {className: "mark", title: `the GPU: ${shown.size(all.of_gpu)}`}).style.left =
        `calc(${100 * all.of_gpu / whole}% - 2px)`;
    }
    return names;
  });
}

// The parts of a data-parallel GPU's memory: the numbers that are not about the whole of it.
function flat(memory) {
  const whole = ["total", "of_gpu", "reserve", "margin", "last_rank", "rank", "at_s", "first_step"];
  return Object.fromEntries(Object.entries(memory).filter(([key, value]) => typeof value === "number" && !whole.includes(key)));
}

// Where the time of each stage of a step goes.
function stepBars(parent, answer) {
  const whole = answer.step_s;
  bars(parent, "step", `Parts of a step of ${shown.time(whole)}`, (rows) => {
    const lists = answer.rows.map((row) => [
      row.stage !== undefined ? `stage ${row.stage}` : row.rank !== undefined ? `rank ${row.rank}` : "each rank", [
        ["compute", row.compute_s], ["contention", row.contention_s], ["copies", row.copy_s],
        ...(row.exposed_by_s ? Object.entries(row.exposed_by_s) : [["exposed communication", row.exposed_s]])
          .map(([key, value]) => [row.exposed_by_s ? `${key}, exposed` : key, value]),
        ["bubble", row.bubble_s],
      ].filter(([, value]) => value)]);
    const names = [...new Set(lists.flatMap(([, parts]) => parts.map(([key]) => key)))];
    for (const [name, parts] of lists)
      bar(rows, name, parts.map(([key, value]) => [key, value, shown.time(value)]), whole,
        `${shown.share((parts.find(([key]) => key === "compute") || [0, 0])[1] / whole)} compute`, names);
    return names;
  });
}

// The times of a collective, each with its band.
function timeTable(parent, answer) {
  parent.replaceChildren();
  const most = Math.max(...answer.rows.map((row) => row.time_hi_s));
  for (const row of answer.rows) {
    const line = element(parent, "div", {className: "row"});
    element(line, "span", {}, shown.size(row.size_bytes));
    const track = element(line, "div", {className: "track"});
    track.setAttribute("role", "img");
    track.setAttribute("aria-label", `${shown.time(row.time_s)}, from ${shown.time(row.time_lo_s)} to ${shown.time(row.time_hi_s)}`);
    const band = element(track, "div", {className: "band"});
    band.style.left = `${95 * row.time_lo_s / most}%`;
    band.style.width = `${95 * (row.time_hi_s - row.time_lo_s) / most}%`;
    element(track, "div", {className: "time"}).style.left = `${95 * row.time_s / most}%`;
    element(line, "span", {}, shown.time(row.time_s));
  }
  table(parent, ["size", "time", "from", "to", "bus bandwidth", "algorithm", "protocol", "engine"], answer.rows.map((row) => [
    shown.size(row.size_bytes), shown.time(row.time_s), shown.time(row.time_lo_s), shown.time(row.time_hi_s),
    `${Number(row.busbw_GBps.toPrecision(4))} GB/s`, row.algorithm, row.protocol, row.engine]));
}

function limitsTable(parent, rows) {
  parent.replaceChildren();
  table(parent, ["what if", "time", "as is = 1", "limited by", "for", "busiest"], rows.map((row) => [
    row.change || "as is", shown.time(row.time_s), row.times === null ? "-" : Number(row.times.toPrecision(4)),
    row.limit, shown.share(row.share), row.busiest || "-"]));
}
