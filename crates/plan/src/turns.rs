//! Watching the engine take turns.
//!
//! What it is: opens the groups, enables them in their order, and has it rotate until the turns repeat.
//!
//! How it is known that they repeat: who is on in a turn follows from whose turn it is, and for one PMU that is one of few
//! states (a place in the queue). A machine of `n` states that says the same `n` things in a row at two moments says the same
//! for ever after both.
//!
//! **Invariant:** it watches; the only things that it does to the engine are open, enable and rotate.

use crate::host::{NO_PMU, PlanHost, numbered};
use crate::machine::Description;
use crate::needs::{Need, PlannedPmu, Pmus};
use crate::reason::{NeverReason, Refusal, fits};
use crate::{
    Capacity, Demand, EventFit, EventPlan, EventRequest, GroupPlan, Plan, PlanError, PmuPlan, Request, Scope, Share,
    Strength, least_common_multiple,
};
use pmux_abi::attr::AttrFlags;
use pmux_engine::cpu_mask::CpuMask;
use pmux_engine::pmu::SlotMask;
use pmux_engine::{CpuId, Engine, EventId, EventState, GroupSpec, Opened, PmuId, Target, TaskId};

/// The task whose events they are.
const TASK: TaskId = TaskId(1);
/// The CPU whose events they are: one stands for all, for all go in step.
const CPU: CpuId = CpuId(0);

struct PlanRun<'a> {
    request: &'a Request,
    events: Vec<&'a EventRequest>,
    pmus: Vec<PlannedPmu>,
    needs: Vec<Option<Need>>,
    engine: Engine<PlanHost>,
    groups: Vec<GroupPlan>,
    /// By event: its id, or why it has none.
    ids: Vec<Result<EventId, NeverReason>>,
    /// By event: the PMU whose turns it takes. In a group that is the one whose counters are few.
    pace: Vec<Option<usize>>,
}

/// For each turn, who is on.
type Rows = Vec<Vec<bool>>;

/// After how many turns a repetition begins, and after how many more it does so again.
#[derive(Clone, Copy)]
struct Rotation {
    lead_in: usize,
    period: usize,
}

pub(super) fn watch(machine: &Description, request: &Request) -> Result<Plan, PlanError> {
    let mut pmus = Pmus::new(machine);
    let needs = pmus.needs(request);
    let engine = Engine::new(PlanHost::new(&pmus.all, &needs), [CPU].into_iter().collect::<CpuMask>());
    let events = request.groups.iter().flat_map(|group| &group.events).collect();
    let (groups, ids, pace) = Default::default();
    let mut watched = PlanRun { request, events, pmus: pmus.all, needs, engine, groups, ids, pace };
    watched.start();
    let rows = watched.rotate();
    watched.report(machine.cpus, &rows)
}

