// Controls become the page's address and a question for each view; only the newest answer is shown.
{
  const form = document.querySelector("form.controls");
  const screen = document.body.dataset.screen;
  const at = (id) => document.getElementById(id);

  function query() {
    const state = new URLSearchParams();
    for (const [name, value] of new FormData(form)) state.set(name, value.trim());
    for (const box of form.querySelectorAll("[type=checkbox]")) if (!box.checked) state.set(box.name, "");
    return state.toString();
  }

  // The page's address: the state of the controls, and the views that are open.
  function keep() {
    const open = [...document.querySelectorAll("details[data-view]")].filter((one) => one.open);
    history.replaceState(null, "", `?${query()}&open=${open.map((one) => one.dataset.view).join(",")}`);
  }

  // One view of the page: its newest question, and what is shown of the answer.
  class View {
    constructor(place) {
      this.place = place;
      this.name = place.dataset.view;
      this.number = 0;
      this.part("cancel").addEventListener("click", () => this.cancel());
    }

    part(name) { return this.place.querySelector(`.${name}`); }

    say(text, wrong = false) {
      this.part("state").textContent = text;
      this.part("state").classList.toggle("wrong", wrong);
    }

    cancel() {
      this.stop();
      this.say("cancelled; change a control to ask again");
    }

    stop() {
      this.number += 1;
      this.under_way?.abort();
      this.part("cancel").hidden = true;
    }

    async ask(state) {
      this.stop();
      const number = this.number, abort = this.under_way = new AbortController();
      const isNewest = () => number === this.number;
      this.place.classList.add("old");
      const late = setTimeout(() => { if (isNewest()) { this.say("asking ..."); this.part("cancel").hidden = false; } }, 400);
      let answered = false;
      try {
        const known = new URLSearchParams({known: this.known || ""});
        const response = await fetch(`${screen}/${this.name}?${state}&${known}`, {signal: abort.signal});
        if (!response.ok) throw new Error(await response.text());
        for await (const message of messages(response)) {
          if (!isNewest()) return false;
          if (message.spelled) this.spelled(message.spelled);
          if (message.same) { this.settle(); answered = true; }
          if (message.progress) { this.say(message.progress); this.part("cancel").hidden = false; }
          if (message.error) throw new Error(message.error);
          if (message.answer) { this.show(message.answer); this.known = this.command; answered = true; }
        }
      } catch (error) {
        if (isNewest()) this.fail(error);
      } finally {
        clearTimeout(late);
        if (isNewest()) this.part("cancel").hidden = true;
      }
      return answered && isNewest();
    }

    settle() {
      this.place.classList.remove("old");
      this.say("");
    }

    fail(error) {
      this.known = "";
      this.part("headline").textContent = "";
      this.part("shown").replaceChildren();
      this.place.classList.remove("old");
      this.say(error instanceof TypeError ? "the server has ended; start ringside serve again" : error.message, true);
      if (this.name === "answer") at("json").textContent = "";
    }

    spelled({command, python}) {
      this.command = command;
      if (this.name !== "answer") { this.part("command").textContent = command; return; }
      at("command").textContent = command;
      at("python").textContent = python;
    }

    show(answer) {
      this.settle();
      this.part("headline").textContent = answer.headline;
      const place = this.part("shown");
      if (answer.picture) {
        const image = place.querySelector("img") || element(place, "img");
        image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(answer.picture)}`;
        image.alt = answer.headline;
      } else if (answer.rows) limitsTable(place, answer.rows);
      else if (screen === "collective") timeTable(place, JSON.parse(answer.json));
      else {
        const content = JSON.parse(answer.json);
        memoryBars(place, content);
        stepBars(place, content);
        verdict(place, content);
      }
      if (answer.json) at("json").textContent = answer.json;
      place.querySelector(".notes")?.remove();
      if (answer.notes.length) {
        const list = element(place, "ul", {className: "notes"});
        answer.notes.forEach((note) => element(list, "li", {}, note));
      }
    }
  }

  function verdict(place, {verdict, memory_bytes: memory}) {
    place.querySelector(".verdict")?.remove();
    if (!verdict || !memory) return;
    const margin = memory.margin >= 0 ? `${shown.size(memory.margin)} left` : `${shown.size(-memory.margin)} too much`;
    const line = element(place, "p", {className: "verdict"}, `Memory: ${verdict}, ${margin} beside the reserve.`);
    place.prepend(line);
  }

  // The objects of a response of one JSON object a line, as they come.
  async function* messages(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const {value, done} = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) yield JSON.parse(line);
    }
  }

  const views = [...document.querySelectorAll(".view")].map((place) => new View(place));
  const [answer, ...others] = views;
  const animation = document.querySelector(".animation");
  let newest = 0, soon;

  async function change() {
    const number = ++newest, state = query();
    keep();
    others.forEach((view) => view.stop());
    await answer.ask(state);
    if (number !== newest) return;
    await Promise.all(others.filter((view) => view.place.open).map((view) => view.ask(state)));
    if (number === newest) move(state);
  }

  function move(state) {
    if (!animation) return;
    animation.querySelector(".alone").href = `${screen}/animation?${state}`;
    const frame = animation.querySelector("iframe"), address = `${screen}/animation?${state}`;
    if (animation.open && frame.getAttribute("src") !== address) frame.src = address;
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => {
    views.forEach((view) => view.place.classList.add("old"));
    clearTimeout(soon);
    soon = setTimeout(change, 60);
  });
  others.forEach((view) => view.place.addEventListener("toggle", () => {
    keep();
    if (view.place.open && view.place.classList.contains("old")) view.ask(query());
  }));
  animation?.addEventListener("toggle", () => { keep(); move(query()); });
  for (const button of document.querySelectorAll(".copy"))
    button.addEventListener("click", async () => {
      const text = at(button.dataset.of);
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      } catch { // not allowed here: the text is selected, for the keyboard
        getSelection().selectAllChildren(text);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  change();
}
