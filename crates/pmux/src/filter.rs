//! Which hits of a tracepoint or a probe count.
//!
//! **Invariant:** a filter that the kernel does not take is refused before an event is opened with it.

use crate::error::Error;
use crate::event::Event;
use crate::event::nearest::nearest;
use crate::session::Session;
use pmux_linux::{Errno, filter};

impl Session {
    /// Lets an event of a tracepoint or a probe count and write only those hits of which a filter holds, in the kernel's own language for filters
    /// (`prev_pid == 42 && prev_state != 0`). Where it has a filter already, both must hold. The session keeps one more file open for each
    /// tracepoint that was asked for.
    ///
    /// ```
    /// use pmux::{Event, Session};
    /// # fn main() -> Result<(), pmux::Error> {
    /// let session = Session::new()?;
    /// if let Ok(mut event) = Event::parse("sched:sched_switch") {
    ///     session.filter(&mut event, "prev_pid == 1")?;
    ///     session.filter(&mut event, "prev_state != 0")?;
    ///     assert_eq!(event.filter(), Some("(prev_pid == 1) && (prev_state != 0)"));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Filter`] for what is no filter of this event, and for one that can have none.
    pub fn filter(&self, event: &mut Event, text: &str) -> Result<(), Error> {
        let both = event.filter().map_or_else(|| text.to_owned(), |first| format!("({first}) && ({text})"));
        let attr = filter::with_filter(&event.attr, &both).ok_or(Errno::EINVAL);
        let checked = attr.and_then(|attr| self.inner.filters.check(&attr).map(|()| attr));
        let refused = |errno| Error::Filter { filter: text.to_owned(), errno, help: self.fields(&event.name, text) };
        event.attr = checked.map_err(refused)?;
        Ok(())
    }

    /// What a filter of a tracepoint can name, and what was perhaps meant.
    fn fields(&self, name: &str, text: &str) -> String {
        let tracepoint =
            name.split_once(':').map(|(system, event)| (system, event.split(':').next().unwrap_or_default()));
        let fields = tracepoint.and_then(|(system, event)| self.catalog().tracepoint_fields(system, event).ok());
        let Some(fields) = fields else { return String::new() };
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        let names = words.filter(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_'));
        let unknown = names.filter(|&word| !fields.iter().any(|field| field == word));
        let near: Vec<String> = unknown.flat_map(|word| nearest(word, fields.iter().cloned())).take(3).collect();
        let known = format!("\n  fields of {name}: {}, and of all: comm, cpu, common_pid", fields.join(", "));
        match &near[..] {
            [] => known,
            near => format!("{known}\n  did you mean {}?", near.join(" or ")),
        }
    }
}
