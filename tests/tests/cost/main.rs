//! samplerd's figures for the cost of its probes, compared with the slowdown of programs.

mod charged;
mod forecast;
mod own;
mod prices;
mod trial;
