//! Programs that a preloaded library samples from inside (`sampler run --preload`). Estimates are
//! as good as those of probes, held bytes are right, and no program changes its behaviour.

mod bounds;
mod company;
mod counted;
mod exact;
mod front;
mod interop;
mod run;
mod siblings;
mod storm;
mod survives;
mod truth;
