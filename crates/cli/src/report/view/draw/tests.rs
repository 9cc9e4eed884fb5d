//! Screens as they look.

use super::super::state::Action;
use super::super::testing::Viewed;
use super::*;
use crate::style::Color as Colours;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};

const PLAIN: Theme = Theme { colours: Colours::Off };

fn drawn(viewed: &Viewed, theme: Theme) -> Buffer {
    let (width, height) = viewed.state.size;
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, &viewed.state, theme)).unwrap();
    terminal.backend().buffer().clone()
}

/// The screen as text, without blanks at the ends of lines.
fn text(viewed: &Viewed) -> Vec<String> {
    let buffer = drawn(viewed, PLAIN);
    let mut lines = Vec::new();
    for y in 0..buffer.area.height {
        let mut line = String::new();
        let mut skip = 0;
        for x in 0..buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            // A wide letter takes the cell behind it.
            if skip == 0 {
                line.push_str(symbol);
                skip = width(symbol).max(1);
            }
            skip -= 1;
        }
        lines.push(line.trim_end().to_owned());
    }
    lines
}

#[test]
fn a_table_of_eighty_columns() {
    let mut viewed = Viewed::new((80, 14));
    viewed.act(&[Action::Expand]);
    let expected = "
 it.data  one (1 of 2)  40 samples, 4000
 everything
▼Children     Self           Command  Shared Object    Symbol
   75.00%   75.00%  █████    shop     libdoor.so     ▾ [.] 0x0000000000000010
                                                       └╴▾ called by
   75.00%           ░░░░░             shop               └╴▾ 0x0000000000000011
   75.00%           ░░░░░             shop                 └╴  0x00000000000000…
   75.00%    0.00%  ░░░░░    shop     shop           ▸ [.] 0x0000000000000011
   75.00%    0.00%  ░░░░░    shop     shop           ▸ [.] 0x0000000000000021
   25.00%   25.00%  ██       shelf    漢字.so        ▸ [.] 0x0000000000000010
   25.00%    0.00%  ░░       shelf    shop           ▸ [.] 0x0000000000000021

 1/8  [.] 0x0000000000000010                                     ! 3 remarks: i
 q quit  ? help  → open  Enter source  / filter  t thread  z zoom  Esc back";
    assert_eq!(text(&viewed).join("\n"), expected.trim_start_matches('\n'));
}

#[test]
fn names_have_room_on_narrow_terminals() {
    for size in [(40, 10), (60, 12), (80, 24)] {
        let mut viewed = Viewed::new(size);
        viewed.act(&[Action::Expand]);
        let lines = text(&viewed);
        assert!(lines[2].contains("Symbol"), "{size:?}\n{}", lines.join("\n"));
        let name = lines[3].split_once("[.] ").map_or("", |(_, name)| name);
        let room = if size.0 == 40 { "0x0000000000" } else { "0x0000000000000010" };
        assert!(name.starts_with(room), "{size:?}\n{}", lines.join("\n"));
    }
    // What is too long moves sideways, and comes back.
    let mut viewed = Viewed::new((40, 10));
    let before = text(&viewed);
    viewed.act(&[Action::Sideways(1), Action::Sideways(1)]);
    assert!(text(&viewed)[3].contains("…0000010"), "{}", text(&viewed).join("\n"));
    viewed.act(&[Action::Sideways(9), Action::Sideways(-9)]);
    assert_eq!(text(&viewed), before);
}

#[test]
fn every_screen_fits_every_size() {
    let screens: [&[Action]; 8] = [
        &[],
        &[Action::ExpandAll],
        &[Action::Threads],
        &[Action::Events],
        &[Action::Enter],
        &[Action::Info],
        &[Action::Help, Action::Bottom],
        &[Action::Filter, Action::Type('z')],
    ];
    for actions in screens {
        for size in [(40, 8), (41, 9), (80, 24), (113, 30), (250, 60), (39, 30), (60, 7), (1, 1), (0, 0)] {
            let mut viewed = Viewed::new(size);
            viewed.act(actions);
            let lines = text(&viewed);
            let shown = lines.join("\n");
            if size.0 >= 40 && size.1 >= 8 {
                assert!(lines[0].contains("it.data") && lines[lines.len() - 1].starts_with(" q "), "{size:?}\n{shown}");
            } else if size.0 >= 39 {
                assert!(shown.contains("Too small"), "{size:?}\n{shown}");
            }
        }
    }
}

#[test]
fn without_colours_there_are_none() {
    let mut viewed = Viewed::new((100, 20));
    viewed.act(&[Action::ExpandAll]);
    let is_coloured = |theme| {
        let buffer = drawn(&viewed, theme);
        buffer.content().iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(is_coloured(Theme { colours: Colours::On }));
    assert!(!is_coloured(PLAIN));
    // The cursor is seen all the same.
    let buffer = drawn(&viewed, PLAIN);
    assert!(buffer[(0, LINES_ABOVE)].modifier.contains(Modifier::REVERSED));
}

#[test]
fn screens_of_text_say_what_is_missing() {
    let mut viewed = Viewed::new((80, 40));
    viewed.act(&[Action::Info]);
    let shown = text(&viewed).join("\n");
    for expected in ["What is missing", "/nowhere/libdoor.so is not there", "The recording", "name = one"] {
        assert!(shown.contains(expected), "{expected}\n{shown}");
    }
    viewed.act(&[Action::Help]);
    let shown = text(&viewed).join("\n");
    for expected in ["Everywhere", "pick a thread", "filter: rows that have all of these words"] {
        assert!(shown.contains(expected), "{expected}\n{shown}");
    }
    // The zoom is seen, with its share.
    viewed.act(&[Action::Escape, Action::ZoomProgram]);
    assert_eq!(text(&viewed)[1], " everything › libdoor.so  75.00% of everything");
}

#[test]
fn bars_have_the_length_of_their_share() {
    let weight = |period| Weight { period, samples: period };
    let shown = |own, total| {
        let spans = bar(weight(own), weight(total), weight(100), 10, PLAIN);
        spans.iter().map(|span| span.content.to_string()).collect::<String>()
    };
    assert_eq!(shown(30, 70), "███░░░░   ");
    assert_eq!(shown(100, 100), "██████████");
    assert_eq!(shown(0, 0), "          ");
    // More than all can't be; it is no reason to break the line.
    assert_eq!(shown(500, 300), "██████████");
}
