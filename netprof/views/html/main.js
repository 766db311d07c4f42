"use strict";
// Starts the page: theme, data, charts.
const Main = {
  theme() {
    const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
    let chosen = null;
    const apply = () => { root.dataset.theme = chosen ?? (dark.matches ? "dark" : "light"); Style.read(); };
    const change = () => { apply(); Main.draw(); };
    dark.addEventListener("change", change);
    document.getElementById("theme").addEventListener("click", () => { chosen = root.dataset.theme === "dark" ? "light" : "dark"; change(); });
    addEventListener("beforeprint", () => { root.dataset.theme = "light"; Style.read(); Main.draw(); Main.tracks?.still(); });
    addEventListener("afterprint", change);
    apply();
  },
  tabs(anatomies) {
    const box = document.getElementById("anatomy-tabs");
    if (box === null || anatomies.length < 2) return;
    anatomies.forEach((anatomy, i) => {
      const tab = document.createElement("button");
      tab.type = "button";
      tab.setAttribute("role", "tab");
      tab.setAttribute("aria-selected", String(i === 0));
      tab.textContent = anatomy.label;
      tab.addEventListener("click", () => {
        Main.anatomy = i;
        [...box.children].forEach((other, k) => other.setAttribute("aria-selected", String(k === i)));
        Main.drawAnatomy();
      });
      box.append(tab);
    });
  },
  jump(tracks, beginUs, lengthUs) {
    if (beginUs === null || beginUs < tracks.begin || beginUs > tracks.end) return; // it is not drawn
    document.getElementById("tracks").scrollIntoView();
    tracks.reveal(beginUs, lengthUs);
  },
  drawAnatomy() {
    const found = Main.data.anatomies[Main.anatomy];
    if (found) Charts.anatomy(found, Main.data);
  },
  draw() {
    if (!Main.tracks) return;
    const data = Main.data;
    Main.tracks.draw();
    Main.tracks.legend();
    Main.drawAnatomy();
    if (data.iterations.some((rank) => rank.count)) { Charts.overRun(data.iterations, Main.tracks); Charts.distributions(data.distributions, data.iterations.map((rank) => rank.label)); }
    if (data.bandwidths.ranks.some((rank) => rank.bytes.length)) Charts.bandwidth(data.bandwidths);
    if (data.flows.length) Charts.flows(data.flows);
    if (data.waiting) Charts.waiting(data.waiting, data.causes, Main.tracks);
    if (data.whatif) Charts.whatif(data.whatif);
  },
  async start() {
    Main.theme();
    Main.anatomy = 0;
    Main.data = JSON.parse(document.getElementById("data").textContent);
    await Data.unpackAll(Main.data.tracks);
    Main.tracks = new Tracks(Main.data.tracks, Main.data);
    Main.tabs(Main.data.anatomies);
    Main.draw();
    Main.tracks.note();
    Main.tracks.still();
    for (const button of document.querySelectorAll("button.jump")) {
      button.addEventListener("click", () => Main.jump(Main.tracks, Number(button.dataset.begin), Number(button.dataset.length)));
    }
    document.documentElement.dataset.ready = "true";
  },
};
Main.start().catch((error) => {
  console.error(error);
  document.getElementById("tracks-note").textContent = "The charts could not be drawn: " + error.message;
});
