//! Unusual calls, processes, threads and stacks. With interval 1 every allocation is sampled with
//! weight 1, so the profile must equal the truth.

mod calls;
mod case;
mod company;
mod files;
mod processes;
mod stacks;
