/**
 * Caches the files of the page, so that it opens without a network and reports that. The network has priority, so that the
 * page is never older than its gateway. Other requests, such as those for answers, are not handled here.
 */
const SHELL = "nearsight-shell";
const SCRIPTS = ["page", "outline", "panel", "nearsight", "frame_stream", "pictures", "errors"].map((name) => `${name}.js`);
const FILES = ["./", "page.css", ...SCRIPTS, "manifest.webmanifest", "icon.svg"];
const ADDRESSES = FILES.map((name) => new URL(name, self.location.href).href);
const LONGEST_WAIT_MS = 2000;

self.addEventListener("install", (event) => {
    event.waitUntil(caches.open(SHELL).then((shell) => shell.addAll(FILES)));
    self.skipWaiting();
});

self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("fetch", (event) => {
    const address = new URL(event.request.url);
    address.search = address.hash = ""; // one page for all catalogues
    if (event.request.method === "GET" && ADDRESSES.includes(address.href)) event.respondWith(answered(address.href));
});

async function answered(address) {
    const shell = await caches.open(SHELL);
    try {
        const response = await fetch(address, { cache: "no-cache", signal: AbortSignal.timeout(LONGEST_WAIT_MS) });
        if (response.ok) await shell.put(address, response.clone());
        return response;
    } catch (error) {
        const kept = await shell.match(address);
        if (kept) return kept;
        throw error;
    }
}
