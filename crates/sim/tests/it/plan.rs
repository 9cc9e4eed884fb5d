//! Plans that can be worked out by hand, and what holds for all.
use pmux_abi::attr::{Attr, AttrFlags, EventType, breakpoint};
use pmux_engine::pmu::{OverflowBy, SlotMask};
use pmux_plan::machine::{Description, DescriptionError, Kind, PmuDescription, profiles};
use pmux_plan::*;
use pmux_sim::machine::{Start, World, take_faults};
use proptest::prelude::*;

fn counters(general: u8) -> Description {
    profiles::around(4, PmuDescription::hardware("cpu", general, 64, OverflowBy::Interrupt))
}

/// A machine on which reference cycles have a counter of their own, and no other.
fn one_home_for_ref_cycles() -> Description {
    let pmu = PmuDescription::hardware("cpu", 4, 64, OverflowBy::Interrupt);
    let pmu = pmu.with_fixed(Kind::REF_CYCLES).with_constraint(Kind::REF_CYCLES, SlotMask(1 << 4));
    profiles::around(1, pmu)
}

fn event(name: &str, attr: Attr) -> EventRequest {
    EventRequest { name: name.to_owned(), attr, source: Source::Machine(None) }
}

/// A name that every machine knows, or `x0`, `x1`, …: hardware events that none has heard of.
fn named(name: &str) -> EventRequest {
    if let Some(number) = name.strip_prefix('x') {
        return event(
            name,
            Attr { kind: EventType::RAW, config: 0x1000 + number.parse::<u64>().unwrap(), ..Attr::default() },
        );
    }
    if let Some(pmu) = name.strip_prefix("unknown:") {
        let attr = Attr { kind: EventType(77), ..Attr::default() };
        return EventRequest { source: Source::Unknown(pmu.to_owned()), ..event(name, attr) };
    }
    let (kind, config) = Kind::by_name(name).unwrap().as_config();
    event(name, Attr { kind, config, ..Attr::default() })
}

fn watch(address: u64, bp_type: u32) -> EventRequest {
    let attr = Attr { kind: EventType::BREAKPOINT, config1: address, config2: 4, bp_type, ..Attr::default() };
    event(&format!("mem:{address:#x}"), attr)
}

fn group(events: Vec<EventRequest>) -> GroupRequest {
    GroupRequest { name: None, events, strength: Strength::Whole }
}

/// `a b {c,d} {e,f}:W g:D h:e`, as in the syntax of events.
fn request(text: &str) -> Request {
    let one = |text: &str| {
        let (names, letters) =
            match text.rsplit_once(':').filter(|(_, letters)| ["W", "D", "e", "De"].contains(letters)) {
                Some((names, letters)) => (names, letters),
                None => (text, ""),
            };
        let mut events: Vec<_> = names.trim_matches(['{', '}']).split(',').map(named).collect();
        let flag = |letter: char, flag| if letters.contains(letter) { flag } else { AttrFlags::empty() };
        events[0].attr.flags |= flag('D', AttrFlags::PINNED) | flag('e', AttrFlags::EXCLUSIVE);
        let strength = if letters.contains('W') { Strength::MayBreak } else { Strength::Whole };
        GroupRequest { strength, ..group(events) }
    };
    Request { groups: text.split_whitespace().map(one).collect(), scope: Scope::Task }
}

#[track_caller]
fn planned(machine: &Description, request: &Request) -> Plan {
    let plan = plan(machine, request).unwrap();
    assert_eq!(take_faults(), []);
    plan
}

fn fates(machine: &Description, text: &str) -> Vec<EventFit> {
    planned(machine, &request(text)).events.into_iter().map(|event| event.fit).collect()
}

fn turns(on: usize, of: usize) -> EventFit {
    EventFit::InTurns(Share { on, of })
}

/// The chart of a plan: a line for each event.
fn chart(machine: &Description, text: &str, turns: usize) -> Vec<String> {
    let plan = planned(machine, &request(text));
    let line = |event| (0..turns).map(|turn| if plan.is_on(event, turn).unwrap() { '#' } else { '.' }).collect();
    (0..plan.events.len()).map(line).collect()
}

