//! How much what a client counts weighs, where counters run out and the service takes the turns.
//!
//! What it is: the table of the configuration with its names looked up ([`Weights`]), and what it says about somebody who
//! connects ([`Allowance`]).
//! Read first: [`Weights::of`].
//!
//! **Invariant:** pure. The first entry that fits decides, and nothing that a client says changes which one that is.

use crate::config::{ConfigError, WeightEntry, WeightsConfig};
use pmux::serving::{Asker, Pattern};

/// What a client weighs, and what it may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// Without being asked.
    pub weight: u16,
    /// At most, when it asks.
    pub most: u16,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { weight: 1, most: 1 }
    }
}

impl Allowance {
    /// What a client weighs that has asked for this, if for anything.
    #[must_use]
    pub fn of_wish(self, wish: Option<u16>) -> u16 {
        wish.map_or(self.weight, |wish| wish.min(self.most).max(1))
    }
}

/// Who weighs how much.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Weights {
    others: Allowance,
    entries: Vec<Entry>,
}

/// For whom all of it is true.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    user: Option<u32>,
    group: Option<u32>,
    cgroup: Option<Pattern>,
    allowance: Allowance,
}

impl Weights {
    /// Looks up the names of a configuration in the texts of `/etc/passwd` and `/etc/group`.
    ///
    /// # Errors
    /// [`ConfigError`], where there is no such user or group.
    pub fn look_up(config: &WeightsConfig, users: &str, groups: &str) -> Result<Self, ConfigError> {
        let allowance = |weight: u16, most: Option<u16>| Allowance { weight, most: most.unwrap_or(weight) };
        let entry = |entry: &WeightEntry| {
            Ok(Entry {
                user: entry.user.as_ref().map(|name| name.user(users)).transpose()?,
                group: entry.group.as_ref().map(|name| name.group(groups)).transpose()?,
                cgroup: entry.cgroup.as_ref().map(|pattern| pattern.0.clone()),
                allowance: allowance(entry.weight, entry.most),
            })
        };
        let entries = config.of.iter().map(entry).collect::<Result<_, String>>();
        let entries = entries.map_err(|text| ConfigError { file: None, text })?;
        Ok(Self { others: allowance(config.client, config.most), entries })
    }

    /// What somebody weighs.
    #[must_use]
    pub fn of(&self, asker: &Asker) -> Allowance {
        let connected = &asker.connected;
        let fits = |entry: &&Entry| {
            let group = |group: u32| connected.group == group || connected.groups.contains(&group);
            let cgroup = |pattern: &Pattern| asker.cgroup.as_deref().is_some_and(|path| pattern.fits(path));
            entry.user.is_none_or(|user| connected.user == user)
                && entry.group.is_none_or(group)
                && entry.cgroup.as_ref().is_none_or(cgroup)
        };
        self.entries.iter().find(fits).map_or(self.others, |entry| entry.allowance)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::Config;
    use pmux::serving::Connected;

    const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n";
    const GROUPS: &str = "root:x:0:\nsre:x:50:ann\n";

    fn weights(text: &str) -> Result<Weights, ConfigError> {
        Weights::look_up(&Config::parse(text).unwrap().weights, USERS, GROUPS)
    }

    fn asker(user: u32, groups: &[u32], cgroup: &str) -> Asker {
        let connected = Connected { user, group: user, groups: groups.to_vec(), ..Connected::default() };
        Asker { connected, cgroup: Some(cgroup.to_owned()).filter(|path| !path.is_empty()), ..Asker::default() }
    }

    #[test]
    fn the_first_entry_that_fits_decides() {
        let weights = weights(
            r#"
            [weights]
            client = 2
            most = 3
            [[weights.of]]
            user = "ann"
            cgroup = "system.slice/agent.service"
            weight = 9
            [[weights.of]]
            group = "sre"
            weight = 4
            most = 100
            [[weights.of]]
            user = 1000
            weight = 1
            "#,
        )
        .unwrap();
        let of = |user, groups: &[u32], cgroup| {
            let Allowance { weight, most } = weights.of(&asker(user, groups, cgroup));
            (weight, most)
        };
        assert_eq!(of(1000, &[], "/system.slice/agent.service"), (9, 9));
        assert_eq!(of(1000, &[50], "/system.slice/agent.service"), (9, 9), "not the second one");
        assert_eq!(of(1000, &[50], "/user.slice/system.slice/agent.service"), (4, 100), "one's own cgroup is another");
        assert_eq!(of(50, &[], ""), (4, 100), "the group that it acts as");
        assert_eq!(of(1000, &[], ""), (1, 1));
        assert_eq!(of(7, &[], ""), (2, 3));
    }

    #[test]
    fn a_wish_is_bounded() {
        let allowance = Allowance { weight: 2, most: 5 };
        let weights = [None, Some(0), Some(1), Some(5), Some(6)].map(|wish| allowance.of_wish(wish));
        assert_eq!(weights, [2, 1, 1, 5, 5]);
        assert_eq!(Weights::default().of(&asker(0, &[], "")), Allowance::default());
    }

    #[test]
    fn who_is_not_there_is_named() {
        let wrong = |text: &str| weights(text).unwrap_err().to_string();
        assert!(wrong("[[weights.of]]\nuser = \"bob\"\nweight = 2\n").contains("no user `bob` in /etc/passwd"));
        assert!(wrong("[[weights.of]]\ngroup = \"ops\"\nweight = 2\n").contains("no group `ops` in /etc/group"));
    }
}
