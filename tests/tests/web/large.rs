//! A profile of more than 100,000 stacks: the page appears soon, and reacts quickly.

use super::{Served, drawn, numbers};
use anyhow::{Context, Result, ensure};
use sampler_tests::browser::Browser;
use sampler_tests::{Workload, again};
use serde_json::Value;
use std::time::Duration;

const STACKS: u64 = 100_000;
/// Longest time until the page is visible. The time is printed. Other work on the machine counts as
/// well, so the quickest of several loads is the page's own time.
const DEADLINE: Duration = Duration::from_secs(10);
/// Number of loads of the page, and number of movements of the pointer.
const LOADS: usize = 5;
const MOVEMENTS: usize = 10;
/// Longest time until a picture after a movement of the pointer, milliseconds.
const MAX_FRAME_MS: f64 = 500.0;

/// Moves the pointer over the graph, and zooms. Returns the longest time until the next picture,
/// milliseconds.
const MOVE: &str = "
const canvas = document.querySelector('#flame'), box = canvas.getBoundingClientRect();
const next = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
return (async () => {
  let longest = 0;
  for (let i = 0; i < 40; i++) {
    const began = performance.now();
    const at = { clientX: box.left + (box.width * (i % 20)) / 20 + 3, clientY: box.bottom - 60 - (i % 8) * 19, bubbles: true };
    canvas.dispatchEvent(new PointerEvent(i % 10 === 9 ? 'click' : 'pointermove', at));
    await next();
    longest = Math.max(longest, performance.now() - began);
  }
  return longest;
})();";

#[test]
fn many_stacks_are_drawn_at_once() -> Result<()> {
    let mut workload = Workload::start("many.c", &[])?;
    let served = Served::start(
        &[workload.pid()],
        &["--interval", "1", "--max-live", "300000", "--snapshot", "4KiB", "--ring", "64MiB"],
    )?;
    workload.go()?;
    workload.truth()?;
    let graph = served.json("/api/graph?kind=live")?;
    let stacks = graph["graph"]["head"]["stacks_total"].as_u64().context("no count")?;
    ensure!(stacks >= STACKS, "{stacks} stacks");
    let left_out = graph["graph"]["left_out"].as_u64().context("no count")?;
    ensure!(left_out > STACKS, "{left_out} frames left out");
    let page = Browser::start()?;
    let shown = again::until("in sight", LOADS, || shown(&page, &served.url))?;
    let text = page.run("return document.querySelector('#left-out').textContent")?;
    ensure!(text.as_str().is_some_and(|text| text.contains("are not drawn")), "{text}");
    ensure!(numbers(&page, "#total")?[0] > 0.0, "nothing");
    let longest = again::until("the longest picture", MOVEMENTS, || longest(&page))?;
    eprintln!("{stacks} stacks: in sight after {shown} ms, pictures within {longest:.0} ms");
    ensure!(page.complaints()? == Vec::<String>::new(), "{:?}", Value::from(page.complaints()?));
    served.daemon.stop()
}

/// Loads the page. Returns the milliseconds until it was visible, or an error text if they are too
/// many.
fn shown(page: &Browser, url: &str) -> Result<Result<f64, String>> {
    // The browser must come from another address: a change of the fragment alone loads nothing.
    page.open("about:blank")?;
    page.open(url)?;
    // The whole page may be loaded before the next picture is drawn.
    let shown = page.until("the first picture", "return document.body.dataset.drawn")?;
    drawn(page)?;
    let shown: f64 = shown.as_str().context("no time")?.parse()?;
    let is_soon = shown < DEADLINE.as_secs_f64() * 1e3;
    Ok(if is_soon { Ok(shown) } else { Err(format!("{shown} ms")) })
}

/// The longest time until a picture of [`MOVE`], or an error text if that is too long.
fn longest(page: &Browser) -> Result<Result<f64, String>> {
    let longest = page.run(MOVE)?.as_f64().context("no time")?;
    Ok(if longest < MAX_FRAME_MS { Ok(longest) } else { Err(format!("{longest:.0} ms")) })
}
