//! The text of `sampler leaks` for people: the answer in a sentence, its figures, then the stacks
//! that grow. The first stack is shown with all its frames.

use crate::encode::callers::callers;
use crate::encode::comparison::text::{LABEL, percent, signed};
use crate::encode::name::{self, base_name};
use crate::encode::text::bars::bars;
use crate::encode::text::layout::{columns, end, paragraph, wrapped};
use crate::encode::text::short::short;
use crate::estimate::{Growth, Median, Share, plus_minus};
use crate::leaks::{Grown, Leak, Leaks};
use crate::profile::{Line, is_entry};
use crate::units::{grouped, human_bytes, human_duration};
use std::time::Duration;

/// Minimum width of the text, also in a narrower terminal.
const MIN_WIDTH: usize = 76;
/// Stacks that are shown if no stack is known to grow.
const MAX_CANDIDATES: usize = 3;
/// Frames that are shown of the first stack, from the leaf.
const MAX_FRAMES: usize = 20;
const INDENT: usize = 3;
/// Maximum width of a function's name in the sentence of the answer.
const MAX_SITE: usize = 60;
/// With fewer sampled blocks that arrived or departed, the text does not claim that nothing grows.
const MIN_SAMPLES: u64 = 10;
/// Prefixes of functions of standard libraries, whose containers allocate for their callers.
const LIBRARIES: [&str; 8] =
    ["std::", "__gnu_cxx::", "void std::", "alloc::", "core::", "<alloc::", "<core::", "<std::"];

/// Folders of the sources of standard libraries.
const LIBRARY_FOLDERS: [&str; 3] = ["/rustc/", "/rustlib/src/rust/library/", "/include/c++/"];
/// Endings of the names of Python and JavaScript files. The names of Node's internal files have no
/// ending.
const SCRIPTS: [&str; 6] = [".py", ".js", ".mjs", ".cjs", ".ts", ".mts"];

/// The text in `width` columns, with at most `rows` stacks that grow.
pub fn text(of: &Leaks, width: usize, rows: usize) -> String {
    let width = width.max(MIN_WIDTH);
    let over = Duration::from_nanos(of.length_ns());
    let mut out = format!("Held memory that grows, over the last {}\n", human_duration(over));
    let answer = answer(of);
    out += &wrapped(&answer, width).iter().map(|line| format!("{line}\n")).collect::<String>();
    out.push('\n');
    let all = format!(
        "{} {} held, {} in this time ({} … {})",
        human_bytes(of.total.held.value),
        plus_minus(&of.total.held),
        bytes(of.total.growth.value),
        bytes(of.total.growth.low),
        bytes(of.total.growth.high),
    );
    out += &paragraph("all", &all, LABEL, width);
    out += &paragraph("growing", &verdict(of), LABEL, width);
    out += &paragraph("missed", &missed(of), LABEL, width);
    for note in &of.notes {
        out += &paragraph("note", &name::shown(&note.to_string()), LABEL, width);
    }
    let shown = match of.growing {
        0 => rows.min(MAX_CANDIDATES),
        growing => rows.min(usize::try_from(growing).unwrap_or(usize::MAX)),
    };
    if of.growing == 0 && !of.stacks.is_empty() && shown > 0 {
        out += "\nWithin chance, those that come nearest:\n";
    }
    for (index, leak) in of.stacks.iter().take(shown).enumerate() {
        out += &format!("\n{}", entry(leak, index, of, width));
    }
    let more = of.growing.saturating_sub(shown as u64);
    if more > 0 {
        out += &format!("\n… {} more that grow (--top N shows N)\n", grouped(more));
    }
    out
}

