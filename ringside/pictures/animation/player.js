// The clock of all panels: play, pause, step, speed, scrub; by mouse, by keys, and in words.
{
  const WHOLE_S = 20; // seconds of a whole run at speed 1
  const player = document.querySelector(".player");
  const part = (name) => player.querySelector(`.${name}`);
  const scenes = JSON.parse(document.getElementById("scenes").textContent);
  const end = Math.max(...scenes.map((scene) => scene.end));
  const make = player.dataset.kind === "pipeline" ? pipelinePanel : collectivePanel;
  const pictures = player.querySelectorAll(".picture"), states = player.querySelectorAll(".state");
  const panels = scenes.map((scene, place) => make(pictures[place], scene, end));
  const moments = [...new Set([0, end, ...panels.flatMap((panel) => panel.moments)])].sort((a, b) => a - b);
  const near = end * 1e-6;
  let time = 0, playing = false, before = 0;

  function spelled(ns) {
    const [value, unit] = end >= 1e9 ? [ns / 1e9, "s"] : end >= 1e6 ? [ns / 1e6, "ms"] : [ns / 1e3, "us"];
    return `${value.toFixed(value >= 100 ? 1 : value >= 10 ? 2 : 3)} ${unit}`;
  }

  function show(moment) {
    time = Math.min(Math.max(moment, 0), end);
    const said = panels.map((panel) => panel.show(time));
    said.forEach((text, place) => { states[place].textContent = text; });
    part("clock").value = Math.round(1000 * time / end);
    part("clock").setAttribute("aria-valuetext", spelled(time));
    part("time").textContent = spelled(time);
    return said;
  }

  // Read out only what a person has stopped at: not sixty times a second.
  function speak() {
    const names = [...player.querySelectorAll("figcaption strong")].map((one) => one.textContent);
    part("spoken").textContent =
      `${spelled(time)}. ` + [...states].map((state, place) => `${names[place]}: ${state.textContent}`).join(". ");
  }

  function play(on) {
    playing = on;
    part("play").textContent = on ? "Pause" : "Play";
    if (!on) return speak();
    if (time >= end) show(0);
    before = performance.now();
    requestAnimationFrame(tick);
  }

  function tick(now) {
    if (!playing) return;
    show(time + (now - before) / 1000 * (end / WHOLE_S) * Number(part("speed").value));
    before = now;
    if (time >= end) play(false); else requestAnimationFrame(tick);
  }

  function step(way) {
    play(false);
    const place = lastUpTo(moments, time + near, (moment) => moment);
    if (way > 0) show(moments.find((moment) => moment > time + near) ?? end);
    else show(moments.slice(0, place + 1).reverse().find((moment) => moment < time - near) ?? 0);
    speak();
  }

  part("play").addEventListener("click", () => play(!playing));
  part("step-back").addEventListener("click", () => step(-1));
  part("step-forward").addEventListener("click", () => step(1));
  part("clock").addEventListener("input", () => { play(false); show(end * part("clock").value / 1000); speak(); });
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("button, select, input, summary")) return;
    const act = {" ": () => play(!playing), ArrowLeft: () => step(-1), ArrowRight: () => step(1)}[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  show(0);
}
