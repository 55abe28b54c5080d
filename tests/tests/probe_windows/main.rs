//! `--windows`: what is seen in windows stands for all of it, at a bounded cost.

mod compare;
mod ends;
mod many;
mod right;
