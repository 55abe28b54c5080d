use super::{Cause, Limits, Pressure, TARGET_SHARE, share};
use crate::limits::LIBRARY_PER_SECOND;
use proptest::prelude::*;

/// Seconds of a turn.
const TURN: f64 = 0.02;

/// Programs with the samples per second that each would send without a raise.
struct Machine {
    pressure: Pressure,
    /// Fractions of samples that are due.
    due: Vec<f64>,
    taken: Vec<u64>,
    now: f64,
}

impl Machine {
    fn new(limits: Limits, programs: usize) -> Machine {
        Machine {
            pressure: Pressure::new(limits),
            due: vec![0.0; programs],
            taken: vec![0; programs],
            now: 0.0,
        }
    }

    /// One turn; returns the samples in it.
    fn turn(&mut self, demand: &[f64], length: f64) -> u64 {
        let mut samples = 0;
        for (program, demand) in demand.iter().enumerate() {
            self.due[program] += demand * length / self.pressure.raised(program as u32).factor();
            let whole = self.due[program].floor();
            self.due[program] -= whole;
            self.taken[program] += whole as u64;
            samples += whole as u64;
            (0..whole as u64).for_each(|_| self.pressure.take(program as u32, 1.0, false));
        }
        self.now += length;
        self.pressure.turn(length, (self.now * 1e9) as u64);
        samples
    }

    fn run(&mut self, demand: &[f64], seconds: f64) -> u64 {
        (0..(seconds / TURN) as u64).map(|_| self.turn(demand, TURN)).sum()
    }

    fn factor(&self, program: u32) -> f64 {
        self.pressure.raised(program).factor()
    }
}

const LIMITS: Limits = Limits { daemon: 20_000.0, process: 10_000.0, library: f64::INFINITY };

#[test]
fn a_storm_raises_the_interval_for_its_duration_only() {
    let mut machine = Machine::new(LIMITS, 2);
    machine.run(&[300.0, 200.0], 2.0);
    assert_eq!(machine.factor(0), 1.0);
    let storm = [1e6, 200.0];
    let first = machine.run(&storm, 0.1);
    assert!(machine.factor(0) > 50.0, "{}", machine.factor(0));
    // The bucket, and the samples of the turn that emptied it and of the next turn.
    assert!(first < 45_000, "{first}");
    let second = machine.run(&storm, 1.0);
    assert!((4000..11_000).contains(&second), "{second}");
    let raised = machine.pressure.raised(0);
    assert_eq!(raised.cause, Cause::Process);
    assert!(raised.raises > 0 && raised.since_ns >= 2_000_000_000, "{raised:?}");
    assert_eq!(machine.factor(1), 1.0, "the quiet one is left alone");
    machine.run(&[300.0, 200.0], 5.0);
    assert_eq!(machine.factor(0), 1.0);
    let raises = machine.pressure.raised(0).raises;
    machine.run(&[300.0, 200.0], 5.0);
    assert_eq!(machine.pressure.raised(0).raises, raises);
}

#[test]
fn samples_from_before_a_raise_cause_no_second_raise() {
    let mut pressure = Pressure::new(LIMITS);
    (0..10_000).for_each(|_| pressure.take(1, 1.0, false));
    assert_eq!(pressure.turn(0.02, 1), [1]);
    let factor = pressure.raised(1).factor();
    // The ring buffer still holds as many more from the same storm.
    (0..10_000).for_each(|_| pressure.take(1, 1.0 / factor, false));
    pressure.turn(0.02, 2);
    assert_eq!(pressure.raised(1).factor(), factor);
}

#[test]
fn the_daemon_s_limit_is_shared_fairly() {
    let limits = Limits { daemon: 10_000.0, ..Limits::NONE };
    let mut machine = Machine::new(limits, 4);
    let demand = [50_000.0, 50_000.0, 1000.0, 100.0];
    machine.run(&demand, 2.0);
    let before = machine.taken.clone();
    machine.run(&demand, 10.0);
    let rates: Vec<f64> = machine
        .taken
        .iter()
        .zip(before)
        .map(|(now, before)| (now - before) as f64 / 10.0)
        .collect();
    assert!(rates.iter().sum::<f64>() <= 10_000.0, "{rates:?}");
    assert!(rates[0] > 1500.0 && rates[1] > 1500.0, "{rates:?}");
    assert!((rates[2] - 1000.0).abs() < 2.0 && (rates[3] - 100.0).abs() < 2.0, "{rates:?}");
    assert_eq!(machine.pressure.raised(0).cause, Cause::Daemon);
}

