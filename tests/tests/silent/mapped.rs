//! Memory that a program maps by itself.
