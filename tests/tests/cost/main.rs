//! What samplerd says that its probes cost, against what programs become slower.

mod charged;
mod own;
mod prices;
mod trial;
