//! What samplerd says that its probes cost, against what programs become slower.

mod charged;
mod forecast;
mod own;
mod prices;
mod trial;
