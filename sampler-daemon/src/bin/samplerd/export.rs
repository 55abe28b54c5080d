//! Command-line options for the backends that profiles are pushed to.

use clap::Args as Group;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use sampler_common::units::{human_bytes, parse_bytes, parse_duration};
use sampler_daemon::export::destination::Destination;
use sampler_daemon::export::folder::{self, Bounds, MIN_KEPT_BYTES, MIN_KEPT_FOR};
use sampler_daemon::export::label::Label;
use sampler_daemon::export::names_from::NamesFrom;
use sampler_daemon::export::share::Share;
use sampler_daemon::export::tls::{self, Tls};
use sampler_daemon::export::{MAX_EVERY, MIN_EVERY, Settings, header_file};
use std::path::PathBuf;
use std::time::Duration;

/// Maximum number of backends. Each backend has a queue.
const MAX_DESTINATIONS: usize = 8;

/// Pushing profiles.
#[derive(Clone, Debug, Group)]
pub(crate) struct Export {
    /// Push profiles to a backend (repeatable): otlp+http://HOST:4318, otlp+grpc://HOST:4317,
    /// pyroscope+http://HOST:4040 or clickhouse+http://HOST:8123/DATABASE,
    /// or write them to a folder of Parquet files: parquet:FOLDER.
    /// What was allocated since the last push, and what is held.
    /// With TLS: otlp+https, otlp+grpcs, pyroscope+https and clickhouse+https. Without TLS nothing is encrypted: give a collector
    /// on this machine or in its network
    #[arg(long, value_name = "URL", value_parser = Destination::parse, conflicts_with = "windows")]
    export: Vec<Destination>,

    /// With --export: how often, 1s to 100s
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = every, allow_hyphen_values = true)]
    export_every: Duration,

    /// With --export: file with headers of every request, one `Name: value` a line, a token for example. Nobody but its owner may
    /// be able to read it. Every --export gets them
    #[arg(long, value_name = "FILE", requires = "export")]
    export_header_file: Option<PathBuf>,

    /// With --export and TLS: file with the certificates of the servers' authorities, in PEM. [default: the authorities that this
    /// system trusts]
    #[arg(long, value_name = "FILE", requires = "export")]
    export_ca: Option<PathBuf>,

    /// With --export and TLS: file with samplerd's own certificate, in PEM, for servers that ask for one
    #[arg(long, value_name = "FILE", requires = "export_key")]
    export_cert: Option<PathBuf>,

    /// With --export-cert: file with its key, in PEM and without a password. Nobody but its owner may be able to read it
    #[arg(long, value_name = "FILE", requires = "export_cert")]
    export_key: Option<PathBuf>,

    /// With --export: a fact of this machine that everything pushed has (repeatable, at most 16), deployment.environment=test for
    /// example
    #[arg(long, value_name = "KEY=VALUE", value_parser = Label::parse, requires = "export")]
    export_label: Vec<Label>,

    /// With --export: the share of hosts that send stacks, 5% for example. A hash of host and day draws them, anew each day. A
    /// host that is not drawn sends its totals to tables, and nothing to OTLP or Pyroscope. [default: 100%]
    #[arg(long, value_name = "PERCENT", requires = "export", value_parser = Share::parse, allow_hyphen_values = true)]
    export_share: Option<Share>,

    /// With --export: who looks up the names of functions: this host, or the receiver, by build id and address
    /// (server). For parquet:FOLDER and clickhouse+http: sampler symbolize
    #[arg(long, value_name = "WHO", requires = "export", value_parser = names_from())]
    export_names: Option<NamesFrom>,

    /// With --export parquet:FOLDER: most bytes of this host's files in each folder. The oldest windows are removed first
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = kept_bytes, allow_hyphen_values = true)]
    export_keep_bytes: u64,

    /// With --export parquet:FOLDER: how long this host's files are kept, 1h for example
    #[arg(long, value_name = "TIME", default_value = "720h", value_parser = kept_for, allow_hyphen_values = true)]
    export_keep_time: Duration,
}

