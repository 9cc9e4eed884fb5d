//! What is looked at, after actions.

use super::super::messages::SourceBy;
use super::super::testing::Viewed;
use super::*;
use Action::{Collapse, Columns, Enter, Escape, Event, Expand, ExpandAll, Follow, Move, ZoomFunction, ZoomProgram};

const SIZE: (u16, u16) = (100, 20);

/// The lines of the list: what they are called, and how many samples.
fn lines(state: &State) -> Vec<(String, u64)> {
    let data = state.table.data.as_ref().unwrap();
    let line = |item: &Item| match *item {
        Item::Row(row) => (data.lines[row].cells.last().unwrap().clone(), data.lines[row].total.samples),
        Item::Call { row, call } => {
            let call = state.table.call_of(row, call).unwrap();
            (format!("{}{}", " ".repeat(call.depth + 1), call.name), call.weight.samples)
        }
        Item::Nothing(_) => ("nothing".to_owned(), 0),
    };
    state.table.items.iter().map(line).collect()
}

fn names(state: &State) -> Vec<String> {
    lines(state).into_iter().map(|(name, _)| name.split("0000000").last().unwrap_or("").to_owned()).collect()
}

#[test]
fn the_first_event_with_samples_is_shown() {
    let viewed = Viewed::new(SIZE);
    let state = &viewed.state;
    assert_eq!(state.stage, Stage::Finished);
    assert_eq!(state.overview.events.len(), 2);
    assert_eq!(state.overview.threads.len(), 2);
    assert_eq!(state.table.data.as_ref().unwrap().total.samples, 40);
    // The heaviest first; of two commands, `main` stands twice.
    assert_eq!(lines(state).iter().map(|(_, samples)| *samples).collect::<Vec<_>>(), [30, 30, 30, 10, 10]);
    // The programs are not there, which is said.
    assert_eq!(state.overview.remarks.len(), 3, "{:?}", state.overview.remarks);
}

#[test]
fn a_row_opens_into_its_calls() {
    let mut viewed = Viewed::new(SIZE);
    viewed.act(&[Expand]);
    let shown = lines(&viewed.state);
    assert_eq!(shown[1], (" called by".to_owned(), 30), "{shown:?}");
    assert_eq!(shown[2].1, 30);
    // What leads to one thing only is open.
    assert_eq!((shown.len(), shown[3].0.starts_with("   0x")), (5 + 3, true), "{shown:?}");
    // Again goes into it; and back, and closed.
    viewed.act(&[Expand, Expand]);
    assert_eq!(viewed.state.table.scroll.cursor, 2);
    viewed.act(&[Collapse, Collapse]);
    assert_eq!((viewed.state.table.scroll.cursor, lines(&viewed.state).len()), (1, 5 + 3 - 1));
    viewed.act(&[Collapse, Collapse, Collapse]);
    assert_eq!(lines(&viewed.state).len(), 5);
    viewed.act(&[ExpandAll]);
    assert!(lines(&viewed.state).len() > 6);
    // From a call to the row of its function.
    viewed.act(&[Move(2), Follow]);
    let row = viewed.state.table.row().unwrap();
    assert_eq!(viewed.state.table.items[viewed.state.table.scroll.cursor], Item::Row(1), "{row:?}");
}

#[test]
fn rows_are_filtered_while_one_types() {
    let mut viewed = Viewed::new(SIZE);
    viewed.act(&[Action::Filter]);
    assert_eq!(viewed.state.typing, Typing::Text);
    viewed.write("SHOP");
    assert_eq!(viewed.state.table.shown.0, 4, "{:?}", lines(&viewed.state));
    viewed.write(" door");
    assert_eq!((viewed.state.table.shown.0, viewed.state.table.shown.1.samples), (1, 30));
    viewed.act(&[Enter]);
    assert_eq!((viewed.state.typing, viewed.state.table.filter.as_str()), (Typing::Keys, "SHOP door"));
    viewed.act(&[Escape]);
    assert_eq!((viewed.state.table.shown.0, viewed.state.table.filter.as_str()), (5, ""));
    viewed.act(&[Action::Filter]);
    viewed.write("nowhere");
    assert!(viewed.state.table.items.is_empty());
    viewed.act(&[Expand, Collapse, Enter, Enter, ZoomFunction, Escape, Action::Erase]);
    assert_eq!(viewed.state.table.shown.0, 5);
}

#[test]
fn zooms_lead_in_and_back() {
    let mut viewed = Viewed::new(SIZE);
    // The thread with fewer samples.
    viewed.act(&[Action::Threads, Action::Bottom, Enter]);
    assert_eq!(viewed.state.query.zooms[0].label, "shelf 7/8");
    assert_eq!(viewed.state.table.data.as_ref().unwrap().total.samples, 10);
    assert_eq!(lines(&viewed.state).len(), 2);
    // Another thread takes its place, and all of them take it away.
    viewed.act(&[Action::Threads, Move(1), Enter]);
    assert_eq!((viewed.state.query.zooms.len(), viewed.state.query.zooms[0].label.as_str()), (1, "shop 7"));
    viewed.act(&[Action::Threads, Enter]);
    assert!(viewed.state.query.zooms.is_empty());
    // A program, and in it a function.
    viewed.act(&[Action::Filter]);
    viewed.write("漢");
    viewed.act(&[Enter, ZoomProgram]);
    assert_eq!(viewed.state.query.zooms[0].label, "漢字.so");
    viewed.act(&[Move(1), ZoomFunction]);
    assert_eq!(viewed.state.query.zooms.len(), 2);
    assert_eq!(viewed.state.table.data.as_ref().unwrap().total.samples, 10);
    viewed.act(&[ZoomFunction]);
    assert!(viewed.state.message.as_ref().is_some_and(|message| message.contains("already")));
    // Back the way that led there.
    viewed.act(&[Escape, Escape]);
    assert_eq!((viewed.state.query.zooms.len(), viewed.state.table.filter.as_str()), (0, "漢"));
    assert_eq!(viewed.state.table.shown.0, 1);
}

