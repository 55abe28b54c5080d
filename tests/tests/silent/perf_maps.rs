//! Names of generated code.
