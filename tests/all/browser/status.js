// Looks at the status page in headless Chromium, as an operator would: that it opens, stays up to
// date, and that its forms work, with scripts and without; and that it is readable, by axe-core, in
// light and dark and on a phone. tests/e2e/ops/status_page_test.go runs it:
//
//	node status.js '{"chromium": ..., "modules": ..., "admin": URL, "files": URL, "id": file id, "shots": folder,
//		"guarded": URL of the admin listener of a gateway that wants a token, "token": ...}'
//
// One browser serves all parts; a page is opened anew only where it must be another one.
//
// Each part in which something is wrong says so in one line; the status is 1 then.
"use strict";

const o = JSON.parse(process.argv[2]);
const path = require("node:path");
const { chromium } = require(path.join(o.modules, "playwright-core"));
const axe = require(path.join(o.modules, "axe-core")).source;

const timeout = 180000; // to find what hangs: a slow machine is no failure
const desktop = { width: 1360, height: 900 }, phone = { width: 390, height: 844 };

function check(ok, text) {
  if (!ok) {
    throw new Error(text);
  }
}

// open opens the page in a context of its own and collects what the browser complains of.
async function open(browser, options, admin = o.admin) {
  const context = await browser.newContext({ viewport: desktop, colorScheme: "light", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(timeout);
  page.complaints = [];
  page.on("console", (m) => page.complaints.push(`console ${m.type()}: ${m.text()}`));
  page.on("pageerror", (e) => page.complaints.push(`error: ${e}`));
  page.on("request", (r) => {
    if (!r.url().startsWith(admin) && !r.url().startsWith("data:")) {
      page.complaints.push(`a request to ${r.url()}`);
    }
  });
  await page.goto(admin + "/status");
  return page;
}

async function close(page) {
  check(page.complaints.length === 0, `the browser complains: ${page.complaints.join("; ")}`);
  await page.context().close();
}

async function shot(page, name) {
  await page.screenshot({ path: path.join(o.shots, `${name}.png`), fullPage: true });
}

// opens: what the page begins with.
async function opens(page) {
  await page.locator("#plot-requests polyline").waitFor({ state: "attached" }); // some seconds after the start
  check(await page.locator("#fleet + div tbody tr").count() === 2, "the fleet has not two gateways");
  check(/^(Healthy|Degraded)/.test(await page.title()), `the title is ${await page.title()}`);
  check((await page.locator(".why").innerText()).length > 20, "the first sentence says too little");
}

// live waits until the script of the page has brought the state up to date.
function live(page, text = "Live") {
  return until(page, (text) => document.querySelector("#fresh").textContent.startsWith(text), text);
}

// until waits for a condition. It looks a few times a second: by default it would at each frame,
// and each frame is drawn for it.
function until(page, condition, argument) {
  return page.waitForFunction(condition, argument, { polling: 250 });
}

// updates: under load the page shows more, by itself, and takes nothing away that is being typed.
async function updates(page) {
  await opens(page);
  await page.fill("#purge", "being typed");
  await page.locator("#log + *").first().waitFor();
  await live(page);
  const clock = await page.locator(".verdict").getAttribute("data-clock");
  await until(page, (clock) => {
    const requests = document.querySelector("#plot-requests .now b").textContent;
    return parseFloat(requests) > 1 && document.querySelector(".verdict").dataset.clock !== clock;
  }, clock);
  check(await page.inputValue("#purge") === "being typed", "an update took away what was being typed");
  await shot(page, "status-light");
  await page.emulateMedia({ colorScheme: "dark" });
  await shot(page, "status-dark");
  await page.emulateMedia({ colorScheme: "light" });
}

// forms: a request is explained; a file is purged after one more click. Beside the question, asked
// looks at the page.
async function forms(page, asked) {
  await page.fill("#explain", o.id);
  await page.click("button:text-is('Explain')");
  const explanation = await page.locator("#explanation pre").innerText();
  check(explanation.includes(o.id) && explanation.includes("response"), `the explanation is ${explanation}`);
  await page.fill("#purge", " /" + o.id);
  await page.click("button:text-is('Purge …')");
  check((await page.locator("#confirm").innerText()).includes(o.id), "the question does not name the file");
  check(await page.locator("#purged").count() === 0, "it was purged without a question");
  await asked?.(page);
  await page.click("button:text-is('Purge it')");
  const purged = await page.locator("#purged").innerText();
  check(purged.includes("All 2 gateways"), `the purge says ${purged}`);
  check(await page.locator("#confirm").count() === 0, "it asks again");
}

// withScripts: a page that is kept open. With the question whether to purge it is the whole page and
// more, so there it must be readable; the dark one has other colors and is the same otherwise.
async function withScripts(browser) {
  const page = await open(browser, {});
  await updates(page);
  await forms(page, async () => {
    await shot(page, "status-purge");
    await unfolded(page, "light", {});
    await page.emulateMedia({ colorScheme: "dark" });
    await readable(page, "dark", { runOnly: ["cat.color"] });
    await page.emulateMedia({ colorScheme: "light" });
  });
  await close(page);
}

// withoutScripts: the page is whole, and its forms work.
async function withoutScripts(browser) {
  const page = await open(browser, { javaScriptEnabled: false });
  await opens(page);
  check(await page.locator("#reload").isVisible(), "there is no link to load it anew");
  await forms(page);
  await close(page);
}

// readable: contrast, labels, headings and the like.
async function readable(page, where, options) {
  if (!await page.evaluate(() => "axe" in window)) {
    await page.evaluate(axe); // not by a script element, which the page's policy forbids
  }
  const result = await page.evaluate((options) => axe.run(document, options), { resultTypes: ["violations"], ...options });
  check(result.passes.length > 0, `axe-core, ${where}: it checked nothing`);
  const found = result.violations.map((v) =>
    `${v.id} (${v.help}): ${v.nodes.map((n) => n.target + " " + n.failureSummary)}`);
  check(found.length === 0, `axe-core, ${where}: ${found.join("; ")}`);
}

// unfolded: the page is readable with all that can be unfolded, and not wider than the screen.
async function unfolded(page, where, options) {
  await live(page);
  await page.evaluate(() => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
  await readable(page, where, options);
  const width = await page.evaluate(() => document.documentElement.scrollWidth), max = page.viewportSize().width;
  check(width <= max, `${where}: the page is ${width} pixels wide`);
}

async function onAPhone(browser) {
  const page = await open(browser, { viewport: phone, isMobile: true, hasTouch: true });
  await live(page);
  await shot(page, "status-phone");
  await unfolded(page, "phone", {});
  await close(page);
}

// chinese: a browser whose language is Chinese gets the page in Chinese, its updates as well. A page
// whose gateway is away says so, and recovers.
async function chinese(browser) {
  const page = await open(browser, { locale: "zh-CN" });
  await live(page, "实时更新，截至 2");
  check(await page.locator("html").getAttribute("lang") === "zh-CN", "the page says another language");
  check(/^(正常|部分异常) – 网关 /.test(await page.title()), `the title is ${await page.title()}`);
  const why = await page.locator(".why").innerText();
  check(/^[^a-z]*。$/.test(why.replace(/[\w.:]+/g, "")), `the first sentence is ${why}`);
  await page.route("**/status?part=live", (route) => route.abort());
  await page.locator("#lost").waitFor({ state: "visible" });
  check((await page.locator("#lost").innerText()).startsWith("网关自 "), "the page is lost in English");
  await page.unroute("**/status?part=live");
  await page.locator("#lost").waitFor({ state: "hidden" });
  await readable(page, "Chinese", { rules: { "color-contrast": { enabled: false } } }); // the colors are the same
  await shot(page, "status-chinese");
  page.complaints = page.complaints.filter((c) => !c.includes("ERR_FAILED"));
  await close(page);
}

// otherOrigin: a page of another origin cannot purge.
async function otherOrigin(browser) {
  const page = await (await browser.newContext()).newPage();
  page.setDefaultTimeout(timeout);
  await page.goto(o.files + "/" + o.id.replace(/\w+$/, "txt"));
  const response = page.waitForResponse((r) => r.url() === o.admin + "/status/purge");
  await page.evaluate(([action, id]) => {
    const form = document.createElement("form");
    Object.assign(form, { method: "post", action });
    form.append(Object.assign(document.createElement("input"), { name: "id", value: id }));
    document.body.append(form);
    form.submit();
  }, [o.admin + "/status/purge", o.id]);
  check((await response).status() === 403, `a page of another origin got ${(await response).status()}`);
  await page.context().close();
}

// signsIn: the browser asks for the token, and keeps it for the script and the forms of the page.
async function signsIn(browser) {
  const unknown = await browser.newContext();
  check((await unknown.request.get(o.guarded + "/status")).status() === 401, "the page opens without the token");
  await unknown.close();
  const page = await open(browser, { httpCredentials: { username: "operator", password: o.token } }, o.guarded);
  await live(page);
  await page.fill("#purge", o.id);
  await page.click("button:text-is('Purge …')");
  await page.click("button:text-is('Purge it')");
  const purged = await page.locator("#purged").innerText();
  check(purged.includes("purged"), `the purge says ${purged}`);
  await close(page);
}

(async () => {
  const browser = await chromium.launch({ executablePath: o.chromium, args: ["--no-sandbox", "--disable-gpu",
    "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync"] });
  try {
    for (const [name, step] of Object.entries({ withScripts, withoutScripts, onAPhone, chinese, otherOrigin, signsIn })) {
      const start = Date.now();
      try {
        await step(browser);
        console.log(`${name}: ${Date.now() - start} ms`);
      } catch (e) {
        console.error(`${name}: ${e.message.split("\n").slice(0, 3).join(" ")}`);
        process.exitCode = 1;
      }
    }
  } finally {
    await browser.close();
  }
})().catch((e) => {
  console.error(e.message);
  process.exit(1);
});
