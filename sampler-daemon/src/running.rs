//! Programs that tests start.

use std::process::{Child, Command};

/// A child that is killed at the end of the test, however the test ends.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Starts the child.
    pub(crate) fn start(command: &mut Command) -> Running {
        Running(command.spawn().unwrap())
    }

    /// The child's process id.
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
