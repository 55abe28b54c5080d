//! Windows of a budget, planned by the real controller for programs whose time is simulated: totals are unbiased, and intervals have them as often as
//! they say, also where the program changes within milliseconds and traps slow it down several times.
//!
//! A step is a period of the fine clock. Where probes are the program does its allocations, each with a trap and what that adds to its own code; the
//! step's tick falls into its own code by chance. Attaching takes time of the wall's clock, of which the program makes less where it allocates.

#[path = "../common/mod.rs"]
mod common;
mod judge;
mod program;
mod run;

use judge::{Life, judge};
use program::{HEAVY, Host, LIGHT, Machine, Marker, Program, SLOW};
use run::Begin;

/// As it is.
const LONG: (Begin, Life) = (Begin::Settled, Life::Long);

const PROGRAMS: [Program; 8] = [
    Program { name: "steady", period: 1e9, busy: 1.0, each: [800.0, 800.0] },
    Program { name: "hot", period: 1e9, busy: 1.0, each: [200.0, 200.0] },
    Program { name: "mild phases", period: 3.7e6, busy: 0.22, each: [1_000.0, 20_000.0] },
    Program { name: "long phases", period: 37e6, busy: 0.27, each: [300.0, 20_000.0] },
    Program { name: "phases of milliseconds", period: 3.7e6, busy: 0.27, each: [300.0, 20_000.0] },
    Program { name: "dense phases", period: 3e9, busy: 0.2, each: [60.0, 400.0] },
    Program { name: "bursts", period: 200e6, busy: 0.1, each: [500.0, 20_000.0] },
    Program { name: "rare", period: 1e9, busy: 1.0, each: [100_000.0, 100_000.0] },
];

/// How far off estimates of a program may be on average, beside chance. Where a program lives from allocating, what traps are taken to add is not quite what they do
/// add there; and phases of milliseconds are met too often (see [`Begin`]), and look in longer windows like a program that seldom allocates, in which traps may add more.
fn most_off(program: &Program) -> f64 {
    match program.name {
        "phases of milliseconds" => 0.07,
        "hot" | "bursts" | "long phases" | "dense phases" => 0.05,
        "mild phases" | "steady" => 0.03,
        _ => 0.02,
    }
}

#[test]
fn programs_that_windows_slow_down_are_estimated_right() {
    for (program, machine) in PROGRAMS.iter().flat_map(|of| [(of, LIGHT), (of, HEAVY)]) {
        let (bias, error, inside, width) = judge(program, machine, Marker::None, LONG);
        assert!(bias.abs() < 5.0 * error + most_off(program), "{}: {bias} ± {error}", program.name);
        // Of 200 at 95 % fewer than 172 come once in a million times.
        assert!(inside >= 0.86, "{}: {inside}", program.name);
        // Were windows of dense phases corrected for more than they can lose, it would be some hundred percent.
        assert!(width < 1.0, "{}: intervals of ± {width}", program.name);
    }
}

/// Programs in which traps add other than what is usual: the least and the most that was found on either machine (sqlite3, lua; redis, perl), gawk's, and a
/// loop that lives from forwarded stores. And machines on which typical code loses half as much again or two thirds of what it was thought to, or loops
/// twice or half as much. What an interval says it says of programs as they usually are, so that of those two and three standard deviations
/// from that it has fewer: 63 to 93 %, the fewer the more windows there are, since these make it narrower around what is usual.
#[test]
fn what_traps_add_may_be_unusual() {
    let light = [[17.0, 7.0], [37.0, 22.0], [32.0, 77.0], [90.0, 90.0]];
    let heavy = [[43.0, 39.0], [122.0, 73.0]];
    let of = |machine: Machine| move |drag| Machine { drag, ..machine };
    let programs = light.map(of(LIGHT)).into_iter().chain(heavy.map(of(HEAVY)));
    let machines = [LIGHT, HEAVY].into_iter().flat_map(|machine| {
        let typical = [1.5, 1.0 / 1.5].map(|times| machine.typical * times);
        let enough = [0.5, 2.0].map(|times| machine.enough * times);
        let typical = typical.map(|typical| Machine { typical, ..machine });
        typical.into_iter().chain(enough.map(|enough| Machine { enough, ..machine }))
    });
    for machine in programs.chain(machines) {
        let (_, _, inside, width) = judge(&PROGRAMS[1], machine, Marker::None, LONG);
        // Of 200 at 95 % fewer than 172 come once in a million times, at 63 % fewer than 95.
        // Where time enough for all that traps add is twice what it is taken for, a program of 200 ns loses half of what it is corrected for: the more windows, the
        // narrower the interval around that. Of 200 at 73 % fewer than 115 come once in a million times.
        let is_slow = machine.enough > 9.0 * machine.typical;
        let is_far = machine.drag[0] > 1.7 * machine.usual().median_ns;
        let least = match (is_slow, is_far) {
            (true, _) => 0.57,
            (false, true) => 0.5,
            (false, false) => 0.86,
        };
        assert!(inside >= least && width < 0.65, "{machine:?}: {inside}, ± {width}");
    }
}

