//! The page in a browser: its numbers, its keys, its requests.

use super::{Served, drawn, ensure_same, numbers};
use anyhow::{Context, Result, ensure};
use sampler_common::encode::json;
use sampler_common::estimate::Row;
use sampler_common::units::grouped;
use sampler_tests::browser::keys;
use sampler_tests::profile::Quantity;
use sampler_tests::{Profile, Workload, wait};

/// An interval so large that confidence intervals are wide.
const INTERVAL: &str = "4096";

fn stopped() -> Result<(Workload, Served)> {
    let mut workload = Workload::edge(&["stacks"])?;
    let served = Served::start(&[workload.pid()], &["--interval", INTERVAL])?;
    workload.go()?;
    workload.truth()?;
    Ok((workload, served))
}

fn of(quantity: &Quantity) -> [f64; 3] {
    [quantity.value, quantity.low, quantity.high]
}

/// Value and ends of all stacks with a function, from their summed rows.
fn of_function(profile: &Profile, function: &str) -> Result<[f64; 3]> {
    let profile = json::read(&profile.json.to_string())?;
    let mut row = Row::default();
    for stack in &profile.stacks {
        if profile.frames(stack).any(|line| line.function == function) {
            row.add(&stack.row);
        }
    }
    ensure!(!row.is_empty(), "{function} is in no stack");
    let of = profile.quantities_of(&row).inuse_space.estimate;
    Ok([of.value, of.low, of.high])
}

#[test]
fn numbers_of_the_page_are_those_of_the_api() -> Result<()> {
    let (workload, served) = stopped()?;
    let page = served.page()?;
    let live = served.daemon.profile("live", &[])?;
    ensure_same("held", numbers(&page, "#total")?, of(&live.totals.inuse_space))?;
    let text = page.run("return document.querySelector('#exact').textContent")?;
    let text = text.as_str().context("no text")?;
    ensure!(text.contains(&format!("{} samples", grouped(live.samples))), "{text}");
    page.press("o")?;
    drawn(&page)?;
    ensure_same("objects", numbers(&page, "#total")?, of(&live.totals.inuse_objects))?;
    page.press("ba")?;
    drawn(&page)?;
    let allocated = served.daemon.profile("alloc", &[])?;
    ensure_same("allocated", numbers(&page, "#total")?, of(&allocated.totals.alloc_space))?;
    page.press("h")?;
    drawn(&page)?;
    // Choosing the only process chooses all of them.
    page.run("document.querySelector('#processes li:nth-child(2) button').click()")?;
    drawn(&page)?;
    let chosen = "return document.querySelector('#processes [aria-pressed=true]').dataset.key";
    ensure!(page.run(chosen)? == format!("pid {}", workload.pid()), "{}", page.run(chosen)?);
    ensure_same("of the process", numbers(&page, "#total")?, of(&live.totals.inuse_space))?;
    // First row of the table: `leaf` calls malloc in every stack.
    page.press("t")?;
    drawn(&page)?;
    let first = "return document.querySelector('#table tbody tr .name').textContent";
    ensure!(page.run(first)? == "leaf", "{}", page.run(first)?);
    for column in 1..=2 {
        let cell = format!("#table tbody tr td:nth-child({column})");
        ensure_same("leaf", numbers(&page, &cell)?, of_function(&live, "leaf")?)?;
    }
    // Facts that are always visible.
    let facts = page.run("return document.querySelector('#facts').textContent")?;
    let facts = facts.as_str().context("no facts")?;
    for words in ["of CPU time in probes", "Losses", "none", "one sample per 4.00 KiB"] {
        ensure!(facts.contains(words), "{words:?} is not in {facts:?}");
    }
    served.daemon.stop()
}

#[test]
fn the_page_is_navigated_zoomed_and_searched_by_keys() -> Result<()> {
    let (_workload, served) = stopped()?;
    let page = served.page()?;
    let live = served.daemon.profile("live", &[])?;
    page.run("document.querySelector('#flame').focus()")?;
    let name = "return document.querySelector('#details').dataset.name";
    let mut steps = 0;
    while page.run(name)? != "main" {
        page.press(keys::UP)?;
        steps += 1;
        ensure!(steps < 12, "no main on the way up, but {}", page.run(name)?);
    }
    ensure_same("main", numbers(&page, "#details")?, of_function(&live, "main")?)?;
    page.press(keys::ENTER)?;
    let zoomed = "return document.querySelector('#flame').dataset.zoomed";
    ensure!(page.run(zoomed)? == "main", "{}", page.run(zoomed)?);
    page.press(keys::ESCAPE)?;
    ensure!(page.run(zoomed)? == "", "{}", page.run(zoomed)?);
    page.press("/")?;
    page.press("RIGHT")?;
    page.until("what is found", "return document.querySelector('#found').dataset.value")?;
    page.until(
        "what is typed",
        "return document.querySelector('#found').textContent.includes('RIGHT')",
    )?;
    ensure_same("right", numbers(&page, "#found")?, of_function(&live, "right")?)?;
    page.press("?")?;
    ensure!(
        page.run("return document.querySelector('#help').open")? == false,
        "typed into the field"
    );
    page.press(keys::ESCAPE)?;
    page.press("?")?;
    ensure!(page.run("return document.querySelector('#help').open")? == true, "no help");
    served.daemon.stop()
}