impl Export {
    /// Checks that the options go together. The error is one line.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.export.len() > MAX_DESTINATIONS {
            let given = self.export.len();
            return Err(format!(
                "--export: given {given} times (at most {MAX_DESTINATIONS}: let a collector pass it on)"
            ));
        }
        let twice = self.export.iter().enumerate().find(|(at, of)| self.export[..*at].contains(of));
        if let Some((_, of)) = twice {
            return Err(format!("--export {of}: given twice (give each place once)"));
        }
        let names = self.export_names.unwrap_or_default();
        self.export.iter().try_for_each(|of| names.check(of))?;
        let is_unused = !self.export.iter().any(Destination::is_secure);
        for (option, given) in
            [("--export-ca", &self.export_ca), ("--export-cert", &self.export_cert)]
        {
            if let (true, Some(path)) = (is_unused, given) {
                let path = path.display();
                return Err(format!(
                    "{option} {path}: no --export has TLS (give otlp+https://HOST for example)"
                ));
            }
        }
        Label::check(&self.export_label)
    }

    /// TLS, if a destination wants it.
    fn tls(&self) -> Result<Option<Tls>, String> {
        let own = self.export_cert.clone().zip(self.export_key.clone());
        let files = tls::Files { authorities: self.export_ca.clone(), own };
        let is_used = self.export.iter().any(Destination::is_secure);
        is_used.then(|| Tls::new(&files)).transpose()
    }

    /// Returns the settings of pushing; `None` if nothing is pushed. `held` says whether held
    /// memory is known.
    ///
    /// # Errors
    /// One line, if the headers or the files of TLS cannot be read or do not fit, or if others can
    /// read secrets, or if a folder cannot be written to.
    pub(crate) fn settings(&self, held: bool) -> Result<Option<Settings>, String> {
        if self.export.is_empty() {
            return Ok(None);
        }
        for destination in &self.export {
            if let Destination::Folder(path) = destination {
                folder::check(path)?;
            }
        }
        let headers = self.export_header_file.as_deref().map(header_file::read).transpose()?;
        Ok(Some(Settings {
            destinations: self.export.clone(),
            every: self.export_every,
            headers: headers.unwrap_or_default(),
            tls: self.tls()?,
            labels: self.export_label.clone(),
            share: self.export_share.unwrap_or(Share::ALL),
            names: self.export_names.unwrap_or_default(),
            held,
            bounds: Bounds { bytes: self.export_keep_bytes, age: self.export_keep_time },
        }))
    }
}

fn names_from() -> impl TypedValueParser<Value = NamesFrom> {
    let of = |name: String| NamesFrom::ALL.into_iter().find(|of| of.name() == name);
    PossibleValuesParser::new(NamesFrom::ALL.map(NamesFrom::name))
        .map(move |name| of(name).unwrap_or_default())
}

fn every(text: &str) -> Result<Duration, String> {
    let every = parse_duration(text).map_err(|error| error.to_string())?;
    match (MIN_EVERY..=MAX_EVERY).contains(&every) {
        true => Ok(every),
        false => Err(format!("must be {} s to {} s", MIN_EVERY.as_secs(), MAX_EVERY.as_secs())),
    }
}

fn kept_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    match bytes >= MIN_KEPT_BYTES {
        true => Ok(bytes),
        false => Err(format!("must be {} or more", human_bytes(MIN_KEPT_BYTES as f64))),
    }
}

fn kept_for(text: &str) -> Result<Duration, String> {
    let kept = parse_duration(text).map_err(|error| error.to_string())?;
    match kept >= MIN_KEPT_FOR {
        true => Ok(kept),
        false => Err(format!("must be {} h or more", MIN_KEPT_FOR.as_secs() / 3600)),
    }
}