/// Where there is much time for each trap it may add a multiple of what is usual (cc1plus, python3 with its own allocator).
#[test]
fn sparse_traps_may_add_much() {
    let program = Program { name: "sparse", period: 1e9, busy: 1.0, each: [1_100.0, 1_100.0] };
    for (machine, times) in [(LIGHT, 1.0), (LIGHT, 2.8), (HEAVY, 1.0), (HEAVY, 2.8)] {
        let drag = [machine.drag[0] * times, machine.drag[1] * times.sqrt()];
        let (bias, _, inside, width) =
            judge(&program, Machine { drag, ..machine }, Marker::None, LONG);
        // Of 200 at 95 % fewer than 172 come once in a million times; at 81 %, of a program that is one and a half standard deviations off, 131.
        let least = if times > 1.0 { 0.65 } else { 0.86 };
        assert!(inside >= least && bias.abs() < 0.15, "{machine:?}, {times}: {bias}, {inside}");
        assert!(width < 0.35, "{machine:?}, {times}: ± {width}");
    }
}

/// Over programs as they usually are, by the law that intervals are made of, these have the truth as often as they say.
#[test]
fn intervals_are_right_over_what_is_usual() {
    // Middles of seven like parts of a normal law, in standard deviations.
    const USUAL: [f64; 7] = [-1.465, -0.792, -0.366, 0.0, 0.366, 0.792, 1.465];
    for machine in [LIGHT, HEAVY] {
        let usual = machine.usual();
        let inside = USUAL.map(|off| {
            let adds = usual.median_ns * (usual.spread * off).exp();
            let drag = [adds, adds * machine.drag[1] / machine.drag[0]];
            judge(&PROGRAMS[1], Machine { drag, ..machine }, Marker::None, LONG).2
        });
        let mean = inside.iter().sum::<f64>() / USUAL.len() as f64;
        // Of 1,400 at 95 % fewer than 1,287 come once in a million times.
        assert!(mean > 0.92, "{machine:?}: {inside:?}");
    }
}

/// Loops of nothing but malloc and free: what was found of traps in nine of them is between a fourth of what such loops are taken to lose and twice that.
#[test]
fn loops_of_nothing_else_are_estimated_right() {
    let program = Program { name: "loop", period: 1e9, busy: 1.0, each: [21.0, 21.0] };
    for machine in [LIGHT, HEAVY] {
        for times in [0.3, 0.6, 1.0, 1.5] {
            let machine = Machine { drag: machine.drag.map(|ns| times * ns), ..machine };
            let (bias, _, inside, width) = judge(&program, machine, Marker::None, LONG);
            // Where a trap adds something to whatever is behind it such a loop loses half of its time to them, or more.
            let (most_off, most) = if machine.power < 1.0 { (0.4, 1.1) } else { (0.25, 0.45) };
            assert!(inside >= 0.86 && bias.abs() < most_off, "{machine:?}: {bias}, {inside}");
            assert!(width < most, "{machine:?}: ± {width}");
        }
    }
}

/// A loop that loses more than half of its time to traps, in 25 windows of a few ticks each, of which most fall into traps: what it is corrected for is not what chance makes of one window, nor is the truth
/// outside of what is thought possible.
#[test]
fn loops_are_estimated_right_in_few_short_windows() {
    let program = Program { name: "short", period: 1e9, busy: 1.0, each: [34.0, 34.0] };
    for (times, least) in [(0.6, 0.86), (0.8, 0.86), (1.0, 0.86), (1.2, 0.8)] {
        let machine = Machine { drag: SLOW.drag.map(|ns| times * ns), ..SLOW };
        let (bias, _, inside, width) = judge(&program, machine, Marker::None, LONG);
        // Where two thirds of its time are the traps' that is nearly the most that is thought possible.
        assert!(inside >= least && bias.abs() < 0.35, "{machine:?}: {bias}, {inside}");
        assert!(width < 1.1, "{machine:?}: ± {width}");
    }
}