#[test]
fn without_limits_nothing_is_raised() {
    let limits = Limits::NONE;
    let mut machine = Machine::new(limits, 1);
    machine.run(&[1e6], 1.0);
    assert_eq!((machine.factor(0), machine.pressure.raised(0).raises), (1.0, 0));
}

#[test]
fn unused_shares_are_given_to_the_others() {
    assert_eq!(share(600.0, vec![900.0]), 600.0);
    assert_eq!(share(600.0, vec![10.0, 900.0, 20.0]), 570.0);
    assert_eq!(share(600.0, vec![400.0, 400.0, 10.0]), 295.0);
    assert_eq!(share(600.0, vec![100.0, 200.0]), f64::INFINITY);
    assert_eq!(share(600.0, vec![]), f64::INFINITY);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever programs do: no second has more than the limit, the capacity of the buckets, and
    /// the samples of two turns before the raise.
    #[test]
    fn samples_stay_below_the_limit(
        demand in prop::collection::vec(prop::collection::vec(0.0f64..300_000.0, 3), 1..8),
        daemon in 100.0f64..30_000.0,
        process in 100.0f64..30_000.0,
    ) {
        let mut machine = Machine::new(Limits { daemon, process, ..Limits::NONE }, 3);
        for phase in &demand {
            // Time for the answer to a new phase.
            machine.run(phase, 1.0);
            let samples = machine.run(phase, 4.0);
            prop_assert!(samples as f64 <= 4.0 * daemon * 1.15 + 48.0, "{samples}, {daemon}: {demand:?}");
        }
        // A process that has less than any share from the beginning is never raised.
        for program in 0..3 {
            let most = demand.iter().map(|phase| phase[program]).fold(0.0, f64::max);
            if most < 0.5 * process && most < 0.5 * TARGET_SHARE * daemon / 3.0 {
                prop_assert_eq!(machine.factor(program as u32), 1.0);
            }
        }
    }

    /// After a storm of any size, everything is as before, within the time that the raise takes to
    /// come down.
    #[test]
    fn every_raise_is_undone_after_the_storm(storm in 1e4f64..1e8, seconds in 0.02f64..3.0, limit in 50.0f64..20_000.0) {
        let mut machine = Machine::new(Limits { daemon: limit, process: limit, ..Limits::NONE }, 1);
        machine.run(&[storm], seconds);
        machine.run(&[limit * 0.1], 25.0);
        prop_assert_eq!(machine.factor(0), 1.0);
    }

    /// Turns of any length: a daemon that is late takes more at once, and raises no further than
    /// the size of the storm.
    #[test]
    fn late_turns_do_not_raise_too_far(demand in 1e3f64..1e6, turns in prop::collection::vec(0.001f64..0.5, 20..60)) {
        let mut machine = Machine::new(LIMITS, 1);
        for turn in turns {
            machine.turn(&[demand], turn);
        }
        let needed = demand / LIMITS.process;
        prop_assert!(machine.factor(0) <= (needed * 4.0).max(1.0), "{} for {needed}", machine.factor(0));
    }
}

/// A process with our library in it enforces its own limit, and is raised for its share of the
/// daemon's limit only.
#[test]
fn a_library_keeps_a_limit_of_its_own() {
    let any = Limits { process: f64::INFINITY, ..LIMITS };
    let few = Limits { library: 1_000.0, ..any };
    let most = LIBRARY_PER_SECOND as f64;
    for (limits, limit) in [
        (any, most),
        (Limits::NONE, most),
        (LIMITS, LIMITS.process),
        (few, 1_000.0),
        (Limits { process: 800.0, ..few }, 800.0),
    ] {
        assert_eq!(limits.of_library(), limit, "{limits:?}");
        for (demand, is_raised) in [(1.5 * LIMITS.process, false), (2.0 * LIMITS.daemon, true)] {
            let mut pressure = Pressure::new(limits);
            for turn in 1..200 {
                pressure.take(1, demand * TURN / pressure.raised(1).factor(), true);
                pressure.turn(TURN, turn * 20_000_000);
            }
            let raised = pressure.raised(1);
            let is_expected = is_raised && limits.daemon.is_finite();
            assert_eq!(raised.raises > 0, is_expected, "{demand} under {limits:?}");
            assert!(raised.raises == 0 || raised.cause == Cause::Daemon);
        }
    }
}
