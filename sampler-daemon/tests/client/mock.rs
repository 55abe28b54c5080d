//! A samplerd that always gives the same answers, on a Unix socket or a TCP port.

use crate::recorded::{INTERVAL_BYTES, ProfileQuestion, answer, cost, profile};
use crate::{leaks, many};
use sampler_common::estimate::{Confidence, Estimator};
use sampler_common::profile::Kind;
use sampler_common::sampling::Strategy;
use sampler_daemon::rpc::convert::quantities_to_wire;
use sampler_daemon::rpc::v1::sampler_server::{Sampler, SamplerServer};
use sampler_daemon::rpc::v1::{self, *};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

/// The pid that the mock profiles.
pub(crate) const PID: u32 = 4121;
/// A process that the mock samples by stride.
pub(crate) const STRIDE_PID: u32 = 4130;

/// A mock that serves until the test ends.
pub(crate) struct Mock {
    /// Keeps the socket's directory; a place for the test's own files.
    pub directory: tempfile::TempDir,
    /// What to connect to.
    pub address: String,
}

impl Mock {
    /// On a Unix socket.
    pub(crate) fn unix() -> Mock {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("samplerd.sock");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        serve(move || {
            let listener = tokio::net::UnixListener::from_std(listener).unwrap();
            tokio_stream::wrappers::UnixListenerStream::new(listener)
        });
        Mock { address: format!("unix:{}", path.display()), directory }
    }

    /// On a TCP port of loopback.
    pub(crate) fn tcp() -> Mock {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = format!("tcp:{}", listener.local_addr().unwrap());
        serve(move || {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            tokio_stream::wrappers::TcpListenerStream::new(listener)
        });
        Mock { address, directory: tempfile::tempdir().unwrap() }
    }

    /// A file of the test's own.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Names in the test's directory, but the socket.
    pub(crate) fn files(&self) -> Vec<String> {
        names(self.directory.path())
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.ends_with(".sock")).collect()
}

/// Serves on a thread of its own; connections are accepted from the moment the listener is bound.
fn serve<L, S, C, E>(listen: L)
where
    L: FnOnce() -> S + Send + 'static,
    S: Stream<Item = Result<C, E>>,
    C: tokio::io::AsyncRead
        + tokio::io::AsyncWrite
        + tonic::transport::server::Connected
        + Unpin
        + Send
        + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let service = SamplerServer::new(Fixed).max_encoding_message_size(usize::MAX);
            let server = tonic::transport::Server::builder().add_service(service);
            server.serve_with_incoming(listen()).await.unwrap();
        });
    });
}

struct Fixed;

