// A little help for pages that work without it: dropping files, waiting for long work, looking closer at the map.
"use strict";

// A file may be dropped anywhere on its form.
for (const form of document.querySelectorAll("[data-drop]")) {
  const input = form.querySelector("input[type=file]");
  for (const kind of ["dragover", "dragleave", "drop"]) {
    form.addEventListener(kind, (event) => {
      event.preventDefault();
      form.classList.toggle("over", kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files.length) {
        input.files = event.dataTransfer.files;
        form.requestSubmit();
      }
    });
  }
}

// Sent twice, asked once: every form of a batch has a name of its own.
for (const input of document.querySelectorAll("[data-once]")) {
  const words = new Uint32Array(4);
  crypto.getRandomValues(words);
  input.value = "page-" + Array.from(words, (w) => w.toString(16)).join("");
}

// What is under way: say how far it is, and show the page anew when it is done; but never under somebody's hands.
const waiting = document.querySelector("[data-poll]");
if (waiting) {
  let touched = false;
  addEventListener("input", () => { touched = true; });
  const look = async () => {
    try {
      const answer = await fetch(waiting.dataset.poll, { headers: { accept: "application/json" } });
      const said = await answer.json();
      const busy = "busy" in said ? said.busy : said.state === "waiting" || said.state === "running";
      if (!answer.ok || !busy) {
        if (!touched) return location.reload();
        waiting.textContent = "There is something new: load the page again to see it.";
        return;
      }
      waiting.querySelector("[data-step]").textContent = said.step;
    } catch {
      waiting.querySelector("[data-step]").textContent = "the server does not answer; waiting for it";
    }
    setTimeout(look, 700);
  };
  setTimeout(look, 500);
}

// The map: what is dragged over becomes the window; a row and its point are marked together.
const map = document.querySelector("[data-map]");
if (map) {
  const brush = map.querySelector("[data-brush]");
  const form = document.querySelector("[data-map-form]");
  const ends = JSON.parse(map.dataset.ends);
  const place = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
  let start = null;
  const draw = (end) => {
    const box = { x: Math.min(start.x, end.x), y: Math.min(start.y, end.y), width: Math.abs(end.x - start.x), height: Math.abs(end.y - start.y) };
    for (const name in box) brush.setAttribute(name, box[name]);
    return box;
  };
  map.addEventListener("pointerdown", (event) => { start = place(event); });
  map.addEventListener("pointermove", (event) => { if (start) draw(place(event)); });
  addEventListener("pointerup", (event) => {
    if (!start) return;
    const box = draw(place(event));
    start = null;
    if (box.width < 12 || box.height < 12) return brush.setAttribute("width", 0);
    const across = (v) => ends[0][0] + (v / 960) * (ends[0][1] - ends[0][0]);
    const up = (v) => ends[1][0] + (1 - v / 600) * (ends[1][1] - ends[1][0]);
    form.x0.value = across(box.x);
    form.x1.value = across(box.x + box.width);
    form.y0.value = up(box.y + box.height);
    form.y1.value = up(box.y);
    form.requestSubmit();
  });
  const mark = (id, on) => {
    for (const one of document.querySelectorAll("[data-id]")) if (one.dataset.id === id) one.classList.toggle("marked", on);
  };
  for (const kind of ["pointerover", "pointerout"]) {
    document.addEventListener(kind, (event) => {
      const one = event.target.closest("[data-id]");
      if (one) mark(one.dataset.id, kind === "pointerover");
    });
  }
}
