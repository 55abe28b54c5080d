//! Strategies: the rules that decide which allocations are sampled.

/// The rule that decides which allocations are sampled. The number is the tag of a
/// [`super::Design`].
///
/// Strategies below 0x80 charge λ per byte to the countdown. The eBPF program checks for them
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Strategy {
    /// Every byte is a trial (a geometric countdown): a request of s bytes is sampled with
    /// π = 1 − (1 − p)^s.
    Geometric = 0,
    /// Geometric with a separate λ for every size class, chosen for the least variance of live
    /// bytes.
    Adaptive = 1,
    /// The number of sample points in a request is Poisson with mean λs. A request that would be
    /// hit with a probability of 99 % or more is always sampled.
    Poisson = 0x80,
    /// Every request is one trial, whatever the size.
    Bernoulli = 0x81,
    /// Every n-th byte. Biased on periodic programs; for comparison only.
    Stride = 0x82,
    /// The process samples by itself and reports what each sample stands for, see
    /// [`super::external()`].
    External = 0x83,
}

impl Strategy {
    /// Every strategy that a user can choose.
    pub const ALL: [Strategy; 5] = [
        Strategy::Geometric,
        Strategy::Poisson,
        Strategy::Bernoulli,
        Strategy::Stride,
        Strategy::Adaptive,
    ];

    /// The strategy with this number; `None` if no strategy has it.
    pub const fn from_number(number: u8) -> Option<Strategy> {
        match number {
            0 => Some(Strategy::Geometric),
            1 => Some(Strategy::Adaptive),
            0x80 => Some(Strategy::Poisson),
            0x81 => Some(Strategy::Bernoulli),
            0x82 => Some(Strategy::Stride),
            0x83 => Some(Strategy::External),
            _ => None,
        }
    }

    /// The name on command lines, in the protocol and in json.
    pub const fn name(self) -> &'static str {
        match self {
            Strategy::Geometric => "geometric",
            Strategy::Adaptive => "adaptive",
            Strategy::Poisson => "poisson",
            Strategy::Bernoulli => "bernoulli",
            Strategy::Stride => "stride",
            Strategy::External => "external",
        }
    }

    /// The strategy of this name; `None` if no strategy has it.
    pub fn from_name(name: &str) -> Option<Strategy> {
        let mut all = Strategy::ALL.into_iter().chain([Strategy::External]);
        all.find(|strategy| strategy.name() == name)
    }
}
