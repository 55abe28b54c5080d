//! Strategies: how it is decided which allocations are sampled.

/// How it is decided which allocations are sampled. The number is the tag of a [`super::Design`].
///
/// Strategies below 0x80 charge λ per byte of the countdown, which is what the eBPF program does first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Strategy {
    /// Every byte is a trial (a geometric countdown): a request of s bytes is sampled with π = 1 − (1 − p)^s.
    Geometric = 0,
    /// As geometric, with a λ of its own for every size class, chosen for the least variance of live bytes.
    Adaptive = 1,
    /// How many sample points fall into a request (Poisson with mean λs); requests that are hit with 99 % are certain.
    Poisson = 0x80,
    /// Every request is one trial, whatever its size.
    Bernoulli = 0x81,
    /// Every n-th byte. Biased on periodic programs; for comparison.
    Stride = 0x82,
    /// Not ours to decide: the process samples by itself and says what each sample stands for, see [`super::external()`].
    External = 0x83,
}

impl Strategy {
    /// Every strategy that can be asked for.
    pub const ALL: [Strategy; 5] = [
        Strategy::Geometric,
        Strategy::Poisson,
        Strategy::Bernoulli,
        Strategy::Stride,
        Strategy::Adaptive,
    ];

    /// The strategy with this number, if there is one.
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

    /// The strategy of this name.
    pub fn from_name(name: &str) -> Option<Strategy> {
        let mut all = Strategy::ALL.into_iter().chain([Strategy::External]);
        all.find(|strategy| strategy.name() == name)
    }
}
