//! The sampler goes into running programs and out again; they must not notice.

mod company;
mod cycles;
mod daemon;
mod follow;
mod killed;
mod late;
mod operators;
mod orphaned;
mod overhead;
mod refused;
mod samplerd_killed;

mod states;
mod truth;
mod waits;