#[tonic::async_trait]
impl Sampler for Fixed {
    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let probe = |symbol: &str, displacement, instruction: &str, emulated| Probe {
            path: "/usr/lib/x86_64-linux-gnu/libc.so.6".into(),
            build_id: "c047".into(),
            symbols: vec![symbol.into(), format!("__libc_{symbol}")],
            role: symbol.into(),
            function_offset: 0x97880,
            displacement,
            instruction: instruction.into(),
            emulated,
            reason: "no instruction before the first branch is emulated".into(),
            pids: vec![PID],
            hits: Some(v1::Count { value: 20_000.0, low: 19_700.0, high: 20_300.0 }),
            hit_ns: Some(v1::Interval { value: 582.0, low: 580.0, high: 584.0 }),
            ..Probe::default()
        };
        let outcome = |name: &str, count| Outcome { name: name.into(), count };
        Ok(Response::new(StatusResponse {
            version: "0.1.0".into(),
            probe_engine: "session".into(),
            unwind: "dwarf".into(),
            live_tracking: true,
            max_live: 262_144,
            live_samples: 43,
            snapshot_bytes: 32 << 10,
            ring_bytes: 8 << 20,
            uptime_ns: 65_000_000_000,
            outcomes: vec![
                outcome("sampled", 12_345),
                outcome("ring_full", 4),
                outcome("failed", 0),
            ],
            intervals: vec![ProcessInterval {
                pid: PID,
                interval_bytes: INTERVAL_BYTES,
                pressure: Some(v1::Pressure {
                    factor: 11.3,
                    limit: "process".into(),
                    raises: 3,
                    since_unix_ns: 1,
                    ring_raises: 70,
                    ring_factor: 256.0,
                    ring_fills: true,
                }),
                ..Default::default()
            }],
            probes: vec![
                probe("malloc", 4, "push rbx", true),
                probe("free", 0, "test rdi, rdi", false),
            ],
            pid: 812,
            blind_spots: vec!["pid 4121: the arena of /usr/bin/kvstore is its own".into()],
            tables: vec![Table { name: "stacks".into(), used: 2, bound: 65_536 }],
            process_events: Some(v1::ProcessEvents { read: 9_876, lost: 5, ..Default::default() }),
            coverage: vec![BlindSpot { why: "a JVM".into(), processes: 7, ..Default::default() }],
            excluded_calls: 1_234,
            excluded: vec![
                Exclusion { criterion: "pid:1".into(), reason: "init".into(), processes: 1 },
                Exclusion { criterion: "comm:post*".into(), reason: "".into(), processes: 12 },
            ],
            unseen_calls: 5,
            max_samples_per_second: 20_000.0,
            max_samples_per_process: 0.0,
            cost: Some(cost()),
            ..StatusResponse::default()
        }))
    }

    async fn list_processes(
        &self,
        request: Request<ListProcessesRequest>,
    ) -> Result<Response<ListProcessesResponse>, Status> {
        let profile = profile(&ProfileQuestion {
            kind: Kind::Live,
            strategy: Strategy::Geometric,
            estimator: Estimator::Weighted,
            confidence: Confidence::DEFAULT,
            top: 2,
            functions: 0,
        });
        let process = Process {
            pid: PID,
            comm: "kvstore".into(),
            exe: "/usr/bin/kvstore".into(),
            state: "running".into(),
            attached_unix_ns: 1,
            images: 1,
            interval_bytes: INTERVAL_BYTES,
            exact: Some(v1::Exact { alloc_objects: 2_000, alloc_space: 180_000_000 }),
            totals: Some(quantities_to_wire(&profile.totals)),
            samples: 340,
            allocators: vec!["glibc".into()],
            cost: Some(cost()),
            ..Process::default()
        };
        Ok(Response::new(many::answer(request.get_ref(), process)))
    }

    async fn set_sampling(
        &self,
        request: Request<SetSamplingRequest>,
    ) -> Result<Response<SetSamplingResponse>, Status> {
        let request = request.into_inner();
        let pids = if request.pids.is_empty() { vec![PID] } else { request.pids.clone() };
        let SetSamplingRequest { interval_bytes, strategy, one_in, samples_per_second, .. } =
            request;
        let intervals = pids.into_iter().map(|pid| ProcessInterval {
            pid,
            interval_bytes: interval_bytes.unwrap_or(INTERVAL_BYTES),
            strategy: strategy.clone(),
            one_in: one_in as f64,
            samples_per_second,
            samples_itself: false,
            preloaded: false,
            sources: vec![],
            pressure: None,
        });
        Ok(Response::new(SetSamplingResponse { intervals: intervals.collect() }))
    }

    async fn get_lifetimes(
        &self,
        _: Request<v1::GetLifetimesRequest>,
    ) -> Result<Response<v1::Lifetimes>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn get_leaks(
        &self,
        request: Request<v1::GetLeaksRequest>,
    ) -> Result<Response<v1::Leaks>, Status> {
        Ok(Response::new(leaks::answer(request.get_ref())))
    }

    async fn compare(
        &self,
        _: Request<v1::CompareRequest>,
    ) -> Result<Response<v1::Comparison>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn plan(
        &self,
        _: Request<v1::PlanRequest>,
    ) -> Result<Response<v1::PlanResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn get_profile(
        &self,
        request: Request<GetProfileRequest>,
    ) -> Result<Response<v1::Profile>, Status> {
        let mut profile = answer(request.get_ref())?;
        if request.get_ref().pids == [PID, PID] {
            // A wrong answer, which the client must notice.
            profile.stacks[0].locations.push(99);
        }
        Ok(Response::new(profile))
    }

    type WatchProfileStream = Pin<Box<dyn Stream<Item = Result<v1::Profile, Status>> + Send>>;

    /// Three profiles, then the end.
    async fn watch_profile(
        &self,
        request: Request<WatchProfileRequest>,
    ) -> Result<Response<Self::WatchProfileStream>, Status> {
        let request = request.into_inner();
        assert_eq!(request.period_ms, 100);
        let profile = answer(&request.profile.unwrap_or_default())?;
        let three = tokio_stream::iter(vec![Ok(profile); 3]);
        Ok(Response::new(Box::pin(three)))
    }

    type StreamSamplesStream = Pin<Box<dyn Stream<Item = Result<v1::Sample, Status>> + Send>>;

    async fn stream_samples(
        &self,
        _: Request<StreamSamplesRequest>,
    ) -> Result<Response<Self::StreamSamplesStream>, Status> {
        let none: [Result<v1::Sample, Status>; 0] = [];
        Ok(Response::new(Box::pin(tokio_stream::iter(none).map(|sample| sample))))
    }
}