/// The answer: what grows, how fast and since when, or why that is unknown.
pub fn answer(of: &Leaks) -> String {
    let seconds = of.length_ns() as f64 / 1e9;
    let [arrived, departed] = [of.total.arrived, of.total.departed];
    let Some(leak) = of.stacks.first().filter(|leak| leak.grown.is_growing()) else {
        return match arrived + departed {
            0 => "Nothing is known to grow: no sampled block came and stayed, and none went. Wait, or sample more (sampler set --interval).".to_owned(),
            few @ 1..MIN_SAMPLES => format!("Too little was seen to say what grows: {few} sampled blocks came and stayed, or went. Wait, or sample more (sampler set --interval)."),
            _ if of.total.growth.low > 0.0 => format!(
                "All stacks together grow by {}, and none of them by more than chance: ask again over a longer time.",
                speed(&of.total.growth, seconds)
            ),
            _ => "Nothing grows by more than chance.".to_owned(),
        };
    };
    let oldest = human_duration(Duration::from_nanos(leak.grown.oldest_ns));
    let more = match of.growing {
        0 | 1 => String::new(),
        2 => " One more stack grows.".to_owned(),
        n => format!(" {} more stacks grow.", grouped(n - 1)),
    };
    format!(
        "{} of pid {} holds more and more: {} in the last {}; its oldest block is {oldest} old.{more}",
        site(&leak.frames),
        leak.pid,
        speed(&leak.grown.growth, seconds),
        human_duration(Duration::from_nanos(of.length_ns())),
    )
}

/// The function that a person looks for, with its line.
///
/// In Python and JavaScript the site is the innermost function of the program's own language. Else
/// it is the first function from the leaf that is neither an allocator's nor a standard library's.
pub fn site(frames: &[Line]) -> String {
    let own = || frames.iter().rev().filter(|line| !is_entry(&line.function));
    let is_library = |line: &&Line| {
        LIBRARIES.iter().any(|of| line.function.starts_with(of))
            || LIBRARY_FOLDERS.iter().any(|of| line.file.contains(of))
    };
    let script = own().find(|line| SCRIPTS.iter().any(|end| line.file.ends_with(end)));
    let native = || own().find(|line| !is_library(line)).or_else(|| own().next());
    let Some(line) = script.or_else(native) else {
        return crate::encode::NO_STACK.to_owned();
    };
    let (function, place) = (name::shown(&line.function), place(line));
    let function = short(&function, MAX_SITE);
    if place.is_empty() { function.into_owned() } else { format!("{function} ({place})") }
}

fn verdict(of: &Leaks) -> String {
    let confidence = percent(of.confidence.level());
    let stacks = match of.stacks_total {
        0 => return "nothing: no sampled block came and stayed, and none went".to_owned(),
        1 => "1 stack that changed".to_owned(),
        n => format!("{} stacks that changed", grouped(n)),
    };
    match of.growing {
        0 => format!(
            "nothing by more than chance, of {stacks} (all bounds hold at once, {confidence}%)"
        ),
        n => format!(
            "{} of {stacks}, by more than chance (all bounds hold at once, {confidence}%)",
            grouped(n)
        ),
    }
}

/// How much growth may have been missed.
fn missed(of: &Leaks) -> String {
    let seconds = of.length_ns() as f64 / 1e9;
    let other = if of.growing == 0 { "a stack" } else { "any other stack" };
    let mut text = format!(
        "{other} may have grown by up to {}, {}",
        human_bytes(of.max_other_growth),
        rate(of.max_other_growth, seconds)
    );
    if of.max_other_growth > of.unseen {
        text += &format!("; one without a sample by up to {}", human_bytes(of.unseen));
    }
    text
}

/// The entry of a stack: its growth, the fate of its memory, its call site.
fn entry(leak: &Leak, index: usize, of: &Leaks, width: usize) -> String {
    let Grown { growth, arrived, departed, held, .. } = &leak.grown;
    let seconds = of.length_ns() as f64 / 1e9;
    let mut out = format!(
        "{}. {} ({} … {}), {}, pid {}\n",
        index + 1,
        bytes(growth.value),
        bytes(growth.low),
        bytes(growth.high),
        speed(growth, seconds),
        leak.pid,
    );
    let departed = if *departed == 0 {
        "none went".to_owned()
    } else {
        format!("{} went", grouped(*departed))
    };
    let samples = format!("samples   {} came and stayed, {departed}", grouped(*arrived));
    let kept = leak.grown.kept.map(kept);
    let held = format!("holds     {} {}", human_bytes(held.value), plus_minus(held));
    let lines = [Some(samples), kept, Some(held), history(&leak.grown), age(&leak.grown)];
    for line in lines.into_iter().flatten() {
        out += &format!("{}{line}\n", " ".repeat(INDENT));
    }
    if index > 0 {
        let frames: Vec<&str> = leak.frames.iter().map(|line| line.function.as_str()).collect();
        let own = leak.frames.iter().rev().find(|line| !is_entry(&line.function));
        let place = own.map(place).unwrap_or_default();
        let callers = callers(&frames, &place, width - INDENT);
        let code = site(&leak.frames);
        // The callers begin with the frame that allocates, which may be the code itself.
        if own.is_none_or(|own| site(std::slice::from_ref(own)) != code) {
            out += &format!("{}code      {code}\n", " ".repeat(INDENT));
        }
        return out + &format!("{}{callers}\n", " ".repeat(INDENT));
    }
    out + &in_full(&leak.frames, width)
}

