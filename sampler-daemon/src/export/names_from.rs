//! `--export-names`: who looks up the names of code in files.

use super::destination::{Destination, Protocol};

/// Who looks up the names of code in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamesFrom {
    /// This host. Frames are pushed with their names.
    #[default]
    Host,
    /// The receiver, by build id and address. This host looks up only what nobody else can: names
    /// of generated code, of interpreted functions, and of code without a file.
    Server,
}

impl NamesFrom {
    /// Every choice.
    pub const ALL: [NamesFrom; 2] = [NamesFrom::Host, NamesFrom::Server];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            NamesFrom::Host => "host",
            NamesFrom::Server => "server",
        }
    }

    /// Checks that a destination can do without names. The error is one line.
    ///
    /// # Errors
    /// If it cannot: the reason and the remedy.
    pub fn check(self, destination: &Destination) -> Result<(), String> {
        match destination {
            Destination::Server(server)
                if self == NamesFrom::Server && server.protocol == Protocol::Pyroscope =>
            {
                Err(format!(
                    "--export-names server: {destination} takes functions by their names (give Pyroscope's otlp+http://HOST:4040, or leave --export-names out)"
                ))
            }
            _ => Ok(()),
        }
    }
}
