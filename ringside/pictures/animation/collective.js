// Chunks that travel between ranks: places, lines between them, and messages on these at a moment of the clock.
const SVG = "http://www.w3.org/2000/svg";

function draw(parent, name, attributes = {}, text = "") {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== "") element.textContent = text;
  parent.append(element);
  return element;
}

// The last place of a list sorted by `key` whose key is not above the value; -1 before the first.
function lastUpTo(list, value, key) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(list[middle]) <= value) low = middle + 1; else high = middle;
  }
  return low - 1;
}

const STRIP = {top: 352, height: 34, left: 12, width: 376};

function collectivePanel(picture, scene, end) {
  const svg = draw(picture, "svg", {viewBox: "0 0 400 392", "aria-hidden": "true"});
  const wires = new Map();
  const lines = draw(svg, "g");
  for (const [from, to] of scene.moves) {
    const key = `${from} ${to}`;
    if (!wires.has(key)) wires.set(key, wire(lines, scene, from, to));
  }
  const messages = draw(svg, "g");
  const ranks = scene.nodes.map(([number, x, y, isRoot]) => rank(svg, scene, number, x, y, isRoot));
  const strip = curve(svg, scene, end);
  const pool = [];
  const longest = Math.max(...scene.moves.map((move) => move[4] - move[2]));

  function moving(time) {
    const last = lastUpTo(scene.moves, time, (move) => move[2]), found = [];
    for (let at = last; at >= 0 && scene.moves[at][2] > time - longest - 1; at -= 1)
      if (scene.moves[at][4] > time) found.push(scene.moves[at]);
    return found;
  }

  function show(time) {
    for (const line of wires.values()) line.element.classList.remove("lit");
    const now = moving(time);
    now.forEach((move, place) => {
      const [from, to, sent, left, delivered, chunk, complete] = move;
      const line = wires.get(`${from} ${to}`);
      if (time < left) line.element.classList.add("lit");
      const share = (time - sent) / (delivered - sent);
      if (place === pool.length) pool.push(message(messages, scene.radius));
      placeMessage(pool[place], line.x1 + share * (line.x2 - line.x1), line.y1 + share * (line.y2 - line.y1), chunk, complete);
    });
    pool.slice(now.length).forEach((one) => one.group.setAttribute("visibility", "hidden"));
    let complete = 0;
    scene.nodes.forEach(([number], place) => {
      const own = scene.shares[number], at = own[Math.max(lastUpTo(own, time, (one) => one[0]), 0)];
      ranks[place].gathered.setAttribute("stroke-dasharray", `${100 * at[1]} 200`);
      ranks[place].complete.setAttribute("stroke-dasharray", `${100 * at[2]} 200`);
      if (place < scene.ranks) complete += at[2];
    });
    const x = STRIP.left + STRIP.width * Math.min(time / end, 1);
    strip.setAttribute("x1", x);
    strip.setAttribute("x2", x);
    return `${now.length} messages on their way, ${Math.round(100 * complete / scene.ranks)} % of results complete` +
      (time >= scene.end ? ": done" : "");
  }

  const moments = scene.moves.flatMap((move) => [move[2], move[4]]);
  return {show, moments};
}

function wire(parent, scene, from, to) {
  const [, ax, ay] = scene.nodes[from], [, bx, by] = scene.nodes[to];
  const length = Math.hypot(bx - ax, by - ay) || 1, aside = Math.min(4, scene.radius / 2);
  const dx = -(by - ay) / length * aside, dy = (bx - ax) / length * aside;
  const ends = {x1: ax + dx, y1: ay + dy, x2: bx + dx, y2: by + dy};
  return {...ends, element: draw(parent, "line", {...ends, class: "wire"})};
}

// A circle with two sectors, the light one for what has been gathered, the dark one for what is complete.
function rank(svg, scene, number, x, y, isRoot) {
  const radius = scene.radius, isSwitch = number >= scene.ranks;
  const turned = `rotate(-90 ${x} ${y})`;
  draw(svg, "circle", {cx: x, cy: y, r: radius + (isRoot ? 2.5 : 0), class: isSwitch ? "switch" : "rank"});
  const sector = {cx: x, cy: y, r: radius / 2 - 0.5, "stroke-width": radius - 1, pathLength: 100, transform: turned};
  const gathered = draw(svg, "circle", {...sector, class: "gathered"});
  const complete = draw(svg, "circle", {...sector, class: "complete"});
  if (radius > 6) draw(svg, "text", {x, y, class: "name"}, isSwitch ? `s${number - scene.ranks}` : number);
  return {gathered, complete};
}

function message(parent, radius) {
  const group = draw(parent, "g"), size = Math.max(0.62 * radius, 3), side = 0.92 * size;
  return {
    group,
    part: draw(group, "circle", {r: size, class: "part"}),
    whole: draw(group, "rect", {x: -side, y: -side, width: 2 * side, height: 2 * side, rx: 1, class: "whole"}),
    text: draw(group, "text", {"font-size": size > 4 ? 1.15 * size : 0}),
  };
}

function placeMessage(one, x, y, chunk, complete) {
  one.group.setAttribute("visibility", "visible");
  one.group.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
  one.part.setAttribute("display", complete ? "none" : "inline");
  one.whole.setAttribute("display", complete ? "inline" : "none");
  one.text.setAttribute("class", complete ? "chunk-of-whole" : "chunk-of-part");
  one.text.textContent = chunk;
}

// The share of ranks that send over the common clock; returns the line that marks the moment.
function curve(svg, scene, end) {
  const width = STRIP.width * scene.end / end, step = width / scene.busy.length;
  const foot = STRIP.top + STRIP.height;
  const points = scene.busy.flatMap((share, place) => {
    const y = (foot - share * STRIP.height).toFixed(1);
    return [`${(STRIP.left + place * step).toFixed(1)},${y}`, `${(STRIP.left + (place + 1) * step).toFixed(1)},${y}`];
  });
  draw(svg, "polygon", {points: `${STRIP.left},${foot} ${points.join(" ")} ${STRIP.left + width},${foot}`, class: "strip"});
  draw(svg, "rect", {x: STRIP.left, y: STRIP.top, width: STRIP.width, height: STRIP.height, class: "strip-frame"});
  return draw(svg, "line", {x1: STRIP.left, x2: STRIP.left, y1: STRIP.top - 3, y2: foot + 3, class: "cursor"});
}
