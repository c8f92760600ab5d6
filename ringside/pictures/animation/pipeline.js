// Stages of a pipeline, one below the other: boxes that a moment has reached are filled, messages move down or up.
const LANES = {left: 62, width: 726, top: 8, height: 30, gap: 8};

function pipelinePanel(picture, scene, end) {
  const rows = scene.stages.length, tall = rows * (LANES.height + LANES.gap) + 2 * LANES.top;
  const svg = draw(picture, "svg", {viewBox: `0 0 800 ${tall}`, "aria-hidden": "true"});
  const x = (time) => LANES.left + LANES.width * time / end;
  const y = (row) => LANES.top + row * (LANES.height + LANES.gap);
  scene.stages.forEach((name, row) => {
    draw(svg, "rect", {x: LANES.left, y: y(row), width: LANES.width, height: LANES.height, class: "lane"});
    draw(svg, "text", {x: 4, y: y(row) + LANES.height / 2, class: "stage"}, name);
  });
  const boxes = scene.boxes.map(([row, begin, finish, kind, number]) => {
    const width = x(finish) - x(begin), middle = y(row) + LANES.height / 2;
    const area = {x: x(begin), y: y(row), height: LANES.height};
    draw(svg, "rect", {...area, width, class: "box later"});
    const box = draw(svg, "rect", {...area, width: 0, class: `box ${kind}`});
    const label = width > 11 && number !== null;
    const text = label && draw(svg, "text", {x: x(begin) + width / 2, y: middle, class: "later-text"}, number);
    return {row, begin, finish, kind, box, text};
  });
  const dots = scene.messages.map(([from, to, sent, received]) =>
    ({from, to, sent, received, element: draw(svg, "circle", {r: 5, class: "message", visibility: "hidden"})}));
  const cursor = draw(svg, "line", {y1: 2, y2: tall - 2, class: "cursor"});

  function show(time) {
    let busy = 0, moving = 0;
    for (const {begin, finish, kind, box, text} of boxes) {
      box.setAttribute("width", Math.max(x(Math.min(time, finish)) - x(begin), 0));
      if (text) text.setAttribute("class", time >= (begin + finish) / 2 ? `on-${kind}` : "later-text");
      if (begin <= time && time < finish) busy += 1;
    }
    for (const {from, to, sent, received, element} of dots) {
      const now = sent <= time && time < received;
      element.setAttribute("visibility", now ? "visible" : "hidden");
      if (!now) continue;
      const share = (time - sent) / (received - sent);
      element.setAttribute("cx", x(time));
      element.setAttribute("cy", y(from) + LANES.height / 2 + share * (y(to) - y(from)));
      moving += 1;
    }
    cursor.setAttribute("x1", x(time));
    cursor.setAttribute("x2", x(time));
    return `${busy} of ${rows} stages compute, ${rows - busy} wait; ${moving} messages on their way or waiting`;
  }

  return {show, moments: scene.boxes.flatMap(([, begin, finish]) => [begin, finish])};
}