/// Calls of a function tell what traps add, however unusual it is: intervals of a program that lives from allocating are a fraction of those without.
#[test]
fn calls_tell_what_traps_add() {
    let unusual = [[17.0, 7.0], [37.0, 22.0], [32.0, 77.0], [90.0, 90.0]];
    let of = |machine: Machine| move |drag| Machine { drag, ..machine };
    let heavy = [HEAVY.drag, [43.0, 39.0], [122.0, 73.0]].map(of(HEAVY));
    for machine in unusual.map(of(LIGHT)).into_iter().chain([LIGHT]).chain(heavy) {
        let (bias, _, inside, width) = judge(&PROGRAMS[1], machine, Marker::Follows(100.0), LONG);
        // The farther from what is usual the more of that is left: 7 % of three standard deviations.
        assert!(bias.abs() < 0.08, "{machine:?}: {bias}");
        assert!(inside >= 0.86 && width < 0.16, "{machine:?}: {inside}, ± {width}");
    }
}

/// Programs that serve requests: all on either machine, and one that lives from allocating where traps add other than what is usual.
fn servers() -> impl Iterator<Item = (&'static Program, Machine)> {
    let unusual = [[17.0, 7.0], [32.0, 77.0], [90.0, 90.0]];
    let of = |machine: Machine| move |drag| Machine { drag, ..machine };
    let unusual = unusual.map(of(LIGHT)).into_iter().chain([[122.0, 73.0]].map(of(HEAVY)));
    let machines = PROGRAMS.iter().flat_map(|program| [(program, LIGHT), (program, HEAVY)]);
    machines.chain(unusual.map(|machine| (&PROGRAMS[1], machine)))
}

/// What a program reads and writes stands for its progress, however it changes and whatever traps add: estimates are right where by the clock they were up to a tenth off, and
/// intervals a third to a tenth as wide.
#[test]
fn requests_stand_for_progress() {
    for (program, machine) in servers() {
        let (bias, error, inside, width) = judge(program, machine, Marker::Requests(100.0), LONG);
        let name = program.name;
        assert!(bias.abs() < 5.0 * error + 0.015, "{name} {machine:?}: {bias} ± {error}");
        assert!(inside >= 0.86 && width < 0.13, "{name} {machine:?}: {inside}, ± {width}");
    }
}

/// Where bytes allocated do not follow requests these tell all the same what traps add.
#[test]
fn requests_tell_what_traps_add() {
    for (program, machine) in servers() {
        let (bias, error, inside, width) = judge(program, machine, Marker::Unlike(100.0), LONG);
        let name = program.name;
        assert!(
            bias.abs() < 5.0 * error + most_off(program).max(0.07),
            "{name} {machine:?}: {bias} ± {error}"
        );
        assert!(inside >= 0.86, "{name} {machine:?}: {inside}");
        assert!(name != "hot" || width < 0.2, "{name} {machine:?}: ± {width}");
    }
}

/// A word of its memory that counts with its allocations does so as well.
#[test]
fn counters_stand_for_progress() {
    for (program, machine) in servers() {
        let (bias, error, inside, width) = judge(program, machine, Marker::Counts(10.0), LONG);
        let name = program.name;
        assert!(bias.abs() < 5.0 * error + 0.015, "{name} {machine:?}: {bias} ± {error}");
        assert!(inside >= 0.86 && width < 0.13, "{name} {machine:?}: {inside}, ± {width}");
    }
}

/// So do several that are slow, of which the best is not taken at its own word: also after few windows.
#[test]
fn slow_counters_stand_for_progress_together() {
    for life in [Life::Long, Life::Short] {
        for (program, machine) in [(&PROGRAMS[0], LIGHT), (&PROGRAMS[1], HEAVY)] {
            let marker = Marker::Several(10_000.0);
            let (bias, error, inside, width) =
                judge(program, machine, marker, (Begin::Settled, life));
            let name = program.name;
            assert!(bias.abs() < 5.0 * error + most_off(program), "{name}: {bias} ± {error}");
            assert!(inside >= 0.86 && width < 0.3, "{name}: {inside}, ± {width}");
        }
    }
}

