//! `sampler`, the command line of samplerd. It uses only the gRPC API. Exceptions are `plan`, which
//! is arithmetic, `diff` of saved profiles, and `symbolize`, which works on exported files.

mod args;
mod connect;
mod diff;
mod encoded;
mod flamegraph;
mod leaks;
mod lifetimes;
mod manual;
mod names;
mod output;
mod page;
mod plan;
mod profile;
mod progress;
mod ps;
mod run;
mod set;
mod source;
mod status;
mod top;
mod watch;

use args::{Args, Verb};
use std::process::ExitCode;

/// With its own allocator, this program never hits the probes that it asks about.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = Args::from_command_line();
    // This verb needs a process with one thread.
    if let Verb::Start(verb) = &args.verb {
        return run::starter::start(verb);
    }
    match ask(args) {
        Ok(code) => code,
        // The reader has closed the pipe (`sampler … | head`).
        Err(error) if error.is::<output::Closed>() => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn ask(args: Args) -> anyhow::Result<ExitCode> {
    let json = args.json;
    // The address is parsed only for verbs that ask samplerd. Other verbs work with an invalid
    // address too.
    let address = || connect::address(args.connect.clone());
    match args.verb {
        Verb::Status => status::run(&address()?, json).await,
        Verb::Ps(verb) => ps::run(&address()?, verb, json).await,
        Verb::Profile(verb) => profile::run(&address()?, verb, json).await,
        Verb::Watch(verb) => watch::run(&address()?, verb, json).await,
        Verb::Top(verb) => return top::run(&address()?, verb).await,
        Verb::Set(verb) => set::run(&address()?, verb, json).await,
        Verb::Diff(verb) => diff::run(args.connect, verb, json).await,
        Verb::Flamegraph(verb) => flamegraph::run(&address()?, *verb).await,
        Verb::Leaks(verb) => leaks::run(&address()?, verb, json).await,
        Verb::Lifetimes(verb) => lifetimes::run(&address()?, verb, json).await,
        Verb::Plan(verb) => plan::run(args.connect, &verb, json).await,
        Verb::Symbolize(verb) => names::add(&verb, json),
        Verb::Completions(verb) => manual::completions(&verb),
        Verb::Man(verb) => manual::pages(&verb),
        Verb::Run(verb) => return run::run(*verb, json).await,
        // `main` has handled this verb.
        Verb::Start(_) => Ok(()),
    }?;
    Ok(ExitCode::SUCCESS)
}
