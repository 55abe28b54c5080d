//! The drawn screens, character by character.

use super::*;
use crate::top::model::tests::{PID, detail, press, process, snapshot, three, typed};
use crate::top::model::{Answer, Model};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use sampler_common::profile::Kind;
use std::time::Duration;

fn buffer(model: &mut Model, size: (u16, u16), color: bool) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    model.resized(size);
    terminal.draw(|frame| draw(model, Theme { color }, frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

fn screen(model: &mut Model, size: (u16, u16)) -> String {
    let buffer = buffer(model, size, true);
    let line = |y| -> String { (0..size.0).map(|x| buffer[(x, y)].symbol()).collect() };
    let lines: Vec<String> = (0..size.1).map(|y| line(y).trim_end().to_owned()).collect();
    lines.join("\n").trim_end().to_owned() + "\n"
}

#[test]
fn processes_fit_80_columns() {
    let screen = screen(&mut three(), (80, 12));
    let expected = "\
samplerd 0.1.0, up 1 m 05 s, one sample per 512KiB; 3 processes, 300 exited
allocated 30.0 MiB/s, 30.0k/s        █  held 90.6 MiB ±10%, 139k ±10%       ██
overhead 6.2% ±22% of CPU time since attach (1.23 s)  lost ring_full 4
 alloc  live  peak  all processes
    PID  ALLOC/s  OBJ/s  HISTORY     HELD     ±  COST     ± COMMAND
     17 20.0 MiB  20.0k        █ 7.00 MiB  ±10%  6.1%  ±10% postgres
   4121 10.0 MiB  10.0k        █ 11.0 MiB  ±10%  6.1%  ±10% kvstore
   4200      0 B      0        ▁ 90.0 MiB  ±10%  6.1%  ±10% python3



F1Help F3Search F4Filter F6Sort TabKind zFreeze EnterOpen qQuit
";
    assert_eq!(screen, expected, "\n{screen}");
}

fn opened() -> Model {
    let mut model = three();
    press(&mut model, &[KeyCode::Down, KeyCode::Enter]);
    let requested = model.question().process.unwrap();
    model.answered(detail(requested));
    model
}

#[test]
fn functions_fit_80_columns() {
    let screen = screen(&mut opened(), (80, 24));
    let lines: Vec<&str> = screen.lines().collect();
    assert_eq!(
        lines[3], " alloc  live  peak  4121 kvstore: functions, 18.5 MiB/s ±10% in the last 10.0 s",
        "\n{screen}"
    );
    assert!(lines[4].starts_with("  SELF/s     ± SELF%  TOTAL/s     ± FUNCTION"), "\n{screen}");
    assert!(lines[5].contains("load_file") && lines[5].ends_with("load.c:12"), "\n{screen}");
    assert!(lines[6].contains("evil ; [2J?漢 字") && lines[6].ends_with("kvstore"), "\n{screen}");
    assert!(lines[7].contains(" main ") && lines[7].ends_with("main.c:31"), "\n{screen}");
    assert!(lines[23].ends_with("EscBack qQuit"), "\n{screen}");
}

#[test]
fn a_stack_is_shown_in_full() {
    let mut model = opened();
    press(&mut model, &[KeyCode::F(5), KeyCode::Down, KeyCode::Enter]);
    let screen = screen(&mut model, (80, 24));
    assert!(screen.contains("   3 frames, the allocating one first\n   0 malloc"), "\n{screen}");
    assert!(screen.contains("\n   2 main  main.c:31"), "\n{screen}");
}

#[test]
fn hostile_names_do_not_control_the_terminal() {
    let hostile = "a\u{1b}[31m\r\n\u{9b}2J\u{202e}漢字🦀e\u{301}".repeat(20);
    let Answer::Snapshot(mut hostile_snapshot) = snapshot(3, vec![process(1, &hostile, 1)]) else {
        unreachable!()
    };
    hostile_snapshot.daemon.version = hostile.clone();
    hostile_snapshot.lost[0].outcome = hostile.clone();
    let mut models = vec![Model::new(Kind::Live, (0, 0)), three(), opened()];
    let mut model = three();
    model.answered(Answer::Snapshot(hostile_snapshot));
    models.push(model);
    let mut model = three();
    model.answered(Answer::Lost(hostile.clone()));
    press(&mut model, &[KeyCode::F(4)]);
    typed(&mut model, &hostile);
    models.push(model);
    let mut model = opened();
    press(&mut model, &[KeyCode::Tab]);
    model.answered(Answer::Refused(model.question().process.unwrap(), hostile));
    models.push(model);
    for key in [KeyCode::F(1), KeyCode::F(6), KeyCode::Char('z')] {
        let mut model = opened();
        press(&mut model, &[key]);
        models.push(model);
    }
    for mut model in models {
        for size in [(80, 24), (160, 50), (40, 8), (39, 7), (1, 1), (250, 9)] {
            for cell in buffer(&mut model, size, true).content() {
                assert!(!cell.symbol().contains(char::is_control), "{:?}", cell.symbol());
                assert!(!cell.symbol().contains('\u{202e}'), "{:?}", cell.symbol());
            }
        }
    }
}

#[test]
fn the_plain_screen_has_no_colors() {
    use ratatui::style::{Color, Modifier};
    let mut model = opened();
    model.lost = Some((Duration::ZERO, "gone".into()));
    let plain = buffer(&mut model, (80, 24), false);
    let is_plain = |color: Color| color == Color::Reset;
    assert!(plain.content().iter().all(|cell| is_plain(cell.fg) && is_plain(cell.bg)));
    // The marked line is visible without colors too.
    assert!(plain[(0, 5)].modifier.contains(Modifier::REVERSED));
    let colored = buffer(&mut model, (80, 24), true);
    assert!(colored.content().iter().any(|cell| !is_plain(cell.bg)));
}

#[test]
fn lost_daemons_and_empty_lists_are_named() {
    let mut model = three();
    model.now = Duration::from_secs(3);
    model.answered(Answer::Lost("connect unix:/x: no samplerd listens there".into()));
    model.now = Duration::from_secs(15);
    let lost = screen(&mut model, (80, 24));
    let said = "no answer for 12.0 s: connect unix:/x: no samplerd listens there";
    assert_eq!(lost.lines().nth(2), Some(said), "\n{lost}");
    assert!(lost.contains("kvstore"), "the last numbers stay\n{lost}");
    let mut none = Model::new(Kind::Alloc, (80, 24));
    assert!(screen(&mut none, (80, 24)).contains("asking samplerd"));
    none.answered(snapshot(1, vec![]));
    assert!(screen(&mut none, (80, 24)).contains("no process is profiled"));
    press(&mut none, &[KeyCode::Char(' ')]);
    assert!(screen(&mut none, (80, 24)).lines().next().unwrap().ends_with(" FROZEN"));
    assert!(screen(&mut none, (30, 5)).starts_with("the terminal is too small"));
}

#[test]
fn the_help_and_the_menu_fit() {
    let mut model = three();
    press(&mut model, &[KeyCode::F(1)]);
    let help = screen(&mut model, (80, 24));
    assert!(help.contains("q F10   quit") && help.contains("frees are not followed."), "\n{help}");
    press(&mut model, &[KeyCode::Char('x'), KeyCode::F(6)]);
    let menu = screen(&mut model, (80, 24));
    for name in ["Sort by", "  PID", "  ALLOC/s", "  HELD", "  RSS", "  NAME"] {
        assert!(menu.contains(name), "{name}\n{menu}");
    }
}

#[test]
fn a_wide_screen_shows_more_columns() {
    let screen = screen(&mut three(), (160, 50));
    let heads = screen.lines().nth(4).unwrap();
    for name in ["OBJECTS", "ALLOCATED", "RSS", "SAMPLES", "INTERVAL"] {
        assert!(heads.contains(name), "{heads}");
    }
    assert!(screen.contains(&PID.to_string()));
}