#[test]
fn twelve_different_events_share_six_counters_evenly() {
    let names: Vec<_> = (0..12).map(|number| format!("x{number}")).collect();
    for scope in [Scope::Task, Scope::EveryCpu] {
        let plan = planned(&counters(6), &Request { scope, ..request(&names.join(" ")) });
        assert!(plan.events.iter().all(|event| event.fit == turns(6, 12)), "{plan:?}");
        let [pmu] = &plan.pmus[..] else { panic!("{:?}", plan.pmus) };
        assert_eq!((pmu.events, pmu.questions, pmu.fits_if_shared), (12, 12, false));
        assert_eq!((pmu.lead_in, pmu.period, plan.period()), (0, 12, 12));
        assert_eq!(plan.kernel_events(), if scope == Scope::Task { 12 } else { 48 });
    }
}

#[test]
fn one_turn_after_the_other() {
    // Turn by turn the next one is tried first: 0 1, then 1 2, 2 3, 3 0, and again.
    let expected = ["#..##..#", "##..##..", ".##..##.", "..##..##"];
    assert_eq!(chart(&counters(2), "x0 x1 x2 x3", 8), expected);
}

#[test]
fn equal_events_would_need_one_counter() {
    let plan = planned(&counters(2), &request("cycles cycles cycles cycles instructions"));
    assert!(plan.events.iter().all(|event| event.fit == turns(2, 5)));
    let pmu = &plan.pmus[0];
    assert_eq!((pmu.events, pmu.questions, pmu.fits_if_shared), (5, 2, true));
    assert_eq!(plan.events.iter().map(|event| event.question).collect::<Vec<_>>(), [0, 0, 0, 0, 1]);
    // The whole attribute counts: who asks for a pinned one asks for something else.
    assert_eq!(planned(&counters(2), &request("cycles cycles:D")).pmus[0].questions, 2);
}

#[test]
fn a_group_that_finds_room_is_always_on() {
    assert_eq!(fates(&counters(2), "cycles instructions page-faults"), vec![EventFit::Always; 3]);
    let plan = planned(&counters(2), &request("page-faults context-switches"));
    assert_eq!((plan.pmus.len(), &plan.pmus[0].capacity, plan.period()), (1, &Capacity::Plenty, 1));
}

#[test]
fn fixed_counters_are_used() {
    let skylake = profiles::intel_skylake(1);
    assert_eq!(fates(&skylake, "x0 x1 x2 x3 cycles instructions ref-cycles"), vec![EventFit::Always; 7]);
    // Five events for four general counters; the fixed ones are not for them.
    assert_eq!(fates(&skylake, "x0 x1 x2 x3 x4"), vec![turns(4, 5); 5]);
    assert_eq!(fates(&skylake, "{x0,x1,x2,x3,cycles}"), vec![EventFit::Always; 5]);
    let too_few = EventFit::Never(NeverReason::TooFew { events: vec![0, 1, 2, 3, 4], counters: 4 });
    assert_eq!(fates(&skylake, "{x0,x1,x2,x3,x4,cycles}"), vec![too_few; 6]);
}

#[test]
fn two_that_need_the_same_counter_never_fit_in_one_group() {
    let machine = one_home_for_ref_cycles();
    let too_few = EventFit::Never(NeverReason::TooFew { events: vec![1, 2], counters: 1 });
    assert_eq!(fates(&machine, "{cycles,ref-cycles,ref-cycles}"), vec![too_few; 3]);
    // One by one they take turns, those of cycles too: the queue is r1 r2 c, and of the turns of c each has every other one.
    assert_eq!(fates(&machine, "ref-cycles ref-cycles cycles"), [turns(3, 6), turns(3, 6), EventFit::Always]);
}

#[test]
fn a_group_that_is_too_large_may_be_broken_up() {
    let why = NeverReason::TooFew { events: vec![0, 1, 2], counters: 2 };
    assert_eq!(fates(&counters(2), "{x0,x1,x2}"), vec![EventFit::Never(why.clone()); 3]);
    let plan = planned(&counters(2), &request("{x0,x1,x2}:W"));
    assert_eq!(plan.groups[0].broken, Some(why));
    assert!(plan.events.iter().all(|event| event.fit == turns(2, 3)));
    assert_eq!(planned(&counters(3), &request("{x0,x1,x2}:W")).groups[0].broken, None);
    let none = with_general_counters(&profiles::arm_neoverse(1), 0).unwrap();
    assert_eq!(
        fates(&none, "instructions cycles"),
        [EventFit::Never(NeverReason::NotCounted { event: 0 }), EventFit::Always]
    );
}

