//! From the text of a trigger to its tree.
//!
//! **Invariant:** no text makes it panic; what it accepts can be waited for, as far as that can be seen without a look at the machine.

use super::{
    Comparison, Every, ExitOf, Level, LevelQuantity, LineFilter, Pressure, Resource, Rounds, SignalName, StalledTasks,
    TermScope, TermSource, Trigger, TriggerTerm,
};
use crate::event::nearest::nearest;
use crate::event::{check_one, printable};
use crate::symbol::AddressSpec;
use crate::text::{Cursor, TextError, TextPiece};
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

/// What can stand in front of a colon, beside systems of tracepoints.
const KINDS: [&str; 7] = ["psi", "uprobe", "watch", "exit", "crash", "line", "signal"];
const SOURCES: &str = "rate(EVENT) > N/s, EVENT / EVENT > N, psi:…, SYSTEM:TRACEPOINT, uprobe:…, watch:…, exit:…, crash, line:… or \
                       signal:…";
/// Signals that a process can be sent and that it can receive.
const SIGNALS: [&str; 15] = [
    "USR1", "USR2", "HUP", "INT", "QUIT", "TERM", "ALRM", "VTALRM", "PROF", "WINCH", "CONT", "URG", "PWR", "TSTP",
    "CHLD",
];
/// Windows that the kernel takes. Source: `kernel/sched/psi.c`, `WINDOW_MIN_US` and `WINDOW_MAX_US`.
const WINDOWS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(10)];
/// Longer ones before those that they begin with.
pub(super) const COMPARISONS: [(&str, Comparison); 6] = [
    (">=", Comparison::GreaterOrEqual),
    ("<=", Comparison::LessOrEqual),
    ("==", Comparison::Equal),
    ("!=", Comparison::Unequal),
    (">", Comparison::Greater),
    ("<", Comparison::Less),
];
pub(super) const RESOURCES: [(&str, Resource); 3] =
    [("cpu", Resource::Cpu), ("memory", Resource::Memory), ("io", Resource::Io)];
/// More terms than that are not readable.
const MOST_TERMS: usize = 16;

impl FromStr for Trigger {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let mut cursor = Cursor::new(text);
        let (mut terms, mut begins) = (Vec::new(), Vec::new());
        loop {
            cursor.skip_blanks();
            begins.push(cursor.at);
            terms.push(term(&mut cursor)?);
            if !cursor.take_word("and") {
                break;
            }
        }
        together(&cursor, &terms, &begins)?;
        let (mut every, mut rounds) = (None, Rounds::Always);
        while !cursor.is_at_end() {
            if every.is_none() && cursor.take_word("every") {
                every = Some(every_which(&mut cursor)?);
            } else if rounds == Rounds::Always && cursor.take_word("once") {
                rounds = Rounds::Once;
            } else {
                return Err(cursor.expected("`and`, `for`, `per`, `every`, `once` or the end"));
            }
        }
        let text = printable(&text.trim().replace(['\n', '\t'], " "));
        Ok(Self { terms, every: every.unwrap_or_default(), rounds, text })
    }
}

/// What can't hold at once.
fn together(cursor: &Cursor<'_>, terms: &[TriggerTerm], begins: &[usize]) -> Result<(), TextError> {
    let at = |index: usize| begins.get(index).copied().unwrap_or_default();
    if terms.len() > MOST_TERMS {
        return Err(cursor.error(at(MOST_TERMS), format!("a trigger has at most {MOST_TERMS} terms")));
    }
    let moments: Vec<usize> = (0..terms.len()).filter(|&index| terms[index].source.is_moment()).collect();
    if let &[first, second, ..] = &moments[..] {
        let problem = format!(
            "`{}` and `{}` are moments, which never come at the same time: give each an --on of its own",
            terms[first], terms[second]
        );
        return Err(cursor.error(at(second), problem));
    }
    let scoped = |scope| terms.iter().position(|term| term.scope == scope);
    if let (Some(cpu), Some(cgroup)) = (scoped(TermScope::PerCpu), scoped(TermScope::PerCgroup)) {
        return Err(cursor.error(at(cpu.max(cgroup)), "a trigger looks either per cpu or per cgroup"));
    }
    Ok(())
}

