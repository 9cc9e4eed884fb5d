//! `--filter`, which is for the `-e` before it, as in perf.
//!
//! **Invariant:** plain data; nothing here looks at the machine.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

const ID: &str = "filter";
/// The field with the texts of `-e`, in all commands that have `--filter`.
const EVENTS: &str = "events";

/// Filters of tracepoints, each with how many `-e` stand before it.
///
/// In a structure of options it comes before the field `events`: where that has been read, its places are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventFilters(pub(crate) Vec<(usize, String)>);

impl EventFilters {
    /// Checks what clap can't.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.0.iter().find(|(before, text)| *before == 0 || text.trim().is_empty()) {
            Some((0, text)) => Err(format!("--filter '{text}' is for the -e before it, and there is none")),
            Some(_) => Err("--filter '' is empty: write an expression over the fields of the tracepoint".to_owned()),
            None => Ok(()),
        }
    }
}

impl FromArgMatches for EventFilters {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let places = |id| matches.indices_of(id).into_iter().flatten();
        let texts = matches.get_many::<String>(ID).into_iter().flatten();
        let before = |place: usize| places(EVENTS).filter(|event| *event < place).count();
        Ok(Self(places(ID).zip(texts).map(|(place, text)| (before(place), text.clone())).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for EventFilters {
    fn augment_args(command: Command) -> Command {
        let (heading, verb) =
            if command.get_name() == "stat" { ("What to count", "Count") } else { ("What to record", "Record") };
        let help = format!(
            "{verb} only hits of the tracepoints of the -e before it for which FILTER is true, such as 'prev_pid == 42 && \
             prev_state != 0'; several filters must all be true"
        );
        let filter = Arg::new(ID).long(ID).value_name("FILTER").action(ArgAction::Append).allow_hyphen_values(true);
        // Behind -e, which is the next one.
        let place = command.get_opts().count() + command.get_subcommands().count() + 1;
        command.arg(filter.help(help).help_heading(heading).display_order(place))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        filters: EventFilters,
        #[arg(short, long = "event")]
        events: Vec<String>,
        rest: Vec<String>,
    }

    fn typed(words: &str) -> (Vec<String>, Vec<(usize, String)>) {
        let Typed { filters, events, .. } = Typed::parse_from(format!("stat {words}").split(' '));
        (events, filters.0)
    }

    #[test]
    fn a_filter_belongs_to_the_option_before_it() {
        let filter = |before, text: &str| (before, text.to_owned());
        let (events, filters) = typed("-e a,b --filter x -e c --event=d --filter=y true --filter z");
        assert_eq!(events, ["a,b", "c", "d"]);
        assert_eq!(filters, [filter(1, "x"), filter(3, "y"), filter(3, "z")]);
        assert_eq!(typed("--filter x -e a").1, [filter(0, "x")]);
        assert_eq!(typed("-e a --filter x --filter y").1, [filter(1, "x"), filter(1, "y")]);
        assert!(EventFilters(vec![filter(0, "x")]).check().is_err_and(|why| why.contains("there is none")));
        assert!(EventFilters(vec![filter(1, " ")]).check().is_err_and(|why| why.contains("is empty")));
        assert_eq!(EventFilters(vec![filter(1, "x")]).check(), Ok(()));
    }
}