#[test]
fn the_page_makes_no_foreign_request_and_logs_no_error() -> Result<()> {
    let (_workload, served) = stopped()?;
    let page = served.page()?;
    for key in ["a", "k", "m", "h", "t", "d", "f", "i"] {
        page.press(key)?;
        drawn(&page)?;
    }
    let own = format!("http://{}/", served.address);
    let requested = page.requests()?;
    ensure!(requested.iter().any(|url| url.starts_with(&own)), "nothing was asked: {requested:?}");
    for url in &requested {
        ensure!(url.starts_with(&own) || url.starts_with("data:"), "it asked for {url}");
        let leaks = url.contains(&served.token) && !url.contains('#');
        ensure!(!leaks, "the token went out in {url}");
    }
    ensure!(page.run("return location.hash")? == "", "the token stays in the address bar");
    ensure!(page.run("return document.cookie")? == "", "a cookie");
    let complaints = page.complaints()?;
    ensure!(complaints.is_empty(), "{complaints:?}");
    served.daemon.stop()
}

/// The graph is what a person looks for, on large and on small screens.
#[test]
fn the_graph_begins_in_the_upper_third_of_each_screen() -> Result<()> {
    let (_workload, served) = stopped()?;
    let page = served.page()?;
    let place = "const { top } = document.querySelector('#flame-scroll').getBoundingClientRect();
        return [top / innerHeight, document.documentElement.scrollWidth - innerWidth];";
    for (width, height) in [(1400, 900), (1024, 600), (420, 860)] {
        page.resize(width, height)?;
        let [top, too_wide] = [0, 1].map(|at| page.run(place).map(|of| of[at].as_f64()));
        let (top, too_wide) = (top?.context("no graph")?, too_wide?.context("no page")?);
        ensure!(top > 0.0 && top < 1.0 / 3.0, "{width}: the graph begins at {top} of the height");
        ensure!(too_wide <= 0.0, "{width}: the page is wider than the screen, by {too_wide}");
    }
    served.daemon.stop()
}

/// Two halves of a steady program, and the downloaded files.
#[test]
fn windows_are_compared_and_profiles_downloaded() -> Result<()> {
    let mut workload = Workload::edge(&["ticks"])?;
    let served = Served::start(&[workload.pid()], &["--interval", "64"])?;
    workload.go()?;
    workload.truth()?;
    let page = served.page()?;
    page.press("a")?;
    page.press("d")?;
    // The page draws its rows anew by itself.
    let [value, low, high] = wait::until("a difference", || {
        page.press("r")?;
        drawn(&page)?;
        Ok(numbers(&page, "#stacks tbody tr").ok())
    })?;
    ensure!(low <= value && value <= high, "{value} is not within {low} … {high}");
    // The keyboard selects a window of one bar.
    page.press("f")?;
    drawn(&page)?;
    page.press("w")?;
    page.press(keys::LEFT)?;
    drawn(&page)?;
    let since = "return document.querySelector('#total').textContent";
    let text = page.run(since)?;
    ensure!(text.as_str().is_some_and(|text| text.contains("allocated from")), "{text}");
    // The first of three slots ended over a second ago: no sample is added to it any more.
    let history = wait::until("a history", || {
        let history = served.json("/api/history")?;
        let slots = history["slots"].as_array().context("no slots")?;
        Ok((slots.len() >= 3).then_some(history))
    })?;
    let slots = history["slots"].as_array().context("no slots")?;
    let side = |key: &str, at: usize| slots[at][key].as_u64().context("no time");
    // A window of the chart equals a profile of that window.
    let (since, until) = (side("start_unix_ns", 0)?, side("end_unix_ns", 0)?);
    let graph = served.json(&format!("/api/graph?kind=alloc&since={since}&until={until}"))?;
    ensure!(
        graph["graph"]["total"] == slots[0]["allocated"],
        "{} {}",
        graph["graph"]["total"],
        slots[0]
    );
    let number = &graph["snapshot"];
    let file = served.get(&format!("/api/download?snapshot={number}&format=json"))?;
    let profile = Profile::parse(&file.body)?;
    ensure!(
        Some(profile.totals.alloc_space.low) == graph["graph"]["total"]["low"].as_f64(),
        "{number}"
    );
    for format in [
        "text",
        "folded",
        "pprof",
        "jeprof",
        "svg",
        "speedscope",
        "csv",
        "firefox",
        "perfetto",
        "otlp",
    ] {
        let file = served.get(&format!("/api/download?snapshot={number}&format={format}"))?;
        ensure!(file.status == 200 && !file.body.is_empty(), "{format}: {}", file.status);
    }
    served.daemon.stop()
}