/// And one that counts the rounds of a loop, of which a window meets one or two: two minutes have but a dozen windows where everything is dear, four minutes twice as many: they begin and end at its counts.
#[test]
fn counters_of_rounds_stand_for_progress() {
    let program = Program { name: "rounds", period: 1e9, busy: 1.0, each: [34.0, 34.0] };
    // In windows from tick to tick they are ± 0.20, 0.31 and 0.23.
    for (round, windows, most) in [(20_000.0, 14, 0.15), (40_000.0, 9, 0.25), (40_000.0, 16, 0.18)]
    {
        let host = Host { windows, links_ns: 15e6, ..SLOW.host };
        let machine = Machine { host, ..SLOW };
        let (bias, error, inside, width) = judge(&program, machine, Marker::Rounds(round), LONG);
        assert!(bias.abs() < 5.0 * error + 0.05, "{round}: {bias} ± {error}");
        assert!(inside >= 0.86 && width < most, "{round}, {windows}: {inside}, ± {width}");
    }
}

/// One that counts whatever the program does tells how much of it traps have let be done.
#[test]
fn counters_of_other_work_tell_what_traps_add() {
    let rates = [5_000.0, 1e6].map(Marker::Turns);
    for ((program, machine), marker) in servers().flat_map(|of| rates.map(|marker| (of, marker))) {
        let (bias, error, inside, width) = judge(program, machine, marker, LONG);
        let name = program.name;
        assert!(
            bias.abs() < 5.0 * error + most_off(program).max(0.06),
            "{name} {machine:?} {marker:?}: {bias} ± {error}"
        );
        assert!(inside >= 0.86, "{name} {machine:?} {marker:?}: {inside}");
        let is_told = name == "hot" && marker == rates[0];
        assert!(!is_told || width < 0.2, "{name} {machine:?} {marker:?}: ± {width}");
    }
}

/// A word that is a clock counts more in windows than elsewhere, since traps take time, and is not taken for work.
#[test]
fn time_is_no_work() {
    for (program, machine) in PROGRAMS.iter().flat_map(|of| [(of, LIGHT), (of, HEAVY)]) {
        for marker in [1_000.0, 1e6].map(Marker::Time) {
            let (bias, error, inside, width) = judge(program, machine, marker, LONG);
            let name = program.name;
            assert!(
                bias.abs() < 5.0 * error + most_off(program),
                "{name} {machine:?} {marker:?}: {bias} ± {error}"
            );
            assert!(inside >= 0.86 && width < 1.0, "{name} {marker:?}: {inside}, ± {width}");
        }
    }
}

/// Those that follow nothing, or meet other phases, leave intervals right.
#[test]
fn calls_that_tell_little_do_no_harm() {
    for (program, machine) in PROGRAMS.iter().flat_map(|of| [(of, LIGHT), (of, HEAVY)]) {
        for marker in [
            Marker::Follows(30.0),
            Marker::Follows(1_000.0),
            Marker::Steady(20_000.0),
            Marker::Beats(20_000.0),
            Marker::Uneven(12.0),
        ] {
            let (.., inside, width) = judge(program, machine, marker, LONG);
            assert!(inside >= 0.86, "{} {marker:?}: {inside}", program.name);
            assert!(width < 1.0, "{} {marker:?}: ± {width}", program.name);
        }
    }
}

/// A life of few windows that ends anywhere, before a window, in it or behind it, while traps slow the program down: what the last stratum lacks makes no
/// difference. (What a program does between a window's place and its first tick is missed once in a life: a hundredth of one of a quarter of a second.)
#[test]
fn programs_may_exit_at_any_time() {
    let short = (Begin::Settled, Life::Short);
    for (program, machine) in PROGRAMS.iter().flat_map(|of| [(of, LIGHT), (of, HEAVY)]) {
        let (bias, error, inside, _) = judge(program, machine, Marker::None, short);
        let name = program.name;
        assert!(bias.abs() < 5.0 * error + most_off(program), "{name}: {bias} ± {error}");
        // So few windows do not meet what others do rarely, as their profiles say, and intervals of a rare one are narrower than that hundredth.
        let is_met = matches!(name, "steady" | "hot" | "dense phases");
        assert!(inside >= if is_met { 0.86 } else { 0.6 }, "{name}: {inside}");
    }
}

/// The control: what the simulation is there to find.
#[test]
fn windows_that_begin_with_their_probes_estimate_too_much() {
    let (bias, error, ..) = judge(&PROGRAMS[4], LIGHT, Marker::None, (Begin::Attached, Life::Long));
    assert!(bias - 5.0 * error > 0.03, "{bias} ± {error}");
}
