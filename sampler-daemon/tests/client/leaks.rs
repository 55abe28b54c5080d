//! `sampler leaks`: what it asks for, and what it says.

use super::mock::{Mock, PID};
use super::sampler;
use sampler_common::estimate::{Confidence, Reference, Sample, Stratum};
use sampler_common::leaks::{Blocks, Leak, Leaks, Ranking, Times};
use sampler_common::profile::Line;
use sampler_common::sampling::{Rate, class};
use sampler_daemon::rpc::convert::leaks_to_wire;
use sampler_daemon::rpc::v1::{self, GetLeaksRequest};

/// A stack that grows and one that does not; with `--over 7s` nothing does, `--confidence 0.5`
/// comes back broken.
pub(crate) fn answer(request: &GetLeaksRequest) -> v1::Leaks {
    let sample = Sample::geometric(100_000, Rate::from_interval(512 << 10).unwrap());
    let stratum = Stratum { process: 0, class: class(100_000) as u8 };
    let blocks = |arrived: u64, departed: u64| {
        let mut of = Blocks::default();
        (0..arrived).for_each(|_| of.arrived.add_sample(&sample));
        (0..departed).for_each(|_| of.departed.add_sample(&sample));
        (0..2 * arrived).for_each(|_| of.allocated.add_sample(sample.bytes()));
        (0..arrived).for_each(|age| of.ages.push((age * 1_000_000_000, sample.bytes())));
        (0..arrived).for_each(|_| of.row.stratum(stratum).add_live(&sample));
        of
    };
    let none_grows = request.over_ns == 7_000_000_000;
    let stacks = vec![blocks(20, 22), if none_grows { blocks(3, 4) } else { blocks(60, 2) }];
    let names = [["main", "turn_over", "malloc"], ["main", "keep_all", "malloc"]];
    let confidence = Confidence::new(request.confidence).unwrap();
    let end_unix_ns = 1_795_180_060_000_000_000;
    let ages_ns = vec![50_000_000_000, 30_000_000_000, 10_000_000_000];
    let (times, others) = (Times { ages_ns, end_unix_ns }, Blocks::default());
    let reference = Reference { interval_bytes: 524_288.0, ..Reference::default() };
    let top = request.top as usize;
    let ranking = Ranking::new(stacks, &others, &reference, &times, confidence, top);
    let stacks = ranking.ranked.iter().map(|(index, grown)| {
        let line = |function: &str| Line { function: function.into(), ..Line::default() };
        Leak { pid: PID, frames: names[*index].map(line).to_vec(), grown: grown.clone() }
    });
    let mut wire = leaks_to_wire(&Leaks {
        confidence,
        start_unix_ns: 1_795_180_000_000_000_000,
        end_unix_ns,
        total: ranking.total,
        growing: ranking.growing,
        unseen: ranking.unseen,
        max_other_growth: ranking.max_other_growth,
        stacks: stacks.collect(),
        stacks_total: 2,
        notes: vec!["a note".into()],
    });
    if request.confidence == 0.5 {
        wire.max_other_growth = f64::NAN;
    }
    wire
}

#[test]
fn growing_stacks_are_named_first() {
    let mock = Mock::unix();
    let text = sampler(&mock.address, "leaks");
    let text = text.text();
    assert!(text.contains("growing   1 of 2 stacks that changed"), "{text}");
    assert!(text.contains("      keep_all\n") && !text.contains("turn_over"), "{text}");
    assert!(text.contains("note      a note"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let json = sampler(&mock.address, "leaks --json").json();
    assert_eq!((&json["growing"], &json["stacks_total"]), (&1.into(), &2.into()));
    let first = &json["stacks"][0];
    assert_eq!(
        (&first["growing"], &first["frames"][1]["function"]),
        (&true.into(), &"keep_all".into())
    );
    let rate = first["growth"]["low"].as_f64().unwrap() / 60.0;
    assert!((first["bytes_per_second"]["low"].as_f64().unwrap() / rate - 1.0).abs() < 1e-9);
    assert_eq!(json["stacks"].as_array().unwrap().len(), 2);
    let one = sampler(&mock.address, "leaks --json --top 1").json();
    assert_eq!(one["stacks"].as_array().unwrap().len(), 1);
}

#[test]
fn a_report_without_growth_says_so() {
    let mock = Mock::unix();
    let text = sampler(&mock.address, "leaks --over 7s");
    assert!(text.text().contains("growing   nothing by more than chance"), "{}", text.text());
    assert!(text.text().contains("may have grown by up to"), "{}", text.text());
}

#[test]
fn invalid_leaks_arguments_are_refused_in_one_line() {
    let mock = Mock::unix();
    for arguments in ["leaks --over 0", "leaks --over x", "leaks --top 0", "leaks --confidence 1"] {
        sampler(&mock.address, arguments).failure(2);
    }
    let broken = sampler(&mock.address, "leaks --confidence 0.5");
    assert!(
        broken.failure(1).contains("makes no sense: max_other_growth NaN"),
        "{}",
        broken.stderr
    );
}