/// `kept      98% (95 … 100%) of what it allocated in this time`.
fn kept(of: Share) -> String {
    let [value, low, high] = [of.value, of.low, of.high].map(|share| 100.0 * share);
    let decimals = usize::from(high < 1.0);
    format!(
        "kept      {value:.decimals$}% ({low:.decimals$} … {high:.decimals$}%) of what it allocated in this time"
    )
}

/// `history   ▁▂▄▅▇█ what it held in this time`; `None` without any time but the end.
fn history(of: &Grown) -> Option<String> {
    let values = of.history.iter().map(|held| held.value);
    let bars = bars(values);
    (of.history.len() > 1).then(|| format!("history   {bars} what it held in this time"))
}

/// `age       half of it over 28.1 s (25.0 s … 31.2 s), the oldest 59.0 s`; `None` if nothing is
/// held.
fn age(of: &Grown) -> Option<String> {
    let Median { value, low, high } = of.age;
    let age = |ns: f64| human_duration(Duration::from_nanos(ns as u64));
    let oldest = of.oldest_ns as f64;
    Some(format!(
        "age       half of it over {} ({} … {}), the oldest {}",
        age(value?),
        age(low),
        age(high.unwrap_or(oldest)),
        age(oldest)
    ))
}

/// Every frame, leaf first.
fn in_full(frames: &[Line], width: usize) -> String {
    let mut out = String::new();
    for line in frames.iter().rev().take(MAX_FRAMES) {
        let room = width - 2 * INDENT;
        let place = end(&place(line), room * 2 / 5);
        let function = name::shown(&line.function);
        let function = short(&function, room - 2 - columns(&place));
        let text = format!("{}{function}  {place}", " ".repeat(2 * INDENT));
        out += &format!("{}\n", text.trim_end());
    }
    match frames.len() {
        0 => format!("{}{}\n", " ".repeat(2 * INDENT), crate::encode::NO_STACK),
        n if n > MAX_FRAMES => {
            out + &format!("{}… {} more\n", " ".repeat(2 * INDENT), n - MAX_FRAMES)
        }
        _ => out,
    }
}

/// `server.cpp:88`, empty if unknown.
fn place(line: &Line) -> String {
    match (line.file.as_str(), line.line) {
        ("", _) => String::new(),
        (file, 0) => name::shown(base_name(file)).into_owned(),
        (file, number) => name::shown(&format!("{}:{number}", base_name(file))).into_owned(),
    }
}

fn bytes(value: f64) -> String {
    signed(value, human_bytes)
}

/// The growth as a rate, with the ends of its interval.
fn speed(of: &Growth, seconds: f64) -> String {
    if of.low < 0.0 {
        return format!("at most {}", rate(of.high, seconds));
    }
    format!("{} … {}", rate(of.low, seconds), rate(of.high, seconds))
}

/// `207 KiB/s`; slow rates by the minute or the hour.
fn rate(bytes: f64, seconds: f64) -> String {
    let per_second = if seconds > 0.0 { bytes / seconds } else { 0.0 };
    match per_second {
        of if of >= 1024.0 || of <= 0.0 => format!("{}/s", human_bytes(of)),
        of if of * 60.0 >= 1024.0 => format!("{}/min", human_bytes(of * 60.0)),
        of => format!("{}/h", human_bytes(of * 3600.0)),
    }
}
