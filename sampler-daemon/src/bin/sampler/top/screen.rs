//! The terminal: taken over, and given back as it was, however this ends.

use anyhow::{Context as _, Result};
use ratatui::crossterm::event::{self, Event};
use ratatui::{DefaultTerminal, Frame};
use tokio::sync::mpsc;

/// Events that wait for the screen to be drawn.
const BACKLOG: usize = 64;

/// A terminal that is ours until this is dropped. A panic gives it back before it says anything.
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

    /// Gives it back, and takes it again after `meanwhile`.
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

/// Keys and sizes as they come. The thread ends with the process: nothing wakes it but a key.
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
