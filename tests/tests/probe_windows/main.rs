//! `--windows`: the samples of windows represent the whole run, at a bounded cost.

mod compare;
mod ends;
mod many;
mod right;
