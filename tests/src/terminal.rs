//! A pseudo-terminal of the test's own: runs a program, sends keys, and renders the screen.

use crate::wait;
use anyhow::{Context, Result, ensure};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use std::io::{Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// A pseudo-terminal with a program in it.
pub struct Terminal {
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    screen: Arc<Mutex<vt100::Parser>>,
}

fn size((columns, lines): (u16, u16)) -> PtySize {
    PtySize { rows: lines, cols: columns, pixel_width: 0, pixel_height: 0 }
}

impl Terminal {
    /// Starts a command in a terminal of this many columns and lines.
    pub fn start(columns_lines: (u16, u16), command: &[&str]) -> Result<Terminal> {
        let (columns, lines) = columns_lines;
        let pair = native_pty_system().openpty(size(columns_lines))?;
        let (program, arguments) = command.split_first().context("a command has a program")?;
        let mut builder = CommandBuilder::new(program);
        builder.args(arguments);
        builder.env("TERM", "xterm-256color");
        for name in ["COLUMNS", "NO_COLOR", "SAMPLER_CONNECT"] {
            builder.env_remove(name);
        }
        let child = pair.slave.spawn_command(builder)?;
        let screen = Arc::new(Mutex::new(vt100::Parser::new(lines, columns, 0)));
        let (shown, mut output) = (screen.clone(), pair.master.try_clone_reader()?);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Linux reports the end of the terminal as an error.
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap_or_else(PoisonError::into_inner).process(&bytes[..read]);
            }
        });
        let keys = pair.master.take_writer()?;
        Ok(Terminal { master: pair.master, keys, child, screen })
    }

    /// Types keys.
    pub fn keys(&mut self, keys: &str) -> Result<()> {
        self.keys.write_all(keys.as_bytes()).context("type")?;
        self.keys.flush().context("type")
    }

    /// Changes the terminal's size.
    pub fn resize(&mut self, columns_lines: (u16, u16)) -> Result<()> {
        let (columns, lines) = columns_lines;
        self.master.resize(size(columns_lines))?;
        self.with(|screen| screen.screen_mut().set_size(lines, columns));
        Ok(())
    }

    fn with<T>(&self, read: impl FnOnce(&mut vt100::Parser) -> T) -> T {
        read(&mut self.screen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The text on the screen.
    pub fn text(&self) -> String {
        self.with(|screen| screen.screen().contents())
    }

    /// Waits until `holds` is true of the text on the screen.
    pub fn until(&self, what: &str, holds: impl Fn(&str) -> bool) -> Result<String> {
        let found = wait::until(what, || Ok(Some(self.text()).filter(|text| holds(text))));
        found.with_context(|| format!("the screen:\n{}", self.text()))
    }

    /// Process id of the program.
    pub fn pid(&self) -> Result<u32> {
        self.child.process_id().context("it has ended")
    }

    /// Waits for the end of the program, and returns its exit code.
    pub fn code(&mut self) -> Result<u32> {
        let status = wait::until("the end of the program in the terminal", || {
            self.child.try_wait().context("wait for the program in the terminal")
        });
        Ok(status.with_context(|| format!("the screen:\n{}", self.text()))?.exit_code())
    }

    /// Checks that the program left the terminal as a shell needs it: the main screen, a cursor,
    /// line editing and echo.
    pub fn check_restored(&self) -> Result<()> {
        let is_restored = || {
            self.with(|screen| {
                !screen.screen().alternate_screen() && !screen.screen().hide_cursor()
            })
        };
        wait::until("the shell's own screen", || Ok(is_restored().then_some(())))?;
        let modes = self.master.get_termios().context("the terminal has modes")?;
        let modes = format!("{:?}", modes.local_flags);
        ensure!(modes.contains("ICANON") && modes.contains("ECHO"), "left raw: {modes}");
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // An error means that the program is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
