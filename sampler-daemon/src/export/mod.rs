//! Pushes profiles to backends: consecutive windows without gap or overlap, and what is held at the
//! end of each window.
//!
//! One task asks the worker as any client does, and encodes the profiles. Each destination has an
//! outbox, and a task that empties the outbox. A slow or dead backend therefore delays nothing
//! else. Modules below this module do not depend on any backend.

mod back_off;
mod backend;
mod builds;
mod clickhouse;
mod collector;
pub mod destination;
pub mod folder;
mod grpc_client;
pub mod header_file;
mod http_client;
pub mod label;
pub mod names_from;
mod otlp;
mod outbox;
mod pyroscope;
mod sender;
mod services;
pub mod share;
mod stamp;
pub mod tls;
mod window;

use crate::pipeline::{Names, Profiler};
use backend::Backend;
use clickhouse::ClickHouse;
use collector::Collector;
use destination::{Destination, Protocol, Server};
use folder::Bounds;
use hyper::HeaderMap;
use label::Label;
use names_from::NamesFrom;
use outbox::{Body, Outbox};
use sampler_common::encode::push::Push;
use sender::Transport;
use share::Share;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tls::Tls;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use window::Window;

pub use outbox::Counts;

/// Time for the last window and the waiting requests when samplerd ends.
const FINISHING: Duration = Duration::from_secs(2);

/// Timeout of a request, including the connection and the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of an answer.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// The profiles to push, and their destinations.
pub struct Settings {
    /// The destinations.
    pub destinations: Vec<Destination>,
    /// Length of a window, at most [`MAX_EVERY`].
    pub every: Duration,
    /// Headers of every request.
    pub headers: HeaderMap,
    /// TLS; `None` if no destination wants it.
    pub tls: Option<Tls>,
    /// Attributes that every service gets.
    pub labels: Vec<Label>,
    /// The share of hosts that send stacks.
    pub share: Share,
    /// Who looks up the names of code in files.
    pub names: NamesFrom,
    /// Whether held memory is known, and so pushed.
    pub held: bool,
    /// How much a folder keeps.
    pub bounds: Bounds,
}

/// The shortest window: a time slot of the store.
pub const MIN_EVERY: Duration = Duration::from_secs(1);
/// The longest window. The store keeps slots of one second for two minutes; an older border may no
/// longer exist.
pub const MAX_EVERY: Duration = Duration::from_secs(100);

/// The counts of all pushes; cheap to clone. Empty if nothing is pushed.
#[derive(Clone, Default)]
pub struct Exports {
    queues: Arc<[Queue]>,
    uncovered_ns: Arc<AtomicU64>,
    is_left_out: Arc<AtomicBool>,
}

impl Exports {
    /// Returns the counts of each destination.
    pub fn counts(&self) -> Vec<Counts> {
        self.queues.iter().map(Queue::counts).collect()
    }

    /// Returns the time that no window covers, in nanoseconds. It was asked for after the store had
    /// dropped its borders.
    pub fn uncovered_ns(&self) -> u64 {
        self.uncovered_ns.load(Relaxed)
    }

    /// Whether this host is not among those that send stacks today ([`Settings::share`]).
    pub fn is_left_out(&self) -> bool {
        self.is_left_out.load(Relaxed)
    }
}

/// The queue of a destination.
enum Queue {
    Requests(Bodies, Arc<Outbox<Body>>),
    Windows(Arc<Outbox<Window>>),
}

/// Makes the requests that carry a push.
type Bodies = fn(&Push) -> Vec<Body>;

impl Queue {
    /// Makes the queue of a destination, and starts the task that empties it.
    fn start(destination: &Destination, settings: &Settings, tasks: &mut JoinSet<()>) -> Queue {
        let name = destination.to_string();
        match destination {
            Destination::Server(server) => Queue::to_server(name, server, settings, tasks),
            Destination::Folder(path) => {
                let outbox = Arc::new(Outbox::new(name));
                tasks.spawn(folder::write(Arc::clone(&outbox), path.clone(), settings.bounds));
                Queue::Windows(outbox)
            }
        }
    }

