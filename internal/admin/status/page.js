"use strict";
// Keeps the page up to date: every few seconds the state is fetched and replaces the old one. Forms
// and configuration stay as they are. Texts come from attributes of the page, in its language.
// Without this script the page is as it was when it was loaded.
(() => {
  const every = 3000, timeout = 10000;
  const live = document.getElementById("live"), lost = document.getElementById("lost");
  const fresh = document.getElementById("fresh"), announce = document.getElementById("announce");
  let title = live.querySelector(".verdict").dataset.title, since = new Date();

  // What is being read or used is not taken away.
  const busy = () => {
    const selection = getSelection();
    return !selection.isCollapsed && live.contains(selection.anchorNode);
  };

  const show = (html) => {
    const scrolled = [...live.querySelectorAll(".scroll")].map((e) => e.scrollLeft);
    const focused = live.contains(document.activeElement) ?
      [...live.querySelectorAll("[tabindex], a")].indexOf(document.activeElement) : -1;
    live.innerHTML = html;
    live.querySelectorAll(".scroll").forEach((e, i) => { e.scrollLeft = scrolled[i] || 0; });
    if (focused >= 0) {
      live.querySelectorAll("[tabindex], a")[focused]?.focus({ preventScroll: true });
    }
    const verdict = live.querySelector(".verdict");
    fresh.textContent = fresh.dataset.live.replace("{clock}", verdict.dataset.clock);
    if (verdict.dataset.title !== title) {
      title = verdict.dataset.title;
      document.title = document.title.replace(/^[^–]*/, title + " ");
      announce.textContent = title + " – " + live.querySelector(".why").textContent;
    }
  };

  const update = async () => {
    if (document.hidden || busy()) {
      return;
    }
    try {
      const response = await fetch("/status?part=live", { cache: "no-store", signal: AbortSignal.timeout(timeout) });
      if (!response.ok) {
        throw new Error("status " + response.status);
      }
      show(await response.text());
      since = new Date();
      lost.hidden = true;
      document.body.classList.add("live");
    } catch {
      document.body.classList.remove("live");
      const text = lost.dataset.text.replace("{time}", since.toLocaleTimeString(document.documentElement.lang));
      if (lost.hidden || lost.textContent !== text) {
        lost.textContent = text;
        lost.hidden = false;
      }
      fresh.textContent = fresh.dataset.stale;
    }
  };

  const loop = async () => {
    await update();
    setTimeout(loop, every);
  };
  document.addEventListener("visibilitychange", update);
  document.querySelector("#explanation, #purged, #confirm button")?.focus();
  loop();
})();
