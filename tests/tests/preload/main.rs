//! Programs that a preloaded library samples from inside (`sampler run --preload`): the estimates are as good as those of probes, what is
//! held is what is held, and no program is changed by it.

mod bounds;
mod company;
mod counted;
mod exact;
mod front;
mod interop;
mod run;
mod storm;
mod survives;
mod truth;