fn every_which(cursor: &mut Cursor<'_>) -> Result<Every, TextError> {
    cursor.skip_blanks();
    let begin = cursor.at;
    if !cursor.rest().starts_with(|c: char| c.is_ascii_digit()) {
        return Err(cursor.expected("a number, such as 10 for each tenth, or a time, such as 10s"));
    }
    let number = cursor.number()?;
    if let Some(unit) = cursor.unit() {
        return cursor.span(number * unit, begin).map(Every::Span);
    }
    let whole = (number.fract() == 0.0 && number <= f64::from(u32::MAX)).then_some(number as u32);
    let problem = "expected a whole number from 1, or a time with its unit";
    whole.and_then(NonZeroU32::new).map(Every::Nth).ok_or_else(|| cursor.error(begin, problem))
}

fn term(cursor: &mut Cursor<'_>) -> Result<TriggerTerm, TextError> {
    cursor.skip_blanks();
    let begin = cursor.at;
    let begun = TextPiece { text: cursor.rest(), at: begin };
    let source = source(cursor)?;
    let (mut scope, mut held) = (TermScope::All, Duration::ZERO);
    loop {
        cursor.skip_blanks();
        let at = cursor.at;
        if scope == TermScope::All && cursor.take_word("per") {
            scope = match () {
                () if cursor.take_word("cpu") => TermScope::PerCpu,
                () if cursor.take_word("cgroup") => TermScope::PerCgroup,
                () => return Err(cursor.expected("`cpu` or `cgroup`")),
            };
            if !source.takes(scope) {
                let problem = match scope {
                    TermScope::PerCgroup => "`per cgroup` goes with rates and ratios only",
                    _ => "`per cpu` goes with rates, ratios, tracepoints and watched addresses only",
                };
                return Err(cursor.error(at, problem));
            }
        } else if held.is_zero() && cursor.take_word("for") {
            if source.is_moment() {
                let text = begun.to(at - begin).trim().text;
                let problem = format!("`{text}` is a moment: it does not last, so it can't have lasted `for` a time");
                return Err(cursor.error(at, problem));
            }
            held = cursor.duration()?;
        } else if cursor.at == begin {
            return Err(cursor.expected(SOURCES));
        } else {
            let text = begun.to(cursor.at - begin).trim().text.to_owned();
            return Ok(TriggerTerm { source, scope, held, text });
        }
    }
}

fn source(cursor: &mut Cursor<'_>) -> Result<TermSource, TextError> {
    cursor.skip_blanks();
    let rest = cursor.rest();
    if rest.starts_with("line:/") {
        return pattern(cursor).map(TermSource::Line);
    }
    if rest.starts_with("rate(") || rest.starts_with("rate (") {
        return rate(cursor).map(TermSource::Level);
    }
    let mut ahead = *cursor;
    let body = ahead.body()?;
    if body.text.is_empty() {
        return Err(cursor.expected(SOURCES));
    }
    cursor.at = ahead.at;
    let (kind, behind) = match body.text.find(':') {
        Some(colon) => (body.to(colon), Some(body.from(colon + 1))),
        None => (body, None),
    };
    match (kind.text, behind) {
        ("crash", behind) => behind.map(|name| command(cursor, name)).transpose().map(TermSource::Crash),
        ("exit", Some(whose)) => exit(cursor, whose).map(TermSource::Exit),
        ("psi", Some(rest)) => pressure(cursor, rest).map(TermSource::Pressure),
        ("watch", Some(target)) => watch(cursor, target).map(TermSource::Watch),
        ("line", Some(text)) => {
            let text = unquoted(cursor, text, "the text of a line, or /REGEX/")?;
            Ok(TermSource::Line(LineFilter::Text(text)))
        }
        ("uprobe" | "uretprobe", Some(_)) => {
            let (name, filter) = filtered(body);
            with_filter(cursor, event(cursor, name)?, filter)
        }
        // There are tracepoints of that system too.
        ("signal", Some(name)) if !name.text.starts_with("signal_") => signal(cursor, name).map(TermSource::Signal),
        ("psi" | "watch" | "exit" | "line" | "signal", None) => {
            Err(cursor.error(body.at + body.text.len(), format!("expected `:` and what `{}` waits for", body.text)))
        }
        _ => event_or_ratio(cursor, body),
    }
}

