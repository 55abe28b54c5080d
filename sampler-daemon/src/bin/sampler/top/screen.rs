//! The terminal: taken over, and always restored.

use anyhow::{Context as _, Result};
use ratatui::crossterm::event::{self, Event};
use ratatui::{DefaultTerminal, Frame};
use tokio::sync::mpsc;

/// Maximum number of events that wait to be handled.
const BACKLOG: usize = 64;

/// A terminal that this process has taken over. Dropping the value restores the terminal. A panic
/// restores it before its message.
pub(super) struct Screen(Option<DefaultTerminal>);

impl Screen {
    pub(super) fn take() -> Result<Screen> {
        let terminal = ratatui::try_init().inspect_err(|_| ratatui::restore());
        Ok(Screen(Some(terminal.context("take over the terminal")?)))
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame)) -> Result<()> {
        if let Some(terminal) = &mut self.0 {
            terminal.draw(draw).context("draw on the terminal")?;
        }
        Ok(())
    }

    /// Restores the terminal, runs `meanwhile`, and takes the terminal over again.
    pub(super) fn lend(&mut self, meanwhile: impl FnOnce()) -> Result<()> {
        drop(self.0.take());
        ratatui::restore();
        meanwhile();
        *self = Screen::take()?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Returns the stream of keys and sizes. Its thread ends with the process, because only an event
/// wakes the thread.
pub(super) fn events() -> mpsc::Receiver<std::io::Result<Event>> {
    let (sender, receiver) = mpsc::channel(BACKLOG);
    std::thread::spawn(move || {
        loop {
            let event = event::read();
            let failed = event.is_err();
            if sender.blocking_send(event).is_err() || failed {
                return;
            }
        }
    });
    receiver
}
