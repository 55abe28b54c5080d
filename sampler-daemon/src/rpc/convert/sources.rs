//! Conversion of sources of samples to the protocol's form, and back.

use crate::rpc::v1;
use sampler_common::source::{SampleSource, SampleSources, SourceGroup};

/// The protocol's form of the sources of a process.
pub fn to_wire(sources: SampleSources) -> Vec<i32> {
    let source = |of: SampleSource| match of {
        SampleSource::Uprobes => v1::SampleSource::Uprobes,
        SampleSource::Injected => v1::SampleSource::Injected,
        SampleSource::Preloaded => v1::SampleSource::Preloaded,
        SampleSource::OtelMemory => v1::SampleSource::OtelMemory,
        SampleSource::Windows => v1::SampleSource::Windows,
    };
    sources.iter().map(|of| source(of).into()).collect()
}

/// The sources of a process from the protocol.
///
/// # Errors
/// One line, if a number is no known source.
pub fn from_wire(sources: &[i32]) -> Result<SampleSources, String> {
    let source = |number: &i32| match v1::SampleSource::try_from(*number) {
        Ok(v1::SampleSource::Uprobes) => Ok(SampleSource::Uprobes),
        Ok(v1::SampleSource::Injected) => Ok(SampleSource::Injected),
        Ok(v1::SampleSource::Preloaded) => Ok(SampleSource::Preloaded),
        Ok(v1::SampleSource::OtelMemory) => Ok(SampleSource::OtelMemory),
        Ok(v1::SampleSource::Windows) => Ok(SampleSource::Windows),
        Ok(v1::SampleSource::Unspecified) | Err(_) => {
            Err(format!("source {number} is unknown (is this sampler older than samplerd?)"))
        }
    };
    sources.iter().map(source).collect()
}

/// The protocol's form of groups of processes.
pub fn groups_to_wire(groups: &[SourceGroup]) -> Vec<v1::SourceGroup> {
    let group = |of: &SourceGroup| v1::SourceGroup {
        sources: to_wire(of.sources),
        processes: of.processes,
    };
    groups.iter().map(group).collect()
}

/// Groups of processes from the protocol.
///
/// # Errors
/// As [`from_wire`].
pub fn groups_from_wire(groups: &[v1::SourceGroup]) -> Result<Vec<SourceGroup>, String> {
    let group = |of: &v1::SourceGroup| {
        Ok(SourceGroup { sources: from_wire(&of.sources)?, processes: of.processes })
    };
    groups.iter().map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_converted_back_and_unknown_ones_refused() {
        let all: SampleSources = SampleSource::ALL.into_iter().collect();
        assert_eq!(from_wire(&to_wire(all)), Ok(all));
        for number in [0, 77] {
            let error = from_wire(&[1, number]).unwrap_err();
            assert!(error.starts_with(&format!("source {number} is unknown")), "{error}");
        }
    }
}