#[test]
fn groups_go_on_whole() {
    // Three counters. Tried in the order A b C: A and b; b C A: b and C; C A b: C and b.
    assert_eq!(chart(&counters(3), "{x0,x1} x2 {x3,x4}", 3), ["#..", "#..", "###", ".##", ".##"]);
    let expected = [turns(1, 3), turns(1, 3), EventFit::Always, turns(2, 3), turns(2, 3)];
    assert_eq!(fates(&counters(3), "{x0,x1} x2 {x3,x4}"), expected);
}

#[test]
fn pinned_groups_come_first() {
    let in_the_way = |groups: &[usize]| EventFit::Never(NeverReason::PinnedFirst { groups: groups.to_vec() });
    assert_eq!(fates(&counters(2), "x0 x1:D x2:D"), [in_the_way(&[1, 2]), EventFit::Always, EventFit::Always]);
    assert_eq!(
        fates(&counters(2), "x0:D x1:D x2:D"),
        [EventFit::Always, EventFit::Always, in_the_way(&[0, 1])],
        "a third pinned one is in error"
    );
    // One counter is left: for the single ones by turns, for the pair never.
    let expected = [EventFit::Always, in_the_way(&[0]), in_the_way(&[0]), turns(2, 3), turns(1, 3)];
    assert_eq!(fates(&counters(2), "x0:D {x1,x2} x3 x4"), expected);
}

#[test]
fn an_exclusive_group_is_alone() {
    assert_eq!(chart(&counters(4), "x0:e x1 x2", 3), ["#..", ".##", ".##"]);
    let alone = EventFit::Never(NeverReason::PinnedFirst { groups: vec![0] });
    assert_eq!(fates(&counters(4), "x0:De x1 page-faults"), [EventFit::Always, alone.clone(), EventFit::Always]);
    assert_eq!(fates(&counters(4), "x0:D x1:e"), [EventFit::Always, alone]);
}

#[test]
fn software_events_keep_the_pace_of_their_group() {
    let expected = [turns(1, 2), turns(1, 2), turns(1, 2), EventFit::Always];
    assert_eq!(fates(&counters(1), "{page-faults,x0} x1 page-faults"), expected);
    assert_eq!(chart(&counters(1), "{page-faults,x0} x1", 4), ["#.#.", "#.#.", ".#.#"]);
}

#[test]
fn groups_of_two_pmus_never_fit() {
    let mixed = EventFit::Never(NeverReason::MixedPmus { events: [1, 2] });
    assert_eq!(fates(&counters(4), "{page-faults,cycles,unknown:imc}"), vec![mixed; 3]);
    let broken = planned(&counters(4), &request("{cycles,unknown:imc}:W"));
    assert_eq!(broken.events[0].fit, EventFit::Always);
    assert_eq!(broken.events[1].fit, EventFit::Unknown);
}

#[test]
fn nothing_is_said_of_unknown_pmus() {
    let plan = planned(&counters(1), &request("unknown:imc unknown:imc {page-faults,unknown:other} cycles"));
    let fates: Vec<_> = plan.events.iter().map(|event| event.fit.clone()).collect();
    assert_eq!(fates, [EventFit::Unknown, EventFit::Unknown, EventFit::Unknown, EventFit::Unknown, EventFit::Always]);
    assert_eq!(plan.is_on(0, 0), None);
    let rooms: Vec<_> = plan.pmus.iter().map(|pmu| (pmu.name.as_str(), pmu.capacity.total())).collect();
    assert_eq!(rooms, [("cpu", Some(1)), ("software", None), ("imc", None), ("other", None)]);
}

