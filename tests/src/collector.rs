//! A collector of OTLP profiles. It decodes OpenTelemetry's published messages, and misbehaves on
//! request.

mod grpc;
pub mod rules;

use crate::wait;
use anyhow::{Context as _, Result, bail, ensure};
use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development::Profile;
use prost::Message as _;
use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// How the collector answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerMode {
    /// The collector accepts everything.
    Take,
    /// The collector accepts nothing, and answers with this status. The second field is the time of
    /// `Retry-After` in seconds.
    Refuse(u16, Option<u64>),
    /// The collector answers with bytes that are no HTTP.
    Garbage,
    /// The collector closes the connection in the middle of the request.
    HangUp,
    /// The collector accepts everything, and closes the connection before it answers.
    Swallow,
    /// The collector reads, and never answers.
    Silence,
}

/// A request that the collector has read to its end.
#[derive(Clone, Debug)]
pub struct Received {
    /// When the request was read.
    pub at: Instant,
    /// How the collector answered.
    pub mode: AnswerMode,
    /// The request line of HTTP.
    pub line: String,
    /// Headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body as it arrived over HTTP.
    pub body: Vec<u8>,
    /// The message, if it arrived over gRPC.
    message: Option<ExportProfilesServiceRequest>,
}

impl Received {
    /// The message, decoded and checked for its size.
    pub fn message(&self) -> Result<ExportProfilesServiceRequest> {
        if let Some(message) = &self.message {
            return Ok(message.clone());
        }
        let mut bytes = Vec::new();
        GzDecoder::new(&self.body[..]).read_to_end(&mut bytes).context("unpack")?;
        ensure!(bytes.len() < 4 << 20, "a request of {} bytes", bytes.len());
        ExportProfilesServiceRequest::decode(&bytes[..]).context("decode")
    }
}

struct State {
    mode: AnswerMode,
    /// Times of the connections.
    attempts: Vec<Instant>,
    received: Vec<Received>,
}

/// The collector; it ends with the test.
pub struct Collector {
    /// Address that the collector listens on.
    pub address: SocketAddr,
    scheme: &'static str,
    state: Arc<Mutex<State>>,
}

impl Collector {
    /// Starts a collector that accepts everything over HTTP.
    pub fn start() -> Result<Collector> {
        let listener = TcpListener::bind("127.0.0.1:0").context("listen")?;
        let address = listener.local_addr()?;
        let state = State { mode: AnswerMode::Take, attempts: Vec::new(), received: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || drop(serve(stream, &shared)));
            }
        });
        Ok(Collector { address, scheme: "otlp+http", state })
    }

    /// Starts a collector that accepts everything over gRPC.
    pub fn start_grpc() -> Result<Collector> {
        let state = State { mode: AnswerMode::Take, attempts: Vec::new(), received: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let address = grpc::start(Arc::clone(&state))?;
        Ok(Collector { address, scheme: "otlp+grpc", state })
    }

    /// The URL for OTLP.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    fn with<T>(&self, read: impl FnOnce(&mut State) -> T) -> T {
        read(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The URL for Pyroscope.
    pub fn pyroscope_url(&self) -> String {
        format!("pyroscope+http://{}", self.address)
    }

    /// Changes how the collector answers.
    pub fn behave(&self, mode: AnswerMode) {
        self.with(|state| state.mode = mode);
    }

    /// Times of all connections.
    pub fn attempts(&self) -> Vec<Instant> {
        self.with(|state| state.attempts.clone())
    }

    /// All requests that the collector has read.
    pub fn received(&self) -> Vec<Received> {
        self.with(|state| state.received.clone())
    }

    /// The profiles that the collector accepted, each once, however often it was sent.
    pub fn taken(&self) -> Result<Taken> {
        let mut taken = Taken::default();
        for received in self.received() {
            if matches!(received.mode, AnswerMode::Take | AnswerMode::Swallow) {
                taken.add(&received.message()?)?;
            }
        }
        Ok(taken)
    }

    /// Waits until `holds` is true of the profiles that the collector accepted.
    pub fn taken_where(&self, what: &str, holds: impl Fn(&Taken) -> bool) -> Result<Taken> {
        wait::until(what, || Ok(Some(self.taken()?).filter(|taken| holds(taken))))
    }
}

fn serve(stream: TcpStream, shared: &Mutex<State>) -> Result<()> {
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let mode = {
        let mut state = lock();
        state.attempts.push(Instant::now());
        state.mode
    };
    stream.set_read_timeout(Some(wait::DEADLINE))?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let headers = headers(&mut reader)?;
    let length: usize = headers.get("content-length").context("no length")?.parse()?;
    let mut body = vec![0; if mode == AnswerMode::HangUp { length / 2 } else { length }];
    reader.read_exact(&mut body)?;
    if mode == AnswerMode::HangUp {
        return Ok(());
    }
    let line = line.trim_end().to_owned();
    lock().received.push(Received { at: Instant::now(), mode, line, headers, body, message: None });
    let mut stream = reader.into_inner();
    let answer = match mode {
        AnswerMode::Take => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned(),
        AnswerMode::Refuse(status, seconds) => {
            let retry = seconds.map_or(String::new(), |of| format!("Retry-After: {of}\r\n"));
            format!("HTTP/1.1 {status} X\r\n{retry}Content-Length: 4\r\n\r\nbusy")
        }
        AnswerMode::Garbage => "\u{1b}[31m no HTTP at all\r\n\r\n".to_owned(),
        AnswerMode::Swallow | AnswerMode::HangUp => return Ok(()),
        AnswerMode::Silence => {
            // The read ends when samplerd gives up.
            let _ = stream.read(&mut [0]);
            return Ok(());
        }
    };
    stream.write_all(answer.as_bytes()).context("answer")
}

fn headers(reader: &mut BufReader<TcpStream>) -> Result<BTreeMap<String, String>> {
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end() {
            "" => return Ok(headers),
            header => {
                let (name, value) = header.split_once(": ").context("no header")?;
                headers.insert(name.to_lowercase(), value.to_owned());
            }
        }
    }
}

