/** The Workers page: its live parts are fetched anew every few seconds and exchanged one by one, forms are left alone. */

const EVERY_MS = 5000;

async function refresh() {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const parts = new Map([...fresh.querySelectorAll("[data-live]")].map((part) => [part.getAttribute("data-live"), part]));
    for (const shown of document.querySelectorAll("[data-live]")) {
      const part = parts.get(shown.getAttribute("data-live"));
      if (part && part.textContent !== shown.textContent && !shown.contains(document.activeElement)) shown.replaceWith(document.adoptNode(part));
    }
  } catch {
    // The next look tries again; a heartbeat that grows old says it, too.
  }
}

setInterval(refresh, EVERY_MS);
document.addEventListener("visibilitychange", refresh);