#[test]
fn debug_registers_are_never_shared_in_time() {
    let data = |number: u64| group(vec![watch(0x1000 * (number + 1), breakpoint::RW)]);
    let code = |number: u64| group(vec![watch(0x1000 * (number + 1), breakpoint::X)]);
    let ask = |machine: &Description, groups: Vec<GroupRequest>| {
        let plan = planned(machine, &Request { groups, scope: Scope::EveryCpu });
        (plan.kernel_events(), plan.events.into_iter().map(|event| event.fit).collect::<Vec<_>>())
    };
    let taken = EventFit::Never(NeverReason::RegistersTaken { by: vec![0, 1, 2, 3] });
    let (opened, fates) = ask(&counters(2), (0..5).map(data).collect());
    assert_eq!(fates[..4], vec![EventFit::Always; 4]);
    assert_eq!((fates[4].clone(), opened), (taken, 16));
    let (_, fates) = ask(&counters(2), vec![group((0..5).map(|n| watch(n * 8, breakpoint::W)).collect())]);
    assert_eq!(fates, vec![EventFit::Never(NeverReason::TooFew { events: vec![0, 1, 2, 3, 4], counters: 4 }); 5]);
    // Four for data and six for code.
    let arm = profiles::arm_neoverse(1);
    let (_, fates) = ask(&arm, (0..6).map(code).chain((0..4).map(data)).collect());
    assert_eq!(fates, vec![EventFit::Always; 10]);
    let (_, fates) = ask(&arm, (0..2).map(code).chain((0..5).map(data)).collect());
    assert_eq!(
        fates[6],
        EventFit::Never(NeverReason::RegistersTaken { by: vec![2, 3, 4, 5] }),
        "those for code are not in the way"
    );
    // They go with hardware events, for they are no counters.
    let (_, fates) =
        ask(&counters(1), vec![group(vec![named("cycles"), watch(8, breakpoint::W)]), group(vec![named("x1")])]);
    assert_eq!(fates, vec![turns(1, 2); 3]);
}

#[test]
fn what_a_machine_can_not_count_is_said() {
    let mut none = counters(2);
    none.pmus.remove(0);
    let expected = [
        EventFit::Never(NeverReason::NoPmu { event: 0 }),
        EventFit::Always,
        EventFit::Never(NeverReason::NoPmu { event: 2 }),
    ];
    assert_eq!(fates(&none, "cycles page-faults x9"), expected);
    let plan = planned(&none, &request("cycles"));
    assert_eq!((plan.events[0].pmu, plan.kernel_events(), plan.has_never()), (None, 0, true));
    let mut machine = counters(2);
    machine.pmus[0] = machine.pmus[0].clone().with_constraint(Kind::REF_CYCLES, SlotMask(0));
    assert_eq!(fates(&machine, "ref-cycles"), [EventFit::Never(NeverReason::NotCounted { event: 0 })]);
    machine.cpus = 0;
    assert_eq!(pmux_plan::plan(&machine, &request("cycles")), Err(PlanError::Machine(DescriptionError::Cpus(0))));
    let empty = Request { groups: vec![group(Vec::new())], scope: Scope::Task };
    assert_eq!(pmux_plan::plan(&counters(1), &empty), Err(PlanError::EmptyGroup(0)));
}

#[test]
fn a_known_kind_goes_where_the_machine_says_whatever_its_encoding() {
    let raw = EventRequest { source: Source::Machine(Some(Kind::CYCLES)), ..named("x7") };
    let machine = with_general_counters(&profiles::arm_neoverse(1), 0).unwrap();
    let plan = planned(&machine, &Request { groups: vec![group(vec![raw])], scope: Scope::Task });
    assert_eq!(plan.events[0].fit, EventFit::Always);
}

#[test]
fn many_events_are_planned_too() {
    let names: Vec<_> = (0..200).map(|number| format!("x{number}")).collect();
    let plan = planned(&counters(6), &request(&names.join(" ")));
    assert!(plan.events.iter().all(|event| event.fit == turns(6, 200)));
}