/// A profile with its service and sample type.
#[derive(Clone, Debug)]
pub struct TakenProfile {
    /// Labels of the service.
    pub service: BTreeMap<String, String>,
    /// `alloc_space` and so on.
    pub sample_type: String,
    /// The profile.
    pub profile: Profile,
    /// Each sample: the names of its frames, leaf first, and its value.
    pub samples: Vec<(Vec<String>, i64)>,
}

impl TakenProfile {
    /// The series that a backend makes of the profile.
    pub fn series(&self) -> (BTreeMap<String, String>, String) {
        (self.service.clone(), self.sample_type.clone())
    }
}

/// The profiles that the collector accepted.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// Profiles, each once.
    pub profiles: Vec<TakenProfile>,
    /// How often a profile was sent again.
    pub repeated: usize,
    ids: HashSet<Vec<u8>>,
}

impl Taken {
    fn add(&mut self, message: &ExportProfilesServiceRequest) -> Result<()> {
        rules::check(message)?;
        let dictionary = message.dictionary.as_ref().context("no dictionary")?;
        for resource in &message.resource_profiles {
            let service = rules::labels(resource)?;
            for profile in resource.scope_profiles.iter().flat_map(|of| &of.profiles) {
                if !self.ids.insert(profile.profile_id.clone()) {
                    self.repeated += 1;
                    continue;
                }
                let text = |index: i32| dictionary.string_table[index as usize].clone();
                let name = |location: i32| {
                    let lines = &dictionary.location_table[location as usize].lines;
                    let function = lines.first().map_or(0, |line| line.function_index);
                    text(dictionary.function_table[function as usize].name_strindex)
                };
                let samples = profile.samples.iter().map(|sample| {
                    let stack = &dictionary.stack_table[sample.stack_index as usize];
                    (stack.location_indices.iter().map(|of| name(*of)).collect(), sample.values[0])
                });
                let of_type = profile.sample_type.as_ref().context("no type")?;
                self.profiles.push(TakenProfile {
                    service: service.clone(),
                    sample_type: text(of_type.type_strindex),
                    samples: samples.collect(),
                    profile: profile.clone(),
                });
            }
        }
        Ok(())
    }

    /// The profiles of a type.
    pub fn of_type<'a>(&'a self, sample_type: &'a str) -> impl Iterator<Item = &'a TakenProfile> {
        self.profiles.iter().filter(move |of| of.sample_type == sample_type)
    }

    /// Sum of a function's values in all profiles of a type.
    pub fn sum(&self, sample_type: &str, function: &str) -> u64 {
        let samples = self.of_type(sample_type).flat_map(|of| &of.samples);
        let has = |frames: &[String]| frames.iter().any(|frame| frame == function);
        samples.filter(|(frames, _)| has(frames)).map(|(_, value)| *value as u64).sum()
    }

    /// Sum of a function's values in the newest snapshot of a type.
    pub fn newest(&self, sample_type: &str, function: &str) -> u64 {
        let newest = self.of_type(sample_type).map(|of| of.profile.time_unix_nano).max();
        let profiles = self.profiles.iter();
        let profiles = profiles.filter(|of| Some(of.profile.time_unix_nano) == newest);
        Taken { profiles: profiles.cloned().collect(), ..Taken::default() }
            .sum(sample_type, function)
    }

    /// The series that a backend makes of all profiles.
    pub fn series(&self) -> HashSet<(BTreeMap<String, String>, String)> {
        self.profiles.iter().map(TakenProfile::series).collect()
    }

    /// The windows of all profiles of a type, in order.
    ///
    /// # Errors
    /// If two windows overlap, or if there is time between two windows.
    pub fn windows(&self, sample_type: &str) -> Result<Vec<(u64, u64)>> {
        let window = |of: &TakenProfile| (of.profile.time_unix_nano, of.profile.duration_nano);
        let mut windows: Vec<(u64, u64)> = self.of_type(sample_type).map(window).collect();
        windows.sort_unstable();
        windows.dedup();
        for pair in windows.windows(2) {
            if pair[0].0 + pair[0].1 != pair[1].0 {
                bail!("windows {pair:?} do not follow each other, of {windows:?}");
            }
        }
        Ok(windows)
    }
}
