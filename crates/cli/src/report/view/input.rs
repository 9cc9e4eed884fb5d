//! Keys and the mouse, as actions.
//!
//! **Invariant:** what a key means depends on whether text is typed, and on nothing else.

use super::state::{Action, Typing};
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind};

/// What an event of the terminal means; `None` if nothing.
pub(super) fn action(event: &Event, typing: Typing) -> Option<Action> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => match typing {
            Typing::Keys => command(*key),
            Typing::Text => text(*key),
        },
        Event::Mouse(mouse) => match mouse.kind {
            MouseEventKind::ScrollUp => Some(Action::Wheel(-1)),
            MouseEventKind::ScrollDown => Some(Action::Wheel(1)),
            MouseEventKind::Down(MouseButton::Left) => Some(Action::Click(mouse.row)),
            _ => None,
        },
        Event::Resize(width, height) => Some(Action::Resize(*width, *height)),
        _ => None,
    }
}

/// With the key for control; these mean the same while text is typed.
fn control(code: KeyCode) -> Option<Action> {
    Some(match code {
        KeyCode::Char('c') => Action::Quit,
        KeyCode::Char('z') => Action::Suspend,
        KeyCode::Char('u' | 'b') => Action::Page(-1),
        KeyCode::Char('d' | 'f') => Action::Page(1),
        KeyCode::Char('n') => Action::Move(1),
        KeyCode::Char('p') => Action::Move(-1),
        _ => return None,
    })
}

fn moves(code: KeyCode) -> Option<Action> {
    Some(match code {
        KeyCode::Up => Action::Move(-1),
        KeyCode::Down => Action::Move(1),
        KeyCode::PageUp => Action::Page(-1),
        KeyCode::PageDown => Action::Page(1),
        KeyCode::Esc => Action::Escape,
        KeyCode::Enter => Action::Enter,
        _ => return None,
    })
}

fn command(key: KeyEvent) -> Option<Action> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return control(key.code);
    }
    Some(match key.code {
        KeyCode::Char('q') => Action::Close,
        KeyCode::Char('>' | '.') => Action::Sideways(1),
        KeyCode::Char('<' | ',') => Action::Sideways(-1),
        KeyCode::Char('k') => Action::Move(-1),
        KeyCode::Char('j') => Action::Move(1),
        KeyCode::Char('g') | KeyCode::Home => Action::Top,
        KeyCode::Char('G') | KeyCode::End => Action::Bottom,
        KeyCode::Right | KeyCode::Char('l' | '+') => Action::Expand,
        KeyCode::Left | KeyCode::Char('h' | '-') => Action::Collapse,
        KeyCode::Char(' ') => Action::Toggle,
        KeyCode::Char('*' | 'x') => Action::ExpandAll,
        KeyCode::Char('a') => Action::Source,
        KeyCode::Char('/') => Action::Filter,
        KeyCode::Char('t') => Action::Threads,
        KeyCode::Char('e') => Action::Event(1),
        KeyCode::Char('E') => Action::Events,
        KeyCode::Char('z') => Action::ZoomFunction,
        KeyCode::Char('d') => Action::ZoomProgram,
        KeyCode::Char('s') => Action::Sort,
        KeyCode::Tab => Action::Columns,
        KeyCode::Char('f') => Action::Follow,
        KeyCode::Char('n') => Action::Rank(1),
        KeyCode::Char('N' | 'p') => Action::Rank(-1),
        KeyCode::Char('i') => Action::Info,
        KeyCode::Char('?') | KeyCode::F(1) => Action::Help,
        KeyCode::Backspace => Action::Escape,
        code => return moves(code),
    })
}

fn text(key: KeyEvent) -> Option<Action> {
    match key.code {
        KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Action::EraseAll),
        _ if key.modifiers.contains(KeyModifiers::CONTROL) => control(key.code),
        KeyCode::Char(letter) => Some(Action::Type(letter)),
        KeyCode::Backspace => Some(Action::Erase),
        code => moves(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_keys_or_text() {
        let press = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        let q = press(KeyCode::Char('q'), KeyModifiers::NONE);
        assert_eq!(action(&q, Typing::Keys), Some(Action::Close));
        assert_eq!(action(&q, Typing::Text), Some(Action::Type('q')));
        let end = press(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(&end, Typing::Keys), Some(Action::Quit));
        assert_eq!(action(&end, Typing::Text), Some(Action::Quit));
        let down = press(KeyCode::Down, KeyModifiers::NONE);
        assert_eq!(action(&down, Typing::Text), Some(Action::Move(1)));
        assert_eq!(action(&down, Typing::Keys), Some(Action::Move(1)));
    }
}
