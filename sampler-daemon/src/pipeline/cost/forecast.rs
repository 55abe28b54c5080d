//! Forecasts what uprobes will cost the given processes, once their first second has passed, next
//! to what an injection would cost.
//!
//! The cost is that of [`super`]: the work of the probes in that second, at the measured
//! prices.
//! Whether a process could be injected is checked before anything is probed, by a child process
//! ([`crate::injector`]), while the kernel verifies the programs.

use crate::bpf::ProbeEngine;
use crate::injector::Injector;
use crate::pipeline::config::{AttachMode, Config};
use crate::pipeline::worker::Worker;
use crate::store::ProcessId;
use rustc_hash::FxHashMap;
use sampler_common::cost::{Forecast, Injection, Work};
use sampler_common::estimate::Confidence;
use sampler_common::source::SampleSource;
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a process is observed.
const WATCHED: Duration = Duration::from_secs(1);
/// The reason if the engine does not see an in-process sampler.
const PERF: &str = "perf probes do not reach the sampler in a process (it takes Linux 6.10)";

/// Whether each of some processes could be injected, by pid.
type Examined = FxHashMap<u32, Injection>;

/// A process in its first second.
struct Watched {
    id: ProcessId,
    /// The work of the process's probes when the second began.
    before: Work,
    since: Instant,
}

/// Finished forecasts, and pending ones.
#[derive(Default)]
pub(in crate::pipeline) struct Forecasts {
    /// Examines the processes; `None`: no forecast is to be made.
    examination: Option<JoinHandle<Examined>>,
    examined: Examined,
    /// Processes in their first second, by slot.
    watched: FxHashMap<u32, Watched>,
    made: Vec<(u32, Forecast)>,
}

impl Forecasts {
    /// Starts to examine the processes that are to be probed. Without probes that cost a trap for
    /// each call, none is examined.
    pub(in crate::pipeline) fn begin(config: &Config, pids: Vec<u32>) -> io::Result<Forecasts> {
        let is_plain = matches!(config.attach_mode, AttachMode::Pids | AttachMode::PidsSharedLinks)
            && config.windows.is_none()
            && !config.samplers_only;
        if !is_plain {
            return Ok(Forecasts::default());
        }
        let is_perf = config.settings.engine == ProbeEngine::Perf;
        let thread = std::thread::Builder::new().name("examine".into());
        let examination = thread.spawn(move || examine(is_perf, &pids))?;
        Ok(Forecasts { examination: Some(examination), ..Forecasts::default() })
    }
}

/// Checks whether these processes could be injected.
fn examine(is_perf: bool, pids: &[u32]) -> Examined {
    let injector = match is_perf {
        true => Err(PERF.to_owned()),
        false => Injector::find(),
    };
    let one = |pid: &u32| {
        let injection = match &injector {
            Err(why) if is_perf => Injection::Refused(why.clone()),
            Err(why) => Injection::Unknown(why.clone()),
            Ok(injector) => match injector.examine(*pid) {
                Ok(_) => Injection::Possible,
                Err(why) => Injection::Refused(why),
            },
        };
        (*pid, injection)
    };
    pids.iter().map(one).collect()
}

impl Worker {
    /// The forecasts of processes that run.
    pub(in crate::pipeline) fn forecasts(&self) -> Vec<(u32, Forecast)> {
        let runs = |pid: u32| self.ingest.table.values().any(|profiled| profiled.pid == pid);
        self.forecasts.made.iter().filter(|(pid, _)| runs(*pid)).cloned().collect()
    }

    /// Starts to observe the attached processes.
    pub(in crate::pipeline) fn begin_forecasts(&mut self) {
        if self.forecasts.examination.is_none() {
            return;
        }
        let start = |slot| {
            let id = self.ingest.table.get(slot)?.id;
            Some((slot, Watched { id, before: self.work_of_slot(slot), since: Instant::now() }))
        };
        self.forecasts.watched = self.ingest.slots().into_iter().filter_map(start).collect();
    }

    /// Makes the forecast of each process that was observed for long enough.
    pub(in crate::pipeline) fn make_forecasts(&mut self) {
        if self.forecasts.watched.is_empty() {
            return;
        }
        if let Some(examination) =
            self.forecasts.examination.take_if(|examination| examination.is_finished())
        {
            // An examination that has panicked has no result.
            self.forecasts.examined = examination.join().unwrap_or_default();
        }
        if self.forecasts.examination.is_some() {
            return;
        }
        let is_due = |_: &u32, of: &mut Watched| of.since.elapsed() >= WATCHED;
        let due: Vec<(u32, Watched)> = self.forecasts.watched.extract_if(is_due).collect();
        due.iter().for_each(|(slot, watched)| self.make_forecast(*slot, watched));
    }

    fn make_forecast(&mut self, slot: u32, watched: &Watched) {
        let Some(profiled) = self.ingest.table.get(slot).filter(|of| of.id == watched.id) else {
            // The process has ended: a forecast of its cost is useless.
            return;
        };
        let (pid, record) = (profiled.pid, self.ingest.processes.get(profiled.id));
        if !record.sources().contains(SampleSource::Uprobes) {
            return;
        }
        let work = self.work_of_slot(slot).since(&watched.before);
        let seconds = watched.since.elapsed().as_secs_f64();
        let spent = self.prices.charge(&work).map(|spent| spent.cpu.range(Confidence::DEFAULT));
        let unknown = || Injection::Unknown("it was not looked at".to_owned());
        let forecast = Forecast {
            seconds,
            hits_per_second: work.all_hits() / seconds,
            spent_ns: spent.map(|spent| spent.times(1.0 / seconds)),
            injection: self.forecasts.examined.remove(&pid).unwrap_or_else(unknown),
        };
        tracing::info!(pid, "{}", forecast.text());
        self.forecasts.made.push((pid, forecast));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_probes_and_injection_exclude_each_other() {
        let examined = examine(true, &[1, 2]);
        assert_eq!(examined.len(), 2);
        assert_eq!(examined[&1], Injection::Refused(PERF.to_owned()));
    }
}