/// What stands before `if`, and behind it.
fn filtered(body: TextPiece<'_>) -> (TextPiece<'_>, Option<TextPiece<'_>>) {
    match split_word(body.text, "if") {
        Some((before, behind)) => (body.to(before).trim(), Some(body.from(behind).trim())),
        None => (body, None),
    }
}

fn with_filter(cursor: &Cursor<'_>, event: String, filter: Option<TextPiece<'_>>) -> Result<TermSource, TextError> {
    match filter {
        Some(filter) if filter.text.is_empty() => {
            Err(cursor.error(filter.at, "expected a filter behind `if`, such as `prev_pid == 42`"))
        }
        filter => Ok(TermSource::Tracepoint { event, filter: filter.map(|filter| filter.text.to_owned()) }),
    }
}

fn event_or_ratio(cursor: &Cursor<'_>, body: TextPiece<'_>) -> Result<TermSource, TextError> {
    let (name, filter) = filtered(body);
    let compared = name.text.find(['<', '>', '!']).or_else(|| name.text.find("=="));
    if let (None, Some(at)) = (filter, compared) {
        return ratio(cursor, name.to(at).trim(), name.from(at)).map(TermSource::Level);
    }
    let word = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
    match name.text.split_once(':') {
        Some((system, event)) if word(system) && word(event) => {}
        _ => {
            let kind = name.text.split(':').next().unwrap_or_default();
            let problem = format!("expected {SOURCES}; found `{}`", printable(name.text));
            let near = nearest(kind, KINDS.map(str::to_owned)).into_iter().map(|kind| format!("{kind}:…")).collect();
            return Err(cursor.error(name.at, problem).suggesting(near));
        }
    }
    with_filter(cursor, name.text.to_owned(), filter)
}

/// Where a word begins that stands alone, and where the rest does.
fn split_word(text: &str, word: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    while let Some(at) = text.get(from..)?.find(word).map(|at| at + from) {
        let end = at + word.len();
        let alone = text.get(..at)?.ends_with(char::is_whitespace)
            && text.get(end..)?.chars().next().is_none_or(char::is_whitespace);
        if alone {
            return Some((at, end));
        }
        from = end;
    }
    None
}

fn event(cursor: &Cursor<'_>, piece: TextPiece<'_>) -> Result<String, TextError> {
    match check_one(piece.text) {
        Ok(()) => Ok(piece.text.to_owned()),
        Err((at, problem)) => Err(cursor.error(piece.at + at, problem)),
    }
}

fn comparison(cursor: &mut Cursor<'_>) -> Result<Comparison, TextError> {
    let found = COMPARISONS.into_iter().find(|(sign, _)| cursor.take(sign));
    found.map(|(_, comparison)| comparison).ok_or_else(|| cursor.expected("one of > >= < <= == !="))
}

