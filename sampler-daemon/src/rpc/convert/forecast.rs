//! Conversion of forecasts of costs to the protocol's form, and back.

use super::cost;
use crate::rpc::v1;
use sampler_common::cost::{Forecast, Injection, Range};
use v1::cost_forecast as wire;

/// The protocol's form of a forecast.
pub fn to_wire(pid: u32, of: &Forecast) -> v1::CostForecast {
    let injection = match &of.injection {
        Injection::Possible => wire::Injection::Possible(wire::Possible {}),
        Injection::Refused(why) => wire::Injection::Refused(why.clone()),
        Injection::Unknown(why) => wire::Injection::Unknown(why.clone()),
    };
    v1::CostForecast {
        pid,
        seconds: of.seconds,
        hits_per_second: of.hits_per_second,
        spent_ns_per_second: of.spent_ns.map(cost::interval),
        injection: Some(injection),
    }
}

/// A forecast from the protocol, with its pid.
///
/// # Errors
/// One line, if the forecast's interval makes no sense.
pub fn from_wire(of: &v1::CostForecast) -> Result<(u32, Forecast), String> {
    let injection = match &of.injection {
        Some(wire::Injection::Possible(_)) => Injection::Possible,
        Some(wire::Injection::Refused(why)) => Injection::Refused(why.clone()),
        Some(wire::Injection::Unknown(why)) => Injection::Unknown(why.clone()),
        None => Injection::Unknown("samplerd does not say".to_owned()),
    };
    let forecast = Forecast {
        seconds: of.seconds,
        hits_per_second: of.hits_per_second,
        spent_ns: Range::checked("spent_ns_per_second", of.spent_ns_per_second.map(cost::range))?,
        injection,
    };
    Ok((of.pid, forecast))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forecasts_are_converted_back_equal() {
        let why = "its libc is musl".to_owned();
        for injection in
            [Injection::Possible, Injection::Refused(why.clone()), Injection::Unknown(why)]
        {
            let spent_ns = Some(Range { value: 2.0, low: 1.0, high: 3.0 });
            let of = Forecast { seconds: 1.0, hits_per_second: 7.0, spent_ns, injection };
            assert_eq!(from_wire(&to_wire(5, &of)), Ok((5, of)));
        }
    }
}
