//! The counts of a process from which its profiling cost is computed.

use sampler_common::cost::Work;

/// Counts for the costs of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spending {
    /// Work of the process's probes until its exit.
    pub work: Work,
    /// Number of the process's records that were read: samples, mappings, and frees of sampled
    /// blocks.
    pub records: u64,
    /// Number of samples among these records.
    pub samples: u64,
    /// Bytes of stack in these samples.
    pub stack_bytes: u64,
    /// Records of calls that map memory.
    pub mappings: u64,
    /// Bytes of stack in the records of calls that map memory.
    pub mapping_stack_bytes: u64,
    /// CPU time of the process at the attach, nanoseconds; `None` if it could not be read.
    pub processor_before_ns: Option<u64>,
    /// CPU time of the process from the attach to the last reading, nanoseconds.
    pub processor_ns: Option<u64>,
}

impl Spending {
    /// Counts a sample that was read.
    pub fn read_sample(&mut self, stack_bytes: u32) {
        self.records += 1;
        self.samples += 1;
        self.stack_bytes += u64::from(stack_bytes);
    }

    /// Counts a record of a mapping call that was read.
    pub fn read_mapping(&mut self, stack_bytes: u32) {
        self.records += 1;
        self.mappings += 1;
        self.mapping_stack_bytes += u64::from(stack_bytes);
    }

    /// Notes the CPU time of the process, `now_ns`.
    pub fn note_cpu_time(&mut self, now_ns: u64) {
        let before = *self.processor_before_ns.get_or_insert(now_ns);
        self.processor_ns = Some(now_ns.saturating_sub(before));
    }

    /// Notes that the process has used at least `ns` of CPU time. After the exit the kernel does
    /// not report the CPU time any more, and a short process may have no reading at all.
    pub fn used_at_least(&mut self, ns: u64) {
        self.processor_ns = self.processor_ns.max(Some(ns));
    }

    /// Bytes of stack of `samples` samples, some of which may not have been read.
    pub fn stack_bytes_of(&self, samples: u64) -> u64 {
        match self.samples {
            0 => 0,
            read => (self.stack_bytes as f64 / read as f64 * samples as f64) as u64,
        }
    }

    /// Adds the counts of another exited process.
    pub fn absorb(&mut self, other: &Spending) {
        self.work.add(&other.work);
        self.records += other.records;
        self.samples += other.samples;
        self.stack_bytes += other.stack_bytes;
        self.mappings += other.mappings;
        self.mapping_stack_bytes += other.mapping_stack_bytes;
        // A sum with an unknown part is unknown.
        self.processor_ns = match (self.processor_ns, other.processor_ns) {
            (Some(one), Some(other)) => Some(one + other),
            _ => None,
        };
    }

    /// The counts of no process, to which others are added.
    pub fn nobody() -> Spending {
        Spending { processor_ns: Some(0), ..Spending::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_used_since_the_attach_counts() {
        let mut spending = Spending::default();
        assert_eq!(spending.processor_ns, None);
        spending.note_cpu_time(500);
        spending.note_cpu_time(800);
        assert_eq!(spending.processor_ns, Some(300));
        spending.read_sample(1000);
        spending.read_sample(3000);
        assert_eq!(spending.stack_bytes_of(5), 10_000);
        let mut sum = Spending::nobody();
        sum.absorb(&spending);
        sum.absorb(&spending);
        assert_eq!((sum.processor_ns, sum.records, sum.stack_bytes), (Some(600), 4, 8000));
        sum.absorb(&Spending::default());
        assert_eq!(sum.processor_ns, None);
    }
}
