//! The newcomer: has a service that grows, README.md, and a terminal of 80 columns.
//!
//! The newcomer types the commands that README.md prints, as they are printed, and reads the
//! screen. What leaks must be named there, by function and line. The newcomer does nothing else,
//! except for what the screen tells to do.

mod place;
mod readme;
mod service;

use anyhow::{Context, Result, ensure};
use place::Place;
use readme::Hunt;
use sampler_tests::child::Child;
use sampler_tests::terminal::Terminal;
use sampler_tests::{http, wait};
use service::Service;
use std::time::{Duration, Instant};

/// The time that a newcomer has for one service.
const PATIENCE: Duration = Duration::from_secs(300);

/// The pause before a question is typed again.
const TYPING: Duration = Duration::from_secs(1);

/// Words of an answer that is sure.
const GROWS: &str = "holds more and more";

const PYTHON: Service = Service {
    source: "sessions.py",
    function: "Session.remember",
    line: "history.append(",
    interpreter: Some("/usr/bin/python3"),
};
const CPP: Service = Service {
    source: "orders.cpp",
    function: "remember_order",
    line: "order->lines = lines",
    interpreter: None,
};
const NODE: Service = Service {
    source: "uploads.js",
    function: "keepPreview",
    // V8 names the line on which a function begins.
    line: "function keepPreview(",
    interpreter: Some("node"),
};

/// Types a question until the answer names the leak. Returns the answer, with its lines joined.
fn ask(place: &Place, question: &str, names: impl Fn(&str) -> bool) -> Result<String> {
    eprintln!("$ {question}");
    let mut screen = String::new();
    let answered = wait::until_deadline("the name of the leak", PATIENCE, || {
        let mut terminal = place.types(question)?;
        ensure!(terminal.code()? == 0, "{question}: {}", terminal.text());
        screen = terminal.text();
        let answer = screen.split_whitespace().collect::<Vec<_>>().join(" ");
        let answer = Some(answer).filter(|answer| names(answer));
        if answer.is_none() {
            wait::pass(TYPING);
        }
        Ok(answer)
    });
    let answer = answered.with_context(|| format!("the answer to {question}:\n{screen}"))?;
    eprintln!("{screen}");
    Ok(answer)
}

/// The leaks as the page has them, at the URL on samplerd's screen.
fn page(screen: &str) -> Result<String> {
    let url = screen.split_whitespace().find(|word| word.starts_with("http://"));
    let url = url.with_context(|| format!("no URL on the screen:\n{screen}"))?;
    let (host, token) = url["http://".len()..].split_once("/#token=").context("no token")?;
    let address = host.parse().context("the address of the page")?;
    ensure!(http::get(address, "/")?.status == 200, "no page at {url}");
    let request =
        format!("GET /api/leaks HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n");
    let answer = http::send(address, &request)?;
    ensure!(answer.status == 200, "the page has no leaks: {:?}", answer.text());
    Ok(answer.text()?.to_owned())
}

/// Presses Ctrl-C, and checks that samplerd ends and the service does not.
fn stop(mut samplerd: Terminal, service: &mut Child) -> Result<()> {
    samplerd.keys("\u{3}")?;
    samplerd.code()?;
    let said = samplerd.text();
    ensure!(said.contains("the sampler is out") && !said.contains(" WARN "), "{said}");
    ensure!(service.ended()?.is_none(), "the service has ended: {said}");
    Ok(())
}

/// Follows README.md for one service. `advice` is an option that the screen may ask for: the
/// service is then started with it, and the newcomer begins again.
fn hunt(place: &Place, service: &Service, advice: Option<&str>) -> Result<()> {
    let (begin, line) = (Instant::now(), service.place()?);
    let mut options = Vec::new();
    let named = |text: &str| text.contains(service.function) && text.contains(&line);
    loop {
        let mut child = service.start(place, &options)?;
        let hunt = Hunt::of(child.pid())?;
        eprintln!("$ {}", hunt.start);
        let samplerd = place.types(&hunt.start)?;
        samplerd.until("ready", |screen| screen.lines().any(|line| line.starts_with("ready ")))?;
        let advice = advice.filter(|advice| !options.contains(advice));
        let mut advised = None;
        for question in &hunt.questions {
            let advises = |text: &str| advice.filter(|advice| text.contains(advice));
            // A leak is known when the answer is sure that something grows.
            let is_answer = |text: &str| match question.contains(" leaks") {
                true => text.contains(GROWS) && (named(text) || advises(text).is_some()),
                false => named(text) || (advice.is_some() && advised.is_some()),
            };
            let answer = ask(place, question, is_answer)?;
            advised = advised.or(advises(&answer));
            eprintln!("({:.1} s)", begin.elapsed().as_secs_f64());
        }
        let shown = page(&samplerd.text())?;
        stop(samplerd, &mut child)?;
        if let Some(option) = advised {
            options.push(option);
            continue;
        }
        ensure!(shown.contains(service.function), "the page does not name the leak: {shown}");
        ensure!(begin.elapsed() < PATIENCE, "that took too long");
        return Ok(());
    }
}

#[test]
fn the_leak_of_a_python_service_is_found_as_the_readme_says() -> Result<()> {
    hunt(&Place::start()?, &PYTHON, None)
}

#[test]
fn the_leak_of_a_cpp_service_is_found_as_the_readme_says() -> Result<()> {
    hunt(&Place::start()?, &CPP, None)
}

/// JavaScript code has no names without an option, and the screen says which.
#[test]
fn the_leak_of_a_node_service_is_found_as_the_readme_says() -> Result<()> {
    hunt(&Place::start()?, &NODE, Some("--perf-basic-prof"))
}

#[test]
#[ignore = "it builds all in a new Debian: cargo xtask newcomer"]
fn a_fresh_clone_finds_all_leaks_as_the_readme_says() -> Result<()> {
    let place = Place::fresh()?;
    hunt(&place, &PYTHON, None)?;
    hunt(&place, &CPP, None)?;
    hunt(&place, &NODE, Some("--perf-basic-prof"))
}