/// With `--windows` frees are not probed. The page shows neither held bytes nor a history, and
/// shows allocated bytes first.
#[test]
fn the_page_offers_supported_views_only() -> Result<()> {
    let workload = Workload::edge(&["stacks"])?;
    let served = Served::start(&[workload.pid()], &["--windows", "5%"])?;
    let page = served.page()?;
    let script = "const of = (group) => [...document.querySelectorAll(`#${group} button`)]; \
        return [of('kinds').filter((b) => !b.disabled).map((b) => b.dataset.kind), of('kinds').find((b) => b.ariaPressed === 'true').dataset.kind, \
        of('views').filter((b) => b.disabled).map((b) => b.dataset.view), document.getElementById('state').classList.contains('wrong'), \
        document.getElementById('processes').textContent];";
    let shown = page.run(script)?;
    let expected =
        serde_json::json!([["alloc"], "alloc", ["leaks", "lifetimes", "difference"], false]);
    ensure!(
        shown.as_array().is_some_and(|of| of[..4] == expected.as_array().unwrap()[..]),
        "{shown}"
    );
    // No window has seen the idle program.
    let processes = shown[4].as_str().context("no processes")?;
    ensure!(processes.contains("not known yet") && !processes.contains("held"), "{processes}");
    Ok(())
}

/// The page names a leak as long as it grows, with the bounds that the API has, and the lifetimes.
#[test]
fn a_leak_and_lifetimes_are_shown() -> Result<()> {
    let mut workload = Workload::start("leaks.c", &[])?;
    let served = Served::start(&[workload.pid()], &["--interval", "4096"])?;
    let mut turn = |how: &str| {
        workload.child().send(how)?;
        workload.truth()
    };
    turn("steady")?;
    let page = served.page()?;
    page.press("l")?;
    let first = "const row = document.querySelector('#stacks tbody tr'); \
        return row && [row.dataset.growing, row.querySelector('.site').textContent, \
        document.getElementById('stacks-head').textContent];";
    let shown = wait::until("the leak", || {
        turn("leak")?;
        page.press("r")?;
        drawn(&page)?;
        let shown = page.run(first)?;
        let frame = shown[1].as_str().unwrap_or_default();
        Ok((shown[0] == "true" && frame.starts_with("leak (leaks.c:")).then_some(shown))
    })?;
    let head = shown[2].as_str().context("no text")?;
    ensure!(head.contains("holds more and more") && head.contains("leak (leaks.c:"), "{head}");
    let [value, low, high] = numbers(&page, "#stacks tbody tr")?;
    ensure!(0.0 < low && low <= value && value <= high, "{value} is not in {low} to {high}");
    let line =
        "return document.querySelector('#stacks tbody tr .sparkline polyline').points.length";
    let points = page.run(line)?;
    ensure!(points.as_u64() >= Some(2), "a history of {points} points");
    let answer = served.json("/api/leaks")?;
    ensure!(answer["growing"].as_u64() >= Some(1), "{answer}");

    page.press("e")?;
    drawn(&page)?;
    let [value, low, high] = numbers(&page, "#stacks tbody tr")?;
    ensure!(0.0 < low && low <= value && value <= high, "{value} is not in {low} to {high}");
    let rows = page.run("return document.querySelectorAll('#stacks tbody tr').length")?;
    let stacks = served.json("/api/lifetimes")?["stacks"].as_array().map(Vec::len);
    ensure!(rows.as_u64() == stacks.map(|of| of as u64), "{rows} rows of {stacks:?} stacks");
    let complaints = page.complaints()?;
    ensure!(complaints.is_empty(), "{complaints:?}");
    served.daemon.stop()
}
