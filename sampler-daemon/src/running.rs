//! Programs that tests start.

use std::process::{Child, Command};

/// A child that is killed when the test is over, however it ends.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Starts it.
    pub(crate) fn start(command: &mut Command) -> Running {
        Running(command.spawn().unwrap())
    }

    /// A program that counts in its memory, and does nothing else: about a million times a second, as work is counted. A loop that counts alone is past what a search takes for work as
    /// soon as the machine has something else to do between two looks.
    pub(crate) fn counting() -> Running {
        let counts = "my $n = 0; while (1) { $n++; my $of = 0; $of += $_ for 1 .. 50 }";
        Running::start(Command::new("perl").args(["-e", counts]))
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
