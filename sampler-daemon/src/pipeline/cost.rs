//! What profiling costs the processes: their work by the kernel's counters, charged by what was measured here.

use super::worker::{Reach, Worker};
use crate::bpf::{Calibrator, Kernel};
use sampler_common::cost::Tariff;

/// Prices, and how they were come by.
pub(super) struct Prices {
    calibrator: Option<Calibrator>,
    tariff: Tariff,
    /// Why there are none.
    why: String,
}

impl Prices {
    /// Measures them; without any, what is wrong is said in the log and in `status`.
    pub(super) fn measure(kernel: &mut Kernel, config: &super::Config) -> Prices {
        let by_pid = config.reach != Reach::Listed;
        let measured = Calibrator::new(kernel, &config.settings, by_pid)
            .and_then(|mut calibrator| calibrator.measure(kernel).map(|()| calibrator));
        match measured {
            Ok(calibrator) => {
                let tariff = calibrator.tariff();
                tracing::info!(taken = ?calibrator.taken(), "calibrated");
                Prices { calibrator: Some(calibrator), tariff, why: String::new() }
            }
            Err(error) => {
                tracing::warn!("what probes cost is not known: {error:#}");
                Prices { calibrator: None, tariff: Tariff::default(), why: format!("{error:#}") }
            }
        }
    }
}
