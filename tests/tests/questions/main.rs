//! No query attaches, detaches, thins, enforces a limit or writes to a process, whatever changes
//! meanwhile.
//!
//! An answer borrows the worker immutably, so the compiler checks the same property. This test
//! checks the system calls instead.

mod asking;
mod calls;
mod changes;

use anyhow::{Result, ensure};
use asking::{Pages, SERVICE, SETTER, ask, questions};
use calls::{Caller, Calls, Trace, bpf};
use changes::Machine;
use sampler_tests::Daemon;
use sampler_tests::client::Client;
use std::collections::BTreeSet;
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// Questions over gRPC about the whole machine, which take longer, and about given processes. Pages
/// over HTTP come on top.
const QUESTIONS: [usize; 2] = [300, 700];
/// Questions between two changes of the machine.
const ROUND: usize = 40;
/// Arguments of both daemons. The live set has room for so few samples that it is thinned.
const ARGUMENTS: &[&str] =
    &["--interval", "64KiB", "--max-live", "2000", "--http", "127.0.0.1:0", "--web", "127.0.0.1:0"];

/// A runtime of this thread's own, and a client that has learnt the service.
fn connected(address: &str) -> Result<(tokio::runtime::Runtime, Client)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(async {
        let mut client = Client::connect(address).await?;
        client.learn(SERVICE).await?;
        anyhow::Ok(client)
    })?;
    Ok((runtime, client))
}

/// Asks `count` questions over gRPC, each kind in its turn. A message goes to both channels every
/// [`ROUND`] questions. Returns how many questions the worker answers.
fn ask_over_grpc(address: &str, count: usize, after_round: [Sender<()>; 2]) -> Result<u64> {
    let (runtime, client) = connected(address)?;
    let questions = questions();
    let requested: BTreeSet<&str> = questions.iter().map(|of| of.method).chain([SETTER]).collect();
    let known = client.methods(SERVICE)?;
    let known: BTreeSet<&str> = known.iter().map(String::as_str).collect();
    ensure!(requested == known, "the test asks {requested:?}, and the service has {known:?}");
    let mut answered = 0;
    for (number, question) in questions.iter().cycle().take(count).enumerate() {
        if number % ROUND == 0 {
            // A thread that has failed receives nothing more; its error is returned when it is
            // joined.
            after_round.iter().for_each(|of| of.send(()).unwrap_or_default());
        }
        runtime.block_on(ask(&client, question))?;
        // `Plan` is arithmetic, and `StreamSamples` is served from a channel: the worker answers
        // neither.
        answered += u64::from(!["Plan", "StreamSamples"].contains(&question.method));
    }
    Ok(answered)
}

/// The system calls of a daemon while it is asked and the machine changes.
fn calls_of(mut daemon: Daemon, mut machine: Machine, count: usize) -> Result<Calls> {
    let pages = Pages::read(&mut || daemon.child().line())?;
    machine.begin()?;
    let trace = Trace::start(&daemon)?;
    let address = daemon.address.as_str();
    let (change, changes) = channel();
    let (fetch, fetches) = channel();
    let answered = thread::scope(|scope| {
        let changing = scope.spawn(move || {
            let (runtime, client) = connected(address)?;
            for () in changes {
                runtime.block_on(machine.change(&client))?;
            }
            anyhow::Ok(())
        });
        let fetching = scope.spawn(move || fetches.iter().try_for_each(|()| pages.ask_all()));
        let answered = ask_over_grpc(address, count, [change, fetch]);
        for thread in [changing, fetching] {
            thread.join().expect("a thread has panicked")?;
        }
        answered
    })?;
    let calls = trace.finish()?;
    println!("{calls}");
    ensure!(calls.answers >= answered, "the probe saw {} of {answered} answers", calls.answers);
    Ok(calls)
}

/// An action of samplerd between answers: its name, its caller, the call, and the field that
/// identifies the call.
type Action = (&'static str, Caller, i64, i64);

const UPDATE: Action = ("change a map", Caller::Loop, libc::SYS_bpf, bpf::MAP_UPDATE_ELEM);
const THIN: Action =
    ("thin the live set", Caller::Loop, libc::SYS_bpf, bpf::MAP_LOOKUP_AND_DELETE_ELEM);
const WRITE: Action = ("write into a process", Caller::Loop, libc::SYS_pwrite64, 0);
const REQUEST: Action = ("request links of the guardian", Caller::Loop, libc::SYS_sendmsg, 0);
const LINK: Action = ("attach", Caller::Guardian, libc::SYS_bpf, bpf::LINK_CREATE);
const LET_GO: Action = ("detach", Caller::Loop, libc::SYS_shutdown, 0);

/// Checks that each action was done between answers. The test would therefore have detected the
/// action in an answer.
fn are_done_between(calls: &Calls, actions: &[Action]) -> Result<()> {
    for (name, caller, number, field) in actions {
        let count = calls.count(*caller, *number, *field);
        ensure!(count > 0, "samplerd does not {name} in this test\n{calls}");
    }
    Ok(())
}

#[test]
fn questions_about_a_whole_machine_only_read() -> Result<()> {
    let machine = Machine::start()?;
    let daemon = Daemon::start(&[], &[&["--all"], ARGUMENTS].concat())?;
    let calls = calls_of(daemon, machine, QUESTIONS[0])?;
    calls.check_answers_only_read()?;
    are_done_between(&calls, &[UPDATE, THIN, WRITE, REQUEST, LINK])
}

#[test]
fn questions_about_given_processes_only_read() -> Result<()> {
    let machine = Machine::start()?;
    let daemon = Daemon::start(&machine.pids(), ARGUMENTS)?;
    let calls = calls_of(daemon, machine, QUESTIONS[1])?;
    calls.check_answers_only_read()?;
    are_done_between(&calls, &[THIN, WRITE, REQUEST, LINK, LET_GO])
}