/// What the simulated machine counts in so many ticks, with these groups on its only CPU: for each event, how long it was
/// enabled and how long it ran.
fn simulated(machine: &Description, request: &Request, ticks: u64) -> Vec<(u64, u64)> {
    let mut world = World::new(machine.clone(), 1).unwrap();
    let target = pmux_engine::Target::cpu(pmux_engine::CpuId(0));
    let mut events = Vec::new();
    for group in &request.groups {
        let spec: Vec<_> = group.events.iter().map(|event| (pmux_engine::PmuId(0), event.attr)).collect();
        events.extend(world.open(&spec, target, Start::Enabled).unwrap());
    }
    world.idle(pmux_engine::Nanos(machine.tick.0 * ticks));
    let counts = events.into_iter().map(|event| world.read(event).unwrap());
    counts.map(|count| (count.enabled.0, count.running.0)).collect()
}

#[test]
fn the_simulated_machine_takes_the_same_turns() {
    let kinds: Vec<&str> = Kind::hardware().map(Kind::name).collect();
    for (counters, groups) in [(2, vec![1; 5]), (3, vec![2, 1, 2]), (4, vec![3, 2, 2, 1, 1]), (6, vec![1; 12])] {
        let machine = Description { cpus: 1, ..self::counters(counters) };
        let mut names = kinds.iter();
        let texts: Vec<String> = groups
            .iter()
            .map(|&size| format!("{{{}}}", names.by_ref().take(size).copied().collect::<Vec<_>>().join(",")))
            .collect();
        let request = Request { scope: Scope::EveryCpu, ..request(&texts.join(" ")) };
        let plan = planned(&machine, &request);
        let periods = 3 * plan.period() as u64;
        for (event, (enabled, running)) in plan.events.iter().zip(simulated(&machine, &request, periods)) {
            let share = event.fit.share().unwrap();
            assert_eq!(enabled, machine.tick.0 * periods);
            assert_eq!(running * share.of as u64, enabled * share.on as u64, "{} in {texts:?}", event.name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn single_events_have_equal_shares(events in 1_usize..40, capacity in 1_u8..20, every_cpu: bool) {
        let names: Vec<_> = (0..events).map(|number| format!("x{number}")).collect();
        let scope = if every_cpu { Scope::EveryCpu } else { Scope::Task };
        let plan = planned(&counters(capacity), &Request { scope, ..request(&names.join(" ")) });
        let capacity = usize::from(capacity);
        let expected = if events <= capacity { EventFit::Always } else { turns(capacity, events) };
        for event in &plan.events {
            prop_assert_eq!(&event.fit, &expected);
        }
        for turn in 0..2 * events {
            let on = (0..events).filter(|&event| plan.is_on(event, turn) == Some(true)).count();
            prop_assert_eq!(on, capacity.min(events));
        }
    }

    #[test]
    fn no_turn_has_more_on_than_fits_and_groups_are_whole(
        groups in prop::collection::vec((1_usize..4, 0_usize..6, any::<bool>()), 1..8),
        capacity in 1_u8..5,
    ) {
        let mut number = 0;
        let texts: Vec<String> = groups.iter().map(|&(size, letters, software)| {
            let mut names: Vec<String> = (number..number + size).map(|number| format!("x{number}")).collect();
            number += size;
            names.extend(software.then(|| "page-faults".to_owned()));
            let letters = ["", "", "", ":D", ":e", ":W"][letters];
            format!("{{{}}}{letters}", names.join(","))
        }).collect();
        let plan = planned(&counters(capacity), &request(&texts.join(" ")));
        let on = |event, turn| plan.is_on(event, turn) == Some(true);
        for turn in 0..3 * plan.period() {
            let needs_counter = |event: &usize| plan.events[*event].name.starts_with('x');
            let used = (0..plan.events.len()).filter(needs_counter).filter(|&event| on(event, turn)).count();
            prop_assert!(used <= usize::from(capacity));
            for group in plan.groups.iter().filter(|group| group.broken.is_none()) {
                let together = group.events.clone().filter(|&event| on(event, turn)).count();
                prop_assert!(together == 0 || together == group.events.len());
            }
        }
        for (index, event) in plan.events.iter().enumerate() {
            let Some(share) = event.fit.share() else { continue };
            let lead_in: usize = plan.pmus.iter().map(|pmu| pmu.lead_in).max().unwrap_or(0);
            let seen = (0..plan.period()).filter(|turn| on(index, lead_in + turn)).count();
            prop_assert_eq!(seen * share.of, share.on * plan.period());
        }
    }
}
