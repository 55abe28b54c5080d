//! Programs that tests start.

use std::process::{Child, Command};

/// A child that is killed when the test is over, however it ends.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Starts it.
    pub(crate) fn start(command: &mut Command) -> Running {
        Running(command.spawn().unwrap())
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
