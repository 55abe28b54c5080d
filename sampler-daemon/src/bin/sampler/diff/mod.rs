//! `sampler diff`: the changes between two profiles, and which of them are more than chance.

mod source;

pub(crate) use source::Source;

use crate::args::{DiffVerb, unix_ns};
use crate::connect::{self, Address, Client};
use crate::{flamegraph, page};
use anyhow::{Result, ensure};
use sampler_common::comparison::{Question, compare, parted, rows};
use sampler_common::encode::comparison::{object, text};
use sampler_common::encode::svg::difference;
use sampler_common::profile::{Kind, Profile};
use sampler_daemon::rpc::convert::from_wire;
use sampler_daemon::rpc::v1::{self, ProcessSelector};

/// Default number of stacks.
const DEFAULT_ROWS: usize = 10;

pub(crate) async fn run(connect: Option<Address>, verb: DiffVerb, json: bool) -> Result<()> {
    let given = verb.output.as_deref();
    let file = if verb.svg {
        flamegraph::file(given)?
    } else {
        given.filter(|path| path.as_os_str() != "-")
    };
    let [a, b] = narrowed(verb.a, verb.b, &verb.select.selector())?;
    let sources = [&a, &b];
    let saved = sources.map(Source::saved);
    let [saved_a, saved_b] = saved;
    let (saved_a, saved_b) = (saved_a.transpose()?, saved_b.transpose()?);
    // If one side is a saved profile, the other side gets its kind.
    let of_saved = saved_a.as_ref().or(saved_b.as_ref()).map(|profile| profile.kind);
    let kind = verb.kind.map(Kind::from).or(of_saved).unwrap_or(Kind::Alloc);
    // Both requests use the same time as now, so that adjacent windows have a common border.
    let now = unix_ns();
    let requests = sources.map(|source| source.request(kind, verb.confidence, now));
    let mut daemon = Daemon { connect, client: None };
    let mut profiles = Vec::with_capacity(2);
    for (saved, request) in [saved_a, saved_b].into_iter().zip(&requests) {
        profiles.push(match (saved, request) {
            (Some(profile), _) => profile,
            (None, request) => daemon.profile(request.clone().unwrap_or_default()).await?,
        });
    }
    daemon.part(&mut profiles, &requests, now).await?;
    let [a, b] = [&profiles[0], &profiles[1]];
    let [a_name, b_name] = sources.map(|source| source.to_string());
    let question = Question {
        a_name: &a_name,
        a,
        b_name: &b_name,
        b,
        confidence: verb.confidence,
        per_second: verb.per_second,
        independent: verb.independent,
    };
    let comparison = compare(&question)?;
    let contents = if json {
        format!("{}\n", object(&comparison)).into_bytes()
    } else if verb.svg {
        let mut picture = Vec::new();
        difference(&comparison, &rows(&question)?, &mut picture)?;
        picture
    } else {
        let top = verb.top.map_or(DEFAULT_ROWS, |top| top as usize);
        text(&comparison, page::width(), top).into_bytes()
    };
    flamegraph::written(file, &contents)
}

/// Narrows both sides to the chosen processes.
fn narrowed(a: Source, b: Source, to: &ProcessSelector) -> Result<[Source; 2]> {
    let mut sources = [a, b];
    if *to == ProcessSelector::default() {
        return Ok(sources);
    }
    let mut requested = false;
    for source in &mut sources {
        requested |= source.narrow(to)?;
    }
    // A saved profile cannot be narrowed: it is not split by process.
    ensure!(
        requested,
        "both profiles were saved, of the processes that were chosen then (leave out --pid, --comm, --exe and --cgroup)"
    );
    Ok(sources)
}

/// A connection to samplerd, made at the first request. A comparison of two files needs none.
struct Daemon {
    connect: Option<Address>,
    client: Option<(Address, Client)>,
}

impl Daemon {
    /// Asks samplerd for a profile.
    async fn profile(&mut self, request: v1::GetProfileRequest) -> Result<Profile> {
        let (address, client) = self.client().await?;
        let answer = client.get_profile(request).await;
        let answer = answer.map_err(|status| connect::failed(address, &status))?.into_inner();
        connect::check(address, from_wire(answer))
    }

    /// Asks for the earlier window again if the requested windows do not overlap, but their time
    /// slots do.
    async fn part(
        &mut self,
        profiles: &mut [Profile],
        requests: &[Option<v1::GetProfileRequest>; 2],
        now: u64,
    ) -> Result<()> {
        let [Some(a), Some(b)] = requests else { return Ok(()) };
        let requested = |of: &v1::GetProfileRequest| match of.until_unix_ns {
            0 => [of.since_unix_ns, now],
            until => [of.since_unix_ns, until],
        };
        if let Some((early, until_unix_ns)) =
            parted([requested(a), requested(b)], [&profiles[0], &profiles[1]])
        {
            let again = if early == 0 { a } else { b };
            profiles[early] =
                self.profile(v1::GetProfileRequest { until_unix_ns, ..again.clone() }).await?;
        }
        Ok(())
    }

    async fn client(&mut self) -> Result<&mut (Address, Client)> {
        if self.client.is_none() {
            let address = connect::address(self.connect.take())?;
            let client = connect::client(&address).await?;
            self.client = Some((address, client));
        }
        self.client.as_mut().ok_or_else(|| anyhow::anyhow!("no connection"))
    }
}