impl PlanRun<'_> {
    fn start(&mut self) {
        let mut opened = Vec::new();
        for group in &self.request.groups {
            let first = self.ids.len();
            let members: Vec<usize> = (first..first + group.events.len()).collect();
            let mut broken = None;
            match self.open(&members) {
                Err(why) if group.strength == Strength::MayBreak && members.len() > 1 && why.is_about_the_group() => {
                    broken = Some(why);
                    for event in members {
                        let result = self.open(&[event]);
                        opened.extend(self.enter(&[event], result));
                    }
                }
                result => opened.extend(self.enter(&members, result)),
            }
            let asked = group.events.first().map_or(AttrFlags::empty(), |leader| leader.attr.flags);
            let demand =
                Demand { pinned: asked.contains(AttrFlags::PINNED), exclusive: asked.contains(AttrFlags::EXCLUSIVE) };
            self.groups.push(GroupPlan { name: group.name.clone(), events: first..self.ids.len(), demand, broken });
        }
        // In their order, when all are open.
        for group in opened {
            // A pinned group that finds no room is in error: its state says so.
            let _ = self.engine.enable_group(group.group);
        }
    }

    fn open(&self, members: &[usize]) -> Result<Opened, NeverReason> {
        let event = |&event: &usize| {
            let pmu = self.needs[event].map_or(NO_PMU, |need| PmuId(need.pmu as u16));
            (pmu, numbered(event, self.events[event].attr.flags))
        };
        let target = match self.request.scope {
            Scope::Task => Target::task(TASK),
            Scope::EveryCpu => Target::cpu(CPU),
        };
        self.engine.open(&GroupSpec { events: members.iter().map(event).collect() }, target).map_err(|error| {
            let open: Vec<_> = (0..self.ids.len()).filter(|&event| self.ids[event].is_ok()).collect();
            Refusal { pmus: &self.pmus, needs: &self.needs, members, open: &open }.explain(error)
        })
    }

    /// Notes what became of the next events.
    fn enter(&mut self, members: &[usize], result: Result<Opened, NeverReason>) -> Option<Opened> {
        let mut pmus = members.iter().filter_map(|&event| self.needs[event]).map(|need| need.pmu);
        let scarce = pmus.find(|&pmu| matches!(self.pmus[pmu].capacity, Capacity::Counters { .. } | Capacity::Unknown));
        let pace = members.iter().map(|&event| scarce.or_else(|| Some(self.needs[event]?.pmu)));
        self.pace.extend(pace);
        match result {
            Ok(opened) => {
                self.ids.extend(opened.events.iter().copied().map(Ok));
                Some(opened)
            }
            Err(why) => {
                self.ids.extend(members.iter().map(|_| Err(why.clone())));
                None
            }
        }
    }

    fn state(&self, event: usize) -> Option<EventState> {
        let id = self.ids[event].as_ref().ok()?;
        self.engine.state(*id).ok()
    }

    fn is_on(&self, event: usize) -> bool {
        self.state(event) == Some(EventState::Active)
    }

    fn row(&self) -> Vec<bool> {
        (0..self.ids.len()).map(|event| self.is_on(event)).collect()
    }

    /// The events that take the turns of a PMU.
    fn paced_by(&self, pmu: usize) -> impl Iterator<Item = usize> {
        (0..self.pace.len()).filter(move |&event| self.pace[event] == Some(pmu))
    }

    /// In how many states the queue of a PMU can be: which event's turn it is, or no event's yet; and which is first of those that want
    /// the same counters.
    fn states(&self, pmu: usize) -> usize {
        let mut alike: Vec<(SlotMask, usize)> = Vec::new();
        for group in self.groups.iter().filter(|group| !group.demand.pinned) {
            let size = if group.broken.is_some() { 1 } else { group.events.len().max(1) };
            for first in group.events.clone().step_by(size) {
                let needs = (first..first + size).filter_map(|event| self.needs[event]).filter(|need| need.pmu == pmu);
                let Some(slots) = needs.map(|need| need.allowed).min_by_key(|mask| (mask.len(), mask.0)) else {
                    continue;
                };
                match alike.iter_mut().find(|(other, _)| *other == slots) {
                    _ if self.ids[first].is_err() => {}
                    Some((_, count)) => *count += 1,
                    None => alike.push((slots, 1)),
                }
            }
        }
        let most = alike.iter().map(|(slots, _)| slots.len()).max().unwrap_or(0);
        let few = alike.iter().filter(|(slots, count)| slots.len() < most && *count > slots.len() as usize);
        let rounds = few.fold(1, |rounds, &(_, count)| least_common_multiple(rounds, count).min(MOST_ROUNDS));
        (self.paced_by(pmu).count() + 1) * rounds
    }

    fn rotate(&self) -> Rows {
        let mut rows = vec![self.row()];
        let waits = |event: usize| self.state(event) == Some(EventState::Inactive);
        let waiting = (0..self.pmus.len()).filter(|&pmu| self.paced_by(pmu).any(waits));
        let most = waiting.map(|pmu| self.states(pmu)).max().unwrap_or(0);
        for _ in 0..3 * most {
            self.engine.rotate();
            rows.push(self.row());
        }
        rows
    }

    fn rotation(&self, pmu: usize, rows: &Rows) -> Result<Rotation, PlanError> {
        let events: Vec<_> = self.paced_by(pmu).collect();
        let own: Rows = rows.iter().map(|row| events.iter().map(|&event| row[event]).collect()).collect();
        repetition(&own, self.states(pmu)).ok_or_else(|| PlanError::Endless(self.pmus[pmu].name.clone()))
    }

    fn report(self, cpus: u32, rows: &Rows) -> Result<Plan, PlanError> {
        let rotations = (0..self.pmus.len()).map(|pmu| self.rotation(pmu, rows)).collect::<Result<Vec<_>, _>>()?;
        // Only what is asked for is told.
        let asks = |pmu: usize| self.needs.iter().flatten().any(|need| need.pmu == pmu);
        let asked: Vec<usize> = (0..self.pmus.len()).filter(|&pmu| asks(pmu)).collect();
        let place = |pmu: usize| asked.iter().position(|&other| other == pmu);
        let mut questions = Vec::new();
        let mut events = Vec::new();
        let numbers = self.groups.iter().enumerate();
        for (group, event) in numbers.flat_map(|(group, it)| it.events.clone().map(move |event| (group, event))) {
            let pmu = self.needs[event].map(|need| need.pmu);
            let question = (pmu, self.events[event].attr);
            let known = questions.iter().position(|other| *other == question);
            let question = known.unwrap_or_else(|| {
                questions.push(question);
                questions.len() - 1
            });
            let turns = self.pace[event].map_or(Rotation { lead_in: 0, period: 1 }, |pmu| rotations[pmu]);
            let on: Vec<bool> = rows.iter().take(turns.lead_in + turns.period).map(|row| row[event]).collect();
            events.push(EventPlan {
                name: self.events[event].name.clone(),
                group,
                pmu: pmu.and_then(place),
                question,
                fit: self.fit(event, on.get(turns.lead_in..).unwrap_or_default()),
                pace: self.pace[event].and_then(place),
                on,
            });
        }
        let pmus = asked.iter().map(|&pmu| self.pmu(pmu, rotations[pmu], &events)).collect();
        Ok(Plan { scope: self.request.scope, cpus, pmus, groups: self.groups, events })
    }

    fn pmu(&self, pmu: usize, Rotation { lead_in, period }: Rotation, events: &[EventPlan]) -> PmuPlan {
        let PlannedPmu { name, capacity } = &self.pmus[pmu];
        let asks = |event: &usize| self.needs[*event].is_some_and(|need| need.pmu == pmu);
        let own: Vec<usize> = (0..events.len()).filter(asks).collect();
        let mut questions: Vec<(usize, usize)> = own.iter().map(|&event| (events[event].question, event)).collect();
        questions.sort_unstable();
        questions.dedup_by_key(|(question, _)| *question);
        let needs = questions.iter().filter_map(|&(_, event)| self.needs[event]);
        let wanted: Vec<_> = needs.map(|need| need.allowed).filter(|allowed| !allowed.is_empty()).collect();
        PmuPlan {
            name: name.clone(),
            capacity: capacity.clone(),
            events: own.len(),
            questions: questions.len(),
            fits_if_shared: capacity.total().is_none_or(|total| fits(&wanted, total.min(64) as u8)),
            lead_in,
            period,
        }
    }

    /// What becomes of an event that is on like this in each period.
    fn fit(&self, event: usize, on: &[bool]) -> EventFit {
        if let Err(why) = &self.ids[event] {
            return EventFit::Never(why.clone());
        }
        if self.pace[event].is_some_and(|pmu| self.pmus[pmu].capacity == Capacity::Unknown) {
            return EventFit::Unknown;
        }
        let share = Share { on: on.iter().filter(|&&on| on).count(), of: on.len() };
        match share.on {
            0 => EventFit::Never(NeverReason::PinnedFirst { groups: self.pinned_beside(event) }),
            all if all == share.of => EventFit::Always,
            _ => EventFit::InTurns(share),
        }
    }

    /// The pinned groups that are on the PMU of an event.
    fn pinned_beside(&self, event: usize) -> Vec<usize> {
        let beside = self.groups.iter().enumerate().filter(|(_, group)| {
            let leader = group.events.start;
            group.demand.pinned && self.pace[leader] == self.pace[event] && self.is_on(leader)
        });
        beside.map(|(index, _)| index).collect()
    }
}

