//! Odd calls, processes, threads and stacks, with every allocation sampled: at interval 1 each
//! weight is exactly 1, so the profile must equal the truth.

mod calls;
mod case;
mod company;
mod files;
mod processes;
mod stacks;
