//! `--max-overhead`: what is seen in windows stands for all of it, at a bounded cost.

mod compare;
mod counters;
mod ends;
mod right;
