//! The sampler goes into running programs and out again; they must not notice.

mod company;
mod cycles;
mod daemon;
mod killed;
mod orphaned;
mod refused;
mod states;
mod truth;
mod waits;
