//! The book against views that count for themselves.

use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Act {
    Join(Option<usize>),
    Enable(usize, Option<usize>),
    Disable(usize, Option<usize>),
    Reset(usize, usize),
    Leave(usize),
    /// Each event that is wanted counts so much more, in so much time.
    Run(u64),
}

/// A view that is told of everything the master counts.
struct Model {
    key: SubscriberKey,
    first: usize,
    on: Vec<bool>,
    counts: Vec<Count>,
}

const EVENTS: usize = 3;

fn act() -> impl Strategy<Value = Act> {
    let which = prop::option::of(0..EVENTS);
    prop_oneof![
        which.clone().prop_map(Act::Join),
        (any::<usize>(), which.clone()).prop_map(|(view, which)| Act::Enable(view, which)),
        (any::<usize>(), which).prop_map(|(view, which)| Act::Disable(view, which)),
        (any::<usize>(), 0..EVENTS).prop_map(|(view, index)| Act::Reset(view, index)),
        any::<usize>().prop_map(Act::Leave),
        (1..100_u64).prop_map(Act::Run),
    ]
}

fn which(index: Option<usize>) -> Which {
    index.map_or(Which::All, Which::One)
}

impl Model {
    fn counts(&self, index: usize) -> bool {
        self.on[0] && self.on[index]
    }

    fn switch(&mut self, which: Option<usize>, on: bool) {
        match which {
            Some(index) => self.on.get_mut(index).into_iter().for_each(|it| *it = on),
            None => self.on.fill(on),
        }
    }
}

/// What all events of the master have seen: the rate of each is its number and one more.
fn run(share: &Share, master: &mut [Seen], models: &mut [Model], ns: u64) {
    for (event, seen) in master.iter_mut().enumerate() {
        if share.is_wanted(event) {
            let more = Count { value: ns * (event as u64 + 1), enabled: Nanos(ns), running: Nanos(ns / 2) };
            seen.count += more;
            for model in models.iter_mut() {
                if let Some(index) = event.checked_sub(model.first).filter(|&index| index < model.on.len())
                    && model.counts(index)
                {
                    model.counts[index] += more;
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn every_view_counts_as_if_it_were_alone(acts in prop::collection::vec(act(), 1..80)) {
        let mut share = Share::new(EVENTS);
        let mut master = [Seen::default(); EVENTS];
        let mut models: Vec<Model> = Vec::new();
        for act in acts {
            let pick = |view: usize, models: &[Model]| (!models.is_empty()).then(|| view % models.len());
            match act {
                Act::Join(single) => {
                    let (first, events) = single.map_or((0, EVENTS), |first| (first, 1));
                    let key = share.join(Subscriber::new(first, events));
                    models.push(Model { key, first, on: vec![false; events], counts: vec![Count::default(); events] });
                }
                Act::Enable(view, index) => if let Some(view) = pick(view, &models) {
                    share.enable(models[view].key, which(index), &master);
                    models[view].switch(index, true);
                },
                Act::Disable(view, index) => if let Some(view) = pick(view, &models) {
                    share.disable(models[view].key, which(index));
                    share.settle(models[view].key, &master);
                    models[view].switch(index, false);
                },
                Act::Reset(view, index) => if let Some(view) = pick(view, &models) {
                    let model = &mut models[view];
                    if let Some(count) = model.counts.get_mut(index) {
                        share.reset(model.key, index, &master[model.first + index].count);
                        count.value = 0;
                    }
                },
                Act::Leave(view) => if let Some(view) = pick(view, &models) {
                    share.leave(models.remove(view).key);
                },
                Act::Run(ns) => run(&share, &mut master, &mut models, ns),
            }
            prop_assert_eq!(share.views(), models.len());
            for event in 0..EVENTS {
                let index = |model: &Model| event.checked_sub(model.first).filter(|&index| index < model.on.len());
                let counting = |model: &&Model| index(model).is_some_and(|index| model.counts(index));
                let leads = |model: &&Model| event == 0 && model.first > 0 && model.counts(0);
                let wanted = models.iter().any(|model| counting(&model) || leads(&model));
                prop_assert_eq!(share.is_wanted(event), wanted, "event {}", event);
            }
            for model in &models {
                for (index, count) in model.counts.iter().enumerate() {
                    let seen = share.seen(model.key, index, &master[model.first + index]);
                    prop_assert_eq!(seen.map(|seen| seen.count), Some(*count));
                    let stance = match (model.on[index], model.counts(index)) {
                        (false, _) => SubscriberState::Off,
                        (true, false) => SubscriberState::Waits,
                        (true, true) => SubscriberState::Counts,
                    };
                    prop_assert_eq!(share.stance(model.key, index), Some(stance));
                    prop_assert_eq!(share.is_running(model.key, index), model.counts(index));
                }
            }
        }
        for model in models {
            share.leave(model.key);
        }
        prop_assert!(share.is_idle() && share.views() == 0);
        prop_assert!((0..EVENTS).all(|event| share.counting(event) == 0));
    }
}

#[test]
fn what_an_event_that_ended_has_seen_must_be_read_only_where_others_go_on() {
    let mut share = Share::new(1);
    let (one, other) = (share.join(Subscriber::new(0, 1)), share.join(Subscriber::new(0, 1)));
    share.enable(one, Which::All, &[Seen::default()]);
    share.enable(other, Which::All, &[Seen::default()]);
    share.disable(one, Which::All);
    assert!(share.must_read(one));
    share.settle(one, &[Seen::default()]);
    share.disable(other, Which::All);
    assert!(!share.must_read(other));
}

#[test]
fn a_view_that_is_gone_answers_nothing() {
    let mut share = Share::new(2);
    let key = share.join(Subscriber::new(0, 2));
    share.leave(key);
    share.enable(key, Which::All, &[]);
    share.reset(key, 0, &Count::default());
    assert_eq!((share.seen(key, 0, &Seen::default()), share.stance(key, 0), share.place(key)), (None, None, None));
    assert!(share.is_idle());
}