/// No user looks at plans that are longer.
const MOST_ROUNDS: usize = 5000;

/// After how many rows a repetition begins, and how long it is, in the output of a machine of at most so many states.
/// There must be three times as many rows; a single one repeats itself.
fn repetition(rows: &[Vec<bool>], states: usize) -> Option<Rotation> {
    if rows.len() == 1 {
        return Some(Rotation { lead_in: 0, period: 1 });
    }
    // By then it has come to where it goes round.
    let settled = states.min(rows.len());
    let repeats = |from: usize, period: usize| (from..rows.len() - period).all(|at| rows[at] == rows[at + period]);
    let period = (1..=states).find(|&period| period < rows.len() - settled && repeats(settled, period))?;
    let lead_in = (0..=settled).find(|&from| repeats(from, period))?;
    Some(Rotation { lead_in, period })
}

#[cfg(test)]
mod tests {
    /// As numbers: lead-in and period.
    fn repetition(rows: &[Vec<bool>], states: usize) -> Option<(usize, usize)> {
        super::repetition(rows, states).map(|found| (found.lead_in, found.period))
    }

    fn rows(text: &str) -> Vec<Vec<bool>> {
        text.bytes().map(|byte| (0..8).map(|bit| byte & (1 << bit) != 0).collect()).collect()
    }

    #[test]
    fn repetitions_are_found() {
        assert_eq!(repetition(&rows("a"), 4), Some((0, 1)));
        assert_eq!(repetition(&rows("aaaaaaa"), 2), Some((0, 1)));
        assert_eq!(repetition(&rows("abcabcabcabca"), 4), Some((0, 3)));
        assert_eq!(repetition(&rows("xyababababab"), 4), Some((2, 2)));
        // Twice the same is no repetition yet.
        assert_eq!(repetition(&rows("aabaabaabaabaab"), 5), Some((0, 3)));
        assert_eq!(repetition(&rows("abcdefghijklmno"), 5), None);
    }
}