/// `k`, `M`, `G`: how many.
fn multiple(cursor: &mut Cursor<'_>) -> f64 {
    let rest = cursor.rest();
    let found =
        [("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9)].into_iter().find(|(letter, _)| rest.starts_with(letter));
    let Some((letter, times)) = found else { return 1.0 };
    cursor.at += letter.len();
    times
}

fn rate(cursor: &mut Cursor<'_>) -> Result<Level, TextError> {
    let open = cursor.at + cursor.rest().find('(').unwrap_or_default();
    cursor.at = open + 1;
    let Some(len) = cursor.rest().find(')') else { return Err(cursor.error(open, "this `(` has no `)`")) };
    let inside = TextPiece { text: cursor.rest(), at: cursor.at }.to(len).trim();
    let event = event(cursor, inside)?;
    cursor.at += len + 1;
    let comparison = comparison(cursor)?;
    let number = cursor.number()? * multiple(cursor);
    if !cursor.take("/") {
        return Err(cursor.expected("`/s`: in what time"));
    }
    cursor.skip_blanks();
    let Some(seconds) = cursor.unit() else { return Err(cursor.expected("a unit of time: s, ms, us, ns, m or h")) };
    Ok(Level { quantity: LevelQuantity::Rate(event), comparison, limit: number / seconds })
}

fn ratio(cursor: &Cursor<'_>, events: TextPiece<'_>, behind: TextPiece<'_>) -> Result<Level, TextError> {
    let both = |at: usize, len: usize| (events.to(at).trim(), events.from(at + len).trim());
    let fits =
        |(one, other): &(TextPiece<'_>, TextPiece<'_>)| check_one(one.text).is_ok() && check_one(other.text).is_ok();
    let (one, other) = match events.text.find(" / ") {
        Some(at) => both(at, 3),
        None => {
            let ways: Vec<_> = events.text.match_indices('/').map(|(at, _)| both(at, 1)).filter(fits).collect();
            match &ways[..] {
                [way] => *way,
                [] => {
                    let problem = "expected rate(EVENT) or EVENT / EVENT in front of the comparison";
                    return Err(cursor.error(events.at, problem));
                }
                _ => {
                    let problem = "several slashes may be the one that divides: write blanks around it";
                    return Err(cursor.error(events.at, problem));
                }
            }
        }
    };
    let quantity = LevelQuantity::Ratio(event(cursor, one)?, event(cursor, other)?);
    let mut rest = cursor.within(behind);
    let comparison = comparison(&mut rest)?;
    let mut limit = rest.number()? * multiple(&mut rest);
    if rest.take("%") {
        limit /= 100.0;
    }
    if !rest.is_at_end() {
        return Err(cursor.error(rest.at, "a ratio is compared with a number, such as 0.2 or 20%"));
    }
    Ok(Level { quantity, comparison, limit })
}

fn pressure(cursor: &Cursor<'_>, piece: TextPiece<'_>) -> Result<Pressure, TextError> {
    let mut rest = cursor.within(piece);
    let name = rest.name();
    let Some((_, resource)) = RESOURCES.into_iter().find(|(known, _)| *known == name.text) else {
        let near = nearest(name.text, RESOURCES.map(|(known, _)| known.to_owned()));
        return Err(cursor.error(name.at, "expected cpu, memory or io behind `psi:`").suggesting(near));
    };
    let mut cgroup = None;
    if let Some(behind) = rest.rest().strip_prefix(':') {
        let len = behind.find(char::is_whitespace).unwrap_or(behind.len());
        let path = behind.get(..len).unwrap_or_default();
        if path.is_empty() {
            return Err(cursor.error(rest.at + 1, "expected the path of a cgroup, such as /system.slice"));
        }
        cgroup = Some(path.to_owned());
        rest.at += 1 + len;
    }
    let tasks = match () {
        () if rest.take_word("some") => StalledTasks::Some,
        () if rest.take_word("full") => StalledTasks::Full,
        () => return Err(rest.expected("`some` (one task waits) or `full` (all of them do)")),
    };
    let stalled_at = rest.at;
    let stalled = rest.duration()?;
    if !rest.take("/") {
        return Err(rest.expected("`/` and the window, such as 150ms/1s"));
    }
    let window_at = rest.at;
    let window = rest.duration()?;
    if !rest.is_at_end() {
        return Err(rest.expected("`and`, `for`, `every`, `once` or the end"));
    }
    let micros = |span: Duration| span.subsec_nanos().is_multiple_of(1000);
    if window < WINDOWS[0] || window > WINDOWS[1] {
        return Err(cursor.error(window_at, "the kernel takes windows from 500ms to 10s"));
    }
    if stalled > window {
        let problem = "the time that tasks wait can't be longer within the window than the window is";
        return Err(cursor.error(stalled_at, problem));
    }
    if !micros(stalled) || !micros(window) {
        return Err(cursor.error(stalled_at, "the kernel takes whole microseconds"));
    }
    Ok(Pressure { resource, cgroup, tasks, stalled, window })
}

fn watch(cursor: &Cursor<'_>, piece: TextPiece<'_>) -> Result<AddressSpec, TextError> {
    let text = unquoted(cursor, piece, "what is to be watched, such as counter:w or 0x7f1234/8:rw")?;
    text.parse().map_err(|error: TextError| {
        let at = piece.text.char_indices().nth(error.column()).map_or(piece.text.len(), |(byte, _)| byte);
        cursor.error(piece.at + at, error.problem)
    })
}

fn exit(cursor: &Cursor<'_>, piece: TextPiece<'_>) -> Result<ExitOf, TextError> {
    if piece.text.bytes().all(|byte| byte.is_ascii_digit()) && !piece.text.is_empty() {
        let pid = piece.text.parse::<i32>().ok().filter(|&pid| pid > 0);
        return pid.map(ExitOf::Process).ok_or_else(|| cursor.error(piece.at, "this is no number of a process"));
    }
    command(cursor, piece).map(ExitOf::Named)
}

fn command(cursor: &Cursor<'_>, piece: TextPiece<'_>) -> Result<String, TextError> {
    let name = unquoted(cursor, piece, "the name of a command")?;
    if name.contains(['"', '/']) || name.chars().any(char::is_control) {
        return Err(cursor.error(piece.at, "the kernel knows commands by the last part of their path"));
    }
    Ok(name)
}

fn signal(cursor: &Cursor<'_>, piece: TextPiece<'_>) -> Result<SignalName, TextError> {
    let name = piece.text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    if let Some(&known) = SIGNALS.iter().find(|&&known| known == name) {
        return Ok(SignalName(known));
    }
    let problem = match name {
        "KILL" | "STOP" => "no process can receive this signal; USR1 and USR2 are free for any use".to_owned(),
        _ => format!("expected the name of a signal: one of {}", SIGNALS.join(", ")),
    };
    Err(cursor.error(piece.at, problem).suggesting(nearest(name, SIGNALS.map(str::to_owned))))
}

/// `line:/…/`: until the next slash that has no backslash before it.
fn pattern(cursor: &mut Cursor<'_>) -> Result<LineFilter, TextError> {
    let begin = cursor.at + "line:/".len();
    cursor.at = begin;
    let mut escaped = false;
    for (at, c) in cursor.rest().char_indices() {
        match c {
            '/' if !escaped => {
                let text = cursor.rest().get(..at).unwrap_or_default();
                if text.is_empty() {
                    return Err(cursor.error(begin, "every line matches an empty expression"));
                }
                if let Err(error) = regex_lite::Regex::new(text) {
                    return Err(cursor.error(begin, format!("this is no regular expression: {error}")));
                }
                cursor.at += at + 1;
                return Ok(LineFilter::Pattern(text.to_owned()));
            }
            _ => escaped = c == '\\' && !escaped,
        }
    }
    Err(cursor.error(begin - 1, "this `/` has no other one at the end of the expression"))
}

pub(super) fn unquoted(cursor: &Cursor<'_>, piece: TextPiece<'_>, what: &str) -> Result<String, TextError> {
    let text = match piece.text.strip_prefix('"') {
        None => piece.text.to_owned(),
        Some(inside) => {
            let mut text = String::new();
            let mut chars = inside.char_indices();
            loop {
                match chars.next() {
                    Some((_, '\\')) => text.extend(chars.next().map(|(_, c)| c)),
                    Some((at, '"')) => {
                        if at + 1 < inside.len() {
                            return Err(cursor.error(piece.at + at + 2, "expected nothing more behind the quote"));
                        }
                        break;
                    }
                    Some((_, c)) => text.push(c),
                    None => return Err(cursor.error(piece.at, "this quote is never closed")),
                }
            }
            text
        }
    };
    if text.is_empty() { Err(cursor.error(piece.at, format!("expected {what}"))) } else { Ok(text) }
}
