//! The sampler is injected into running programs and ejected. The programs must not notice.

mod company;
mod cycles;
mod daemon;
mod follow;
mod killed;
mod late;
mod operators;
mod orphaned;
mod overhead;
mod past_malloc;
mod refused;
mod samplerd_killed;

mod siblings;
mod states;
mod truth;
mod waits;