    fn to_server(
        name: String,
        server: &Server,
        settings: &Settings,
        tasks: &mut JoinSet<()>,
    ) -> Queue {
        let backend = Backend::new(server.clone(), settings.tls.as_ref());
        let transport = Transport::new(backend, settings.headers.clone());
        let bodies: Bodies = match (server.protocol, settings.names) {
            (Protocol::OtlpHttp, NamesFrom::Host) => |push| otlp::bodies(push, false),
            (Protocol::OtlpGrpc, NamesFrom::Host) => |push| otlp::bodies(push, true),
            (Protocol::OtlpHttp, NamesFrom::Server) => {
                |push| otlp::bodies(&push.without_names_of_files(), false)
            }
            (Protocol::OtlpGrpc, NamesFrom::Server) => {
                |push| otlp::bodies(&push.without_names_of_files(), true)
            }
            (Protocol::Pyroscope, _) => pyroscope::bodies,
            (Protocol::ClickHouse, _) => {
                let outbox = Arc::new(Outbox::new(name));
                let sink = ClickHouse::new(transport, server.database.clone());
                tasks.spawn(sender::empty(Arc::clone(&outbox), sink));
                return Queue::Windows(outbox);
            }
        };
        let outbox = Arc::new(Outbox::new(name));
        tasks.spawn(sender::empty(Arc::clone(&outbox), transport));
        Queue::Requests(bodies, outbox)
    }

    /// Adds what carries the pushes of a window.
    fn add(&self, pushes: &Arc<[Push]>) {
        match self {
            Queue::Requests(bodies, outbox) => {
                pushes.iter().flat_map(bodies).for_each(|body| outbox.add(body));
            }
            Queue::Windows(outbox) => {
                Window::new(Arc::clone(pushes)).into_iter().for_each(|window| outbox.add(window));
            }
        }
    }

    fn counts(&self) -> Counts {
        match self {
            Queue::Requests(_, outbox) => outbox.counts(),
            Queue::Windows(outbox) => outbox.counts(),
        }
    }

    /// Completes when nothing waits.
    async fn emptied(&self) {
        match self {
            Queue::Requests(_, outbox) => outbox.emptied().await,
            Queue::Windows(outbox) => outbox.emptied().await,
        }
    }
}

/// The tasks that push. Dropping the exporter ends the tasks.
pub struct Exporter {
    exports: Exports,
    tasks: JoinSet<()>,
    last: oneshot::Sender<oneshot::Sender<()>>,
}

impl Exporter {
    /// Starts pushing.
    pub fn start(settings: Settings, profiler: Profiler, names: Names) -> Exporter {
        let mut tasks = JoinSet::new();
        let queue = |of: &Destination| Queue::start(of, &settings, &mut tasks);
        let queues = settings.destinations.iter().map(queue).collect();
        let exports = Exports { queues, uncovered_ns: Arc::default(), is_left_out: Arc::default() };
        let (last, ending) = oneshot::channel();
        tasks.spawn(collect(settings, exports.clone(), profiler, names, ending));
        Exporter { exports, tasks, last }
    }

    /// Returns the counts of all pushes.
    pub fn exports(&self) -> Exports {
        self.exports.clone()
    }

    /// Pushes the last window and the waiting requests, for at most two seconds.
    pub async fn finish(self) {
        let Exporter { exports, tasks, last } = self;
        let finishing = async {
            let (done, is_done) = oneshot::channel();
            if last.send(done).is_ok() && is_done.await.is_ok() {
                for queue in exports.queues.iter() {
                    queue.emptied().await;
                }
            }
        };
        if timeout(FINISHING, finishing).await.is_err() {
            tracing::warn!("some of what was to be exported was not sent before the end");
        }
        drop(tasks);
    }
}

/// Asks for one window after another and adds each to every outbox, until the last window is
/// requested.
async fn collect(
    settings: Settings,
    exports: Exports,
    profiler: Profiler,
    names: Names,
    mut ending: oneshot::Receiver<oneshot::Sender<()>>,
) {
    let mut ticks = interval(settings.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick completes at once.
    ticks.tick().await;
    let mut collector = Collector::new(&settings, profiler, names);
    loop {
        exports.is_left_out.store(!collector.draw_now().is_drawn, Relaxed);
        let done = tokio::select! {
            _ = ticks.tick() => None,
            // If the sender is gone, nobody waits for the last window.
            done = &mut ending => match done {
                Ok(done) => Some(done),
                Err(_) => return,
            },
        };
        let pushes = match collector.next().await {
            Ok(pushes) => pushes,
            // The worker has stopped.
            Err(_) => return,
        };
        exports.uncovered_ns.fetch_add(pushes.uncovered.as_nanos() as u64, Relaxed);
        let pushes: Arc<[Push]> = pushes.pushes.into();
        exports.queues.iter().for_each(|queue| queue.add(&pushes));
        if let Some(done) = done {
            // The receiver may be gone.
            let _ = done.send(());
            return;
        }
    }
}
