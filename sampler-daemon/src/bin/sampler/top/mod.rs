//! `sampler top`: the processes that allocate, and their allocating code, live.
//!
//! [`ask`] asks samplerd. [`model`] is the state and what keys do to it. [`view`] draws the state.
//! This module connects the three.

mod ask;
mod columns;
mod data;
mod history;
mod model;
mod rows;
mod screen;
mod view;

use crate::args::TopVerb;
use crate::connect::{self, Address};
use crate::page;
use anyhow::{Context as _, Result, bail};
use ask::Asker;
use model::{Answer, Model, Outcome, Question};
use ratatui::crossterm::event::{Event, KeyEventKind};
use ratatui::layout::Size;
use rustix::process::{Signal, getpid, kill_process};
use screen::Screen;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};
use view::Theme;

/// Maximum number of answers that wait to be drawn.
const BACKLOG: usize = 4;
/// Period of redrawing. The screen shows how long it has waited.
const TICK: Duration = Duration::from_secs(1);

pub(crate) async fn run(address: &Address, verb: TopVerb) -> Result<ExitCode> {
    if !page::is_terminal() {
        bail!(
            "top needs a terminal, and standard output is none (for a pipe: sampler watch, or ps --json)"
        );
    }
    if !page::can_redraw(&std::io::stdout()) {
        bail!("top needs a terminal that can move its cursor (set TERM; or sampler watch)");
    }
    // The connection is made before the screen is taken over, so that a failure is reported as by
    // every verb.
    let client = connect::client(address).await?;
    let (question, questions) = watch::channel(Question::default());
    let (answers, answered) = mpsc::channel(BACKLOG);
    let asker = Asker {
        address: address.clone(),
        selector: verb.select.selector(),
        period: verb.period,
        questions,
        answers,
    };
    let mut ends = Ends::new()?;
    let screen = Screen::take()?;
    let asking = tokio::spawn(asker.run(client));
    let ended = shown(screen, &verb, question, answered, &mut ends).await;
    asking.abort();
    ended
}

/// Draws, and handles keys and answers, until the end.
async fn shown(
    mut screen: Screen,
    verb: &TopVerb,
    question: watch::Sender<Question>,
    mut answered: mpsc::Receiver<Answer>,
    ends: &mut Ends,
) -> Result<ExitCode> {
    let start = Instant::now();
    let theme = Theme { color: page::color() };
    let mut model = Model::new(verb.kind.into(), (0, 0));
    let mut events = screen::events();
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        screen.draw(|frame| {
            let Size { width, height } = frame.area().as_size();
            model.resized((width, height));
            view::draw(&model, theme, frame.buffer_mut());
        })?;
        tokio::select! {
            event = events.recv() => {
                match event.context("the terminal is gone")?.context("read the terminal")? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => match model.key(key) {
                        Outcome::Stay => {}
                        Outcome::Quit => return Ok(ExitCode::SUCCESS),
                        Outcome::Suspend => screen.lend(suspend)?,
                    },
                    // Drawing reads the size of the terminal.
                    _ => {}
                }
            }
            answer = answered.recv() => model.answered(answer.context("nobody asks any more")?),
            _ = tick.tick() => {}
            signal = ends.any() => return Ok(ExitCode::from(128 + signal.as_raw() as u8)),
        }
        model.now = start.elapsed();
        question.send_if_modified(|requested| {
            let wanted = model.question();
            let differs = *requested != wanted;
            *requested = wanted;
            differs
        });
    }
}

/// Stops this process until it is continued, as the shell expects for Ctrl-Z.
fn suspend() {
    // Sending a signal to this very process cannot fail.
    let _ = kill_process(getpid(), Signal::TSTP);
}

/// Signals that end this process after the terminal is restored.
struct Ends {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
}

impl Ends {
    fn new() -> Result<Ends> {
        let catch = |kind| signal(kind).context("catch signals");
        Ok(Ends {
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
            hang_up: catch(SignalKind::hangup())?,
        })
    }

    async fn any(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.hang_up.recv() => Signal::HUP,
        }
    }
}