#[test]
fn the_cursor_stays_with_its_row() {
    let mut viewed = Viewed::new(SIZE);
    viewed.act(&[Move(4)]);
    let key = viewed.state.table.row().unwrap().key;
    viewed.act(&[Action::Filter]);
    viewed.write("shelf");
    assert_eq!(viewed.state.table.row().unwrap().key, key);
    viewed.act(&[Action::EraseAll]);
    assert_eq!((viewed.state.table.row().unwrap().key, viewed.state.table.scroll.cursor), (key, 4));
}

#[test]
fn events_and_columns_change() {
    let mut viewed = Viewed::new(SIZE);
    viewed.act(&[Event(1)]);
    assert_eq!((viewed.state.query.event, viewed.state.table.data.as_ref().unwrap().total.samples), (1, 10));
    viewed.act(&[Event(1)]);
    assert_eq!(viewed.state.query.event, 0);
    viewed.act(&[Action::Events, Move(1), Enter]);
    assert_eq!(viewed.state.query.event, 1);
    viewed.act(&[Event(-1), Columns, Columns]);
    assert_eq!(viewed.state.query.keys, [SortKey::Dso]);
    assert_eq!(names(&viewed.state), ["shop", "libdoor.so", "漢字.so"]);
    viewed.act(&[Enter]);
    assert!(viewed.state.message.as_ref().is_some_and(|message| message.contains("functions")));
    viewed.act(&[Columns, Columns]);
    assert_eq!(viewed.state.query.keys, [SortKey::Thread]);
    viewed.act(&[Columns]);
    assert_eq!(viewed.state.query.keys.len(), 3);
}

#[test]
fn rows_are_sorted_by_what_is_asked() {
    let mut viewed = Viewed::new(SIZE);
    viewed.act(&[Action::Sort]);
    let table = &viewed.state.table;
    assert_eq!(table.sort, Sort::Own);
    let data = table.data.as_ref().unwrap();
    let own = |item: &Item| if let Item::Row(row) = item { data.lines[*row].own.samples } else { 0 };
    assert_eq!(table.items.iter().map(own).collect::<Vec<_>>(), [30, 10, 0, 0, 0]);
    viewed.act(&[Action::Sort]);
    let table = &viewed.state.table;
    assert_eq!((table.sort, table.row().unwrap().cells[0].as_str()), (Sort::Cell(0), "shelf"));
    viewed.act(&[Action::Sort; 3]);
    assert_eq!(viewed.state.table.sort, Sort::Total);
}

#[test]
fn a_function_without_source_has_addresses() {
    let mut viewed = Viewed::new(SIZE);
    viewed.act(&[Enter]);
    let Screen::Source(screen) = &viewed.state.screen else { panic!("{:?}", viewed.state.screen) };
    let source = screen.source.as_ref().unwrap();
    assert_eq!((source.total.samples, screen.by, screen.lines().len()), (30, SourceBy::Addresses, 1));
    assert!(source.remarks[0].contains("no line numbers"), "{:?}", source.remarks);
    // There is nothing else to switch to.
    viewed.act(&[Action::Source, Action::Rank(1), Action::Rank(-1), Escape]);
    assert!(matches!(viewed.state.screen, Screen::Table));
}

#[test]
fn q_closes_what_stands_before_the_table() {
    let mut viewed = Viewed::new(SIZE);
    for opening in [Action::Help, Action::Info, Action::Threads, Enter] {
        viewed.act(&[opening, Action::Close]);
        assert!(matches!(viewed.state.screen, Screen::Table), "{opening:?}");
    }
    assert_eq!(viewed.state.act(Action::Close), Effect::Quit);
}

#[test]
fn nothing_that_is_done_in_any_order_breaks_it() {
    let all = [
        Move(1),
        Move(-3),
        Action::Page(1),
        Action::Page(-2),
        Action::Wheel(2),
        Action::Top,
        Action::Bottom,
        Expand,
        Collapse,
        Action::Toggle,
        ExpandAll,
        Enter,
        Action::Source,
        Action::Filter,
        Action::Type('s'),
        Action::Erase,
        Action::EraseAll,
        Escape,
        Action::Threads,
        Action::Events,
        Event(1),
        ZoomFunction,
        ZoomProgram,
        Action::Sort,
        Columns,
        Follow,
        Action::Rank(1),
        Action::Info,
        Action::Help,
        Action::Sideways(3),
        Action::Sideways(-1),
        Action::Click(0),
        Action::Click(2),
        Action::Click(5),
        Action::Click(999),
        Action::Resize(20, 3),
        Action::Resize(100, 20),
        Action::Resize(0, 0),
    ];
    let mut viewed = Viewed::new(SIZE);
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..3000 {
        viewed.act(&[all[random.usize(..all.len())]]);
        let table = &viewed.state.table;
        assert!(table.scroll.cursor < table.items.len().max(1));
    }
    // Everything can be left.
    for _ in 0..200 {
        viewed.act(&[Escape]);
    }
    assert!(viewed.state.query.zooms.is_empty() && matches!(viewed.state.screen, Screen::Table));
}
