//! The text below the options, in the help and in the manual: examples and the meaning of the exit
//! status.

pub(crate) const SAMPLER: &str = "\
Examples:
  sudo sampler run -- make -j4        profile a program from its start
  sudo samplerd --pid 4121 --inject   or one that runs, and in another terminal
  sampler ps                          who allocates and who holds memory
  sampler top                         the same, live, and the code in them
  sampler profile --kind live         which code holds it
  sampler leaks --over 10m            which code holds more and more
  sampler profile --last 5m --top 5   which code allocated most in 5 minutes
  sampler diff 10m..5m 5m             what changed since the 5 minutes before

Exit status:
  0  done
  1  it could not be done: standard error says why, in one line
  2  the command line is wrong: standard error says what to change
  sampler run ends as its COMMAND does, with 128+N if signal N ended it

Environment:
  SAMPLER_CONNECT  where samplerd listens, if --connect is not given
  SAMPLER_TOKEN_FILE
                   the --token-file of a samplerd at tcp:…
  SAMPLER_TLS_CA, SAMPLER_TLS_CERT, SAMPLER_TLS_KEY
                   for tls:…, PEM files: authorities of samplerd's
                   certificate, and a certificate and its key for sampler
  COLUMNS          width of tables, instead of the terminal's
  NO_COLOR         if set and not empty: no colours";

pub(crate) const RUN: &str = "\
Examples:
  sudo sampler run -- ./server --port 80
  sudo sampler run --interval 64KiB --kind peak -- make
  sudo sampler run --format pprof -o build.pb.gz -- cargo build

Exit status:
  That of COMMAND; 128+N if signal N ended it. If it was not started:
  1    it could not be profiled: standard error says why, in one line
  2    the command line is wrong
  126  COMMAND cannot be run; 127: there is none
  128+N  signal N came first";

pub(crate) const STATUS: &str = "\
Examples:
  sampler status
  sampler status --json | jq .outcomes";

pub(crate) const PS: &str = "\
Examples:
  sampler ps --sort allocated
  sampler ps --by cgroup
  sampler ps --comm 'postgres*'";

pub(crate) const PROFILE: &str = "\
Examples:
  sampler profile --kind live --pid 4121
  sampler profile --last 30s --comm 'cc1*' --top 10
  sampler profile --kind live --min-age 10m     blocks that may be leaks
  sampler profile --focus '^parse_' --hide '^std::'
  sampler profile --format pprof -o p.pb.gz && go tool pprof -http=: p.pb.gz
  sampler profile --format folded | flamegraph.pl > flames.svg";

pub(crate) const WATCH: &str = "\
Examples:
  sampler watch --kind live --period 5s
  sampler watch --last 10s --count 6 --json";

pub(crate) const TOP: &str = "\
Examples:
  sampler top
  sampler top --kind live --comm 'postgres*'

Keys are those of htop; F1 or h shows them. / searches, \\ filters, > sorts,
Enter opens a process, a function, a stack, Esc goes back, Tab (or a, l, p) goes
from what is allocated to what is held to the peak, Space freezes, q quits.";

pub(crate) const FLAMEGRAPH: &str = "\
Examples:
  sampler flamegraph --kind live -o held.svg
  sampler flamegraph --measure byte-seconds --pid 4121 > cost.svg
  sampler flamegraph --last 5m --measure objects -o objects.svg";

pub(crate) const LEAKS: &str = "\
Examples:
  sampler leaks                     in the latter half of the time since attach
  sampler leaks --pid 4121 --over 10m
  sampler leaks --over 1h --json | jq '.stacks[] | select(.growing)'";

pub(crate) const LIFETIMES: &str = "\
Examples:
  sampler lifetimes --pid 4121 --top 10";

/// clap's own usage line has all settings in one pair of brackets, and is longer than a line.
pub(crate) const SET_USAGE: &str = "sampler set <A SETTING, OR SEVERAL> [OPTIONS]";

pub(crate) const SET: &str = "\
Examples:
  sampler set --interval 64KiB --pid 4121    more exact, and dearer
  sampler set --samples-per-second 100       as many as that, at any load";

pub(crate) const DIFF: &str = "\
Examples:
  sampler diff 10m..5m 5m --pid 4121
  sampler diff comm:old-server comm:new-server
  sampler diff 10m..5m 5m --svg -o changed.svg
  sampler diff before.json after.json        as sampler profile --json has them";

pub(crate) const PLAN: &str = "\
Examples:
  sampler plan --interval 512KiB --bytes 100MiB
  sampler plan --interval 512KiB --bytes 100MiB --size 64
  sampler plan --compare --pid 4121";

pub(crate) const SYMBOLIZE: &str = "\
Examples:
  sampler symbolize parquet:/var/lib/sampler/fleet
  DEBUGINFOD_URLS=http://127.0.0.1:8002 sampler symbolize parquet:/srv/fleet

Names come from files at the same path with the same build id, from debug files
below /usr/lib/debug, and from the servers of DEBUGINFOD_URLS. It may be called
again and again, from cron for example: a frame with a name is not looked up.";

pub(crate) const COMPLETIONS: &str = "\
Examples:
  sampler completions bash > /etc/bash_completion.d/sampler
  sampler completions zsh > /usr/share/zsh/site-functions/_sampler
  sampler completions fish > ~/.config/fish/completions/sampler.fish";

pub(crate) const MAN: &str = "\
Examples:
  sampler man /usr/local/share/man/man1 && man sampler-profile";
