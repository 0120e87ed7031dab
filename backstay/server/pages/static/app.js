// Everything here is a convenience: each page says and does the same without it.
"use strict";

(() => {
  const find = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));
  const stored = {
    read(name) { try { return localStorage.getItem(`backstay.${name}`); } catch { return null; } },
    write(name, value) { try { localStorage.setItem(`backstay.${name}`, value); } catch { /* a browser that keeps nothing */ } },
  };

  // Moments, in the viewer's zone; those that count from now are updated every few seconds.

  const AGO_SECONDS = 10;
  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const brief = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
  const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });
  const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

  function ago(date) {
    const seconds = (date - Date.now()) / 1000;
    const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) || UNITS[3];
    return relative.format(Math.round(seconds / size), unit);
  }

  function showTimes(within = document) {
    for (const time of all("time[datetime]", within)) {
      const date = new Date(time.dateTime);
      if (Number.isNaN(date.getTime())) continue;
      const isRelative = time.hasAttribute("data-ago");
      const words = time.hasAttribute("data-short") ? brief : exact;
      time.textContent = isRelative ? ago(date) : words.format(date);
      time.title = isRelative ? exact.format(date) : time.dateTime;
    }
  }

  function countAgo() {
    for (const time of all("time[data-ago]")) time.textContent = ago(new Date(time.dateTime));
  }

  // Buttons that copy.

  function addCopies(within = document) {
    if (!navigator.clipboard) return;
    for (const place of all("[data-copy]", within)) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "small copy";
      button.textContent = "Copy";
      const text = place.textContent.trim();
      button.addEventListener("click", async () => {
        try {
          await navigator.clipboard.writeText(text);
          say("Copied");
          button.textContent = "Copied";
        } catch {
          button.textContent = "Not allowed";
        }
        setTimeout(() => { button.textContent = "Copy"; }, 2000);
      });
      place.after(button);
    }
  }

  function say(text) {
    const place = find("#said");
    if (place) place.textContent = text;
  }

  // Parts of a page that are fetched again.

  async function fetchPart(part, href = location.href) {
    const url = new URL(href, location.href);
    url.searchParams.set("part", part);
    url.hash = "";
    const answer = await fetch(url, { headers: { accept: "text/html" }, credentials: "same-origin", redirect: "manual" });
    if (answer.status === 401) location.reload();
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return answer.text();
  }

  // Script in what comes is never run: it is parsed, not executed, and the policy forbids it besides.
  function parsed(text) {
    return new DOMParser().parseFromString(text, "text/html").body;
  }

  // Someone is in a field, has written something and not sent it yet, or is being asked.
  function isBusy(place) {
    const fields = all("input, textarea", place);
    return fields.some((one) => one === document.activeElement || one.value !== one.defaultValue) || Boolean(find("dialog[open]"));
  }

  function pathOf(element, within) {
    const steps = [];
    for (let at = element; at && at !== within; at = at.parentElement) {
      steps.unshift(Array.prototype.indexOf.call(at.parentElement.children, at));
    }
    return steps;
  }

  function replacePart(place, text) {
    const active = place.contains(document.activeElement) ? pathOf(document.activeElement, place) : null;
    const open = all("details", place).map((one) => one.open);
    place.replaceChildren(...parsed(text).childNodes);
    all("details", place).forEach((one, index) => { one.open = open[index] || false; });
    showTimes(place);
    addCopies(place);
    if (active) {
      let at = place;
      for (const step of active) at = at && at.children[step];
      if (at && at.focus) at.focus({ preventScroll: true });
    }
  }

  // Live.

  const REFRESH_MS_MIN = 1000;
  const SAY_MS_MIN = 10000;

  class Live {
    constructor(main) {
      this.main = main;
      this.place = find("#live");
      this.word = find("[data-live-word]");
      this.state = find("[data-live-state]");
      this.button = find("[data-pause]");
      this.every = Number(main.dataset.every || 0) * 1000;
      this.refreshedAt = Date.now();
      this.saidAt = 0;
      this.isPaused = stored.read("paused") === "yes";
      this.state.hidden = false;
      this.button.addEventListener("click", () => this.pause(!this.isPaused));
      document.addEventListener("visibilitychange", () => this.follow());
      addEventListener("pagehide", () => this.close());
      if (this.every) setInterval(() => this.isOn && this.look(), this.every);
      this.follow();
    }

    get isOn() { return !this.isPaused && document.visibilityState === "visible"; }

    pause(paused) {
      this.isPaused = paused;
      stored.write("paused", paused ? "yes" : "no");
      say(paused ? "Live updates are paused" : "Live updates are on");
      this.follow();
    }

    follow() {
      if (this.isOn && !this.source) this.open();
      if (!this.isOn) this.close();
      if (!this.isOn) this.show(this.isPaused ? "paused" : "off", "Paused");
      this.button.textContent = this.isPaused ? "Resume" : "Pause";
    }

    open() {
      this.show("lost", "Connecting");
      this.source = new EventSource(this.main.dataset.live);
      this.source.addEventListener("hello", () => {
        this.show("on", "Live");
        if (Date.now() - this.refreshedAt > REFRESH_MS_MIN) this.look();
      });
      this.source.addEventListener("changed", () => this.look());
      this.source.addEventListener("error", () => this.show("lost", "Connecting"));
    }

    close() {
      if (this.source) this.source.close();
      this.source = null;
    }

    show(state, word) {
      this.state.dataset.state = state;
      this.word.textContent = word;
    }

    // At most one look a second, and one more after it if something changed meanwhile.
    look() {
      if (this.waiting) return;
      const wait = Math.max(this.refreshedAt + REFRESH_MS_MIN - Date.now(), 0);
      this.waiting = setTimeout(() => this.refresh(), wait);
    }

    async refresh() {
      try {
        for (const [part, place] of [["live", this.place], ["rows", find("#rows")]]) {
          if (!place || !this.mayReplace(place)) continue;
          const text = await fetchPart(part, place.dataset.later);
          if (this.mayReplace(place)) replacePart(place, text);
        }
        this.tell();
      } catch {
        this.show("lost", "Connecting");
      } finally {
        this.refreshedAt = Date.now();
        this.waiting = null;
      }
    }

    mayReplace(place) { return this.isOn && !isBusy(place); }

    tell() {
      const bar = find("progress", this.place);
      if (bar && Date.now() - this.saidAt > SAY_MS_MIN) {
        this.saidAt = Date.now();
        say(`${bar.getAttribute("aria-label")}: ${bar.textContent}`);
      }
    }
  }

  // A question in a dialog instead of on a page of its own.

  async function ask(link) {
    let text;
    try {
      text = await fetchPart("form", link.href);
    } catch {
      location.href = link.href;
      return;
    }
    const dialog = document.createElement("dialog");
    dialog.append(...parsed(text).childNodes);
    const title = find("h1, h2", dialog);
    if (title) {
      title.id = "question";
      dialog.setAttribute("aria-labelledby", "question");
    }
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog || event.target.closest("[data-close]")) {
        event.preventDefault();
        dialog.close();
      }
    });
    dialog.addEventListener("close", () => { dialog.remove(); if (link.isConnected) link.focus(); });
    document.body.append(dialog);
    dialog.showModal();
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-dialog]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    ask(link);
  });

  // The same form twice is one too many.
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    const buttons = all("button", event.target);
    setTimeout(() => { for (const button of buttons) button.disabled = true; }, 0);
  });
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

  // Keyboard. One letter each, and they can be switched off.

  const SHORTCUTS = [
    ["/", "search or filter"],
    ["j", "next row"],
    ["k", "previous row"],
    ["r", "retry or replay"],
    ["?", "this list"],
  ];
  let shortcuts = stored.read("shortcuts") !== "off";

  function step(by) {
    const links = all("[data-row]").map((row) => find("a, button", row)).filter(Boolean);
    if (!links.length) return;
    const row = document.activeElement && document.activeElement.closest("[data-row]");
    const at = links.findIndex((link) => link.closest("[data-row]") === row);
    const next = links[Math.min(Math.max(at + by, 0), links.length - 1)];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  function help() {
    if (find("#help")) return;
    const dialog = document.createElement("dialog");
    dialog.id = "help";
    dialog.setAttribute("aria-labelledby", "help-title");
    const title = document.createElement("h2");
    title.id = "help-title";
    title.textContent = "Keyboard";
    const list = document.createElement("dl");
    list.className = "facts";
    for (const [key, what] of SHORTCUTS) {
      const term = document.createElement("dt");
      const kbd = document.createElement("kbd");
      kbd.textContent = key;
      term.append(kbd);
      const text = document.createElement("dd");
      text.textContent = what;
      list.append(term, text);
    }
    const acts = document.createElement("div");
    acts.className = "acts";
    const toggle = document.createElement("button");
    toggle.type = "button";
    toggle.textContent = shortcuts ? "Turn shortcuts off" : "Turn shortcuts on";
    toggle.addEventListener("click", () => {
      shortcuts = !shortcuts;
      stored.write("shortcuts", shortcuts ? "on" : "off");
      toggle.textContent = shortcuts ? "Turn shortcuts off" : "Turn shortcuts on";
    });
    const close = document.createElement("button");
    close.type = "button";
    close.className = "main";
    close.textContent = "Close";
    close.addEventListener("click", () => dialog.close());
    acts.append(close, toggle);
    dialog.append(title, list, acts);
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  const ACTS = {
    "/": () => { const place = find("[data-search]"); if (place) place.focus(); },
    "j": () => step(1),
    "k": () => step(-1),
    "r": () => { const place = find("[data-key='r']"); if (place) place.click(); },
    "?": help,
  };

  document.addEventListener("keydown", (event) => {
    if (!shortcuts || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest("input, select, textarea, dialog, [contenteditable]")) return;
    const act = Object.hasOwn(ACTS, event.key) ? ACTS[event.key] : null;
    if (!act) return;
    event.preventDefault();
    act();
  });

  showTimes();
  addCopies();
  setInterval(countAgo, AGO_SECONDS * 1000);
  const hint = find("#keys-hint");
  if (hint) hint.hidden = false;
  all("[data-help]").forEach((button) => button.addEventListener("click", help));
  // What takes long to count is counted after the first paint.
  const later = find("#live[data-later]");
  if (later) fetchPart("live", later.dataset.later).then((text) => isBusy(later) || replacePart(later, text)).catch(() => {});
  const main = find("main[data-live]");
  if (main && find("#live") && find("[data-live-state]")) new Live(main);
})();
