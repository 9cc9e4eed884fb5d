//! Scenarios at random: everything that the grammar has, whether or not it makes sense.

use pmux_engine::event_set::Rounds;
use pmux_engine::{CpuId, EventState, Nanos};
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Select, select, subsequence};
use std::fmt::Debug;

use super::super::ast::*;
use super::super::vocabulary::Word;
use crate::machine::profiles::NAMES;

/// Whatever one word says.
fn said<T: Word + Debug>() -> Select<T> {
    select(T::WORDS.iter().map(|(_, value)| *value).collect::<Vec<_>>())
}

fn name() -> impl Strategy<Value = Name> {
    prop_oneof![
        9 => select(vec!["A", "B", "C", "D", "e1", "e2", "e3", "s"]).prop_map(Name::new),
        1 => "[a-zA-Z_][a-zA-Z0-9_]{0,8}x".prop_map(Name::new),
    ]
}

fn task() -> impl Strategy<Value = Name> {
    select(vec!["A", "B", "C", "D"]).prop_map(Name::new)
}

fn event_name() -> impl Strategy<Value = Name> {
    prop_oneof![9 => select(vec!["e1", "e2", "e3", "s"]).prop_map(Name::new), 1 => name()]
}

fn cpu() -> impl Strategy<Value = CpuId> {
    prop_oneof![9 => 0..4_u32, 1 => 0..MAX_CPUS].prop_map(CpuId)
}

fn cpu_list() -> impl Strategy<Value = CpuList> {
    vec(cpu(), 1..5).prop_filter_map("an empty list", CpuList::new)
}

fn span() -> impl Strategy<Value = Nanos> {
    prop_oneof![8 => (1..50_u64).prop_map(|ms| ms * 1_000_000), 1 => any::<u64>()].prop_map(Nanos)
}

fn decimal() -> impl Strategy<Value = Decimal> {
    let small = (0..1000_u64, 0..=3_u8);
    prop_oneof![8 => small, 1 => (any::<u64>(), 0..=9_u8)]
        .prop_filter_map("too many digits", |(m, p)| Decimal::new(m, p))
}

fn words() -> impl Strategy<Value = String> {
    select(vec!["cycles", "instructions", "page-faults", "branch-misses", "L1-dcache-load-misses", "r1a8", "nonsense"])
        .prop_map(String::from)
}

fn event() -> impl Strategy<Value = Event> {
    let more = select(vec![
        "cpu-clock",
        "cycles:u",
        "sched:sched_switch",
        "cpu/event=0x1,umask=2/k",
        "uncore/x/",
        "task-clock",
    ]);
    prop_oneof![
        words().prop_map(Event::Named),
        more.prop_map(|text| Event::Named(text.into())),
        breakpoint().prop_map(Event::Breakpoint),
    ]
}

fn breakpoint() -> impl Strategy<Value = Breakpoint> {
    (any::<u64>(), any::<u32>(), said()).prop_map(|(address, len_bytes, watch)| Breakpoint {
        address,
        len_bytes,
        watch,
    })
}

fn samples() -> impl Strategy<Value = Samples> {
    let mode = select(vec![RingMode::Forward, RingMode::Overwrite]);
    let ownership = select(vec![RingOwnership::Own, RingOwnership::Shared]);
    (1..=u64::MAX, 1..=u32::MAX, mode, ownership).prop_map(|(period, ring_bytes, mode, ownership)| Samples {
        period,
        ring_bytes,
        mode,
        ownership,
    })
}

fn open() -> impl Strategy<Value = Open> {
    let target = prop_oneof![
        6 => task().prop_map(Target::Task),
        1 => (task(), cpu()).prop_map(|(task, cpu)| Target::TaskOnCpu(task, cpu)),
        1 => cpu_list().prop_map(Target::Cpus),
        1 => option::of(cpu_list()).prop_map(Target::SystemWide),
    ];
    let new = (event_name(), event()).prop_map(|(name, event)| NewEvent { name, event, place: SourceSpan::NOWHERE });
    let flags = vec![Flag::Inherit, Flag::Pinned, Flag::Exclusive, Flag::Disabled, Flag::EnableOnExec];
    let flags = subsequence(flags, 0..=5).prop_map(Flags::from_iter);
    (vec(new, 1..4), select(vec![OpenForm::Singles, OpenForm::Group]), target, flags).prop_flat_map(
        |(events, form, target, flags)| {
            let open = Open { events, form, target, flags, samples: None };
            option::weighted(0.2, samples()).prop_map(move |samples| Open { samples, ..open.clone() })
        },
    )
}

fn run() -> impl Strategy<Value = Run> {
    let per = option::of(prop_oneof![1..100_u64, Just(1_000), 1..=u64::MAX].prop_map(Nanos));
    let rate = (words(), any::<u64>(), per);
    let rate = rate.prop_map(|(event, amount, per)| Rate { event, amount, per, place: SourceSpan::NOWHERE });
    (vec(task(), 1..3), span(), option::of(cpu()), vec(rate, 0..3)).prop_map(|(tasks, span, on, rates)| Run {
        tasks,
        span,
        on,
        rates,
    })
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        (1..=u32::MAX).prop_map(Fault::Alloc),
        (1..=u32::MAX).prop_map(Fault::Program),
        (1..=u32::MAX).prop_map(Fault::Start),
        (1..=u32::MAX).prop_map(Fault::Read),
        (1..=u32::MAX).prop_map(Fault::HandOver),
        (cpu(), 0..64_u8).prop_map(|(cpu, counter)| Fault::Held(cpu, counter)),
        span().prop_map(Fault::InterruptLate),
        span().prop_map(Fault::DoorbellLate),
        Just(Fault::DoorbellTwice),
        cpu().prop_map(Fault::DoorbellSpurious),
        (cpu(), 1..=u32::MAX).prop_map(|(cpu, interrupts)| Fault::Storm(cpu, interrupts)),
        Just(Fault::None),
    ]
}

fn subject() -> impl Strategy<Value = Subject> {
    let part = prop_oneof![
        5 => Just(Part::Whole),
        1 => cpu().prop_map(Part::Cpu),
        1 => Just(Part::Own),
        1 => Just(Part::Retired),
        1 => task().prop_map(Part::Child),
    ];
    (event_name(), part).prop_map(|(event, part)| Subject { event, part })
}

fn expr() -> impl Strategy<Value = Expr> {
    let attribute = prop_oneof![
        8 => said::<Attribute>(),
        1 => Just(Attribute::Truth(Window::Enabled)),
    ];
    let leaf = prop_oneof![
        2 => (subject(), attribute).prop_map(|(subject, attribute)| Expr::Of(subject, attribute)),
        1 => decimal().prop_map(Expr::Number),
        1 => span().prop_map(Expr::Time),
        1 => said().prop_map(Expr::Truth),
        1 => Just(Expr::Lost),
        1 => task().prop_map(Expr::Fired),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        (inner.clone(), said(), inner)
            .prop_map(|(left, operator, right)| Expr::Arithmetic(Box::new(left), operator, Box::new(right)))
    })
}

fn expectation() -> impl Strategy<Value = Expectation> {
    let tolerance = prop_oneof![
        decimal().prop_map(Tolerance::Percent),
        decimal().prop_map(Tolerance::Number),
        span().prop_map(Tolerance::Time),
    ];
    let relation = prop_oneof![said(), tolerance.prop_map(Relation::Near)];
    let states = vec![EventState::Off, EventState::Inactive, EventState::Active, EventState::Error, EventState::Dead];
    let states = (subject(), said(), subsequence(states, 1..=5));
    prop_oneof![
        3 => (expr(), relation, expr()).prop_map(|(left, relation, right)| {
            Expectation::Compare(Comparison { left, relation, right })
        }),
        1 => states.prop_map(|(subject, relation, states)| {
            Expectation::State(StateExpectation { subject, relation, states })
        }),
    ]
}

fn target_of_control() -> impl Strategy<Value = ControlTarget> {
    prop_oneof![
        3 => event_name().prop_map(ControlTarget::Event),
        1 => event_name().prop_map(ControlTarget::Group),
    ]
}

fn switching() -> impl Strategy<Value = Switching> {
    (task(), said(), option::of(span())).prop_map(|(set, to, span)| Switching { set, to, span })
}

fn trigger() -> impl Strategy<Value = Trigger> {
    let rounds = select(vec![Rounds::Always, Rounds::Once]);
    let per = span().prop_map(|per| per.max(Nanos(1)));
    let numbers = (any::<u64>(), per, span(), 1..99_u32, rounds);
    (task(), event_name(), numbers, switching()).prop_map(|(name, event, numbers, switches)| {
        let (amount, per, held, every, rounds) = numbers;
        Trigger { name, event, amount, per, held, every, rounds, switches }
    })
}

fn control() -> impl Strategy<Value = Statement> {
    let target = target_of_control();
    (said(), vec(target, 1..3)).prop_map(|(verb, targets)| Statement::Control { verb, targets })
}

fn statement() -> impl Strategy<Value = Statement> {
    let access = (task(), any::<u64>(), said(), 1..9_u32);
    let fork = (task(), task(), select(vec![ForkKind::Process, ForkKind::Thread]));
    prop_oneof![
        3 => (task(), option::of(cpu())).prop_map(|(name, on)| Statement::Task { name, on }),
        5 => open().prop_map(Statement::Open),
        4 => run().prop_map(Statement::Run),
        1 => (task(), cpu()).prop_map(|(task, to)| Statement::Migrate { task, to }),
        1 => (task(), 1..99_u32).prop_map(|(task, pages)| Statement::Touch { task, pages }),
        1 => access.prop_map(|(task, address, kind, times)| Statement::Access { task, address, kind, times }),
        2 => fork.prop_map(|(parent, child, kind)| Statement::Fork { parent, child, kind }),
        1 => (task(), select(vec![Exec::Plain, Exec::ChangesRights]))
            .prop_map(|(task, kind)| Statement::Exec { task, kind }),
        1 => task().prop_map(|task| Statement::Exit { task }),
        3 => control(),
        1 => (task(), vec(target_of_control(), 1..3)).prop_map(|(name, members)| Statement::Set(EventSet { name, members })),
        1 => switching().prop_map(Statement::Switch),
        1 => trigger().prop_map(|trigger| Statement::Trigger(Box::new(trigger))),
        2 => (event_name(), breakpoint()).prop_map(|(event, to)| Statement::Modify { event, to }),
        1 => (event_name(), option::of(any::<u64>())).prop_map(|(event, samples)| Statement::Take { event, samples }),
        1 => cpu().prop_map(|cpu| Statement::Offline { cpu }),
        1 => cpu().prop_map(|cpu| Statement::Online { cpu }),
        1 => span().prop_map(|span| Statement::Wait { span }),
        1 => fault().prop_map(Statement::Fault),
        5 => expectation().prop_map(Statement::Expect),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let errno = option::weighted(0.1, select(Errno::all().collect::<Vec<_>>()));
    (statement(), errno).prop_map(|(statement, errno)| {
        let fails = errno.filter(|_| statement.can_fail());
        Step { statement, fails, place: SourceSpan::NOWHERE }
    })
}

fn machine() -> impl Strategy<Value = MachineSpec> {
    let slots = btree_set(0..64_u8, 1..5).prop_map(|slots| slots.into_iter().collect());
    let constraint = (words(), slots).prop_map(|(event, slots)| Constraint { event, slots });
    let registers = prop_oneof![
        (0..=64_u32).prop_map(DebugRegisters::Shared),
        (0..=64_u32, 0..=64_u32).prop_map(|(execute, data)| DebugRegisters::Separate { execute, data }),
    ];
    let numbers = (option::of(4..=8_u32), option::of(0..=64_u8), option::of(1..=64_u8), option::of(any::<u64>()));
    let lists = (vec(words(), 0..3), vec(constraint, 0..3));
    let said = (option::of(said()), option::of(said()), option::of(said()));
    let rest = (option::of(select(NAMES.to_vec())), option::of(registers), said);
    (numbers, lists, rest, option::of(1..=u64::MAX)).prop_map(|(numbers, (fixed, constrained), rest, tick)| {
        let (profile, breakpoints, (overflow, callers, sharing)) = rest;
        MachineSpec {
            profile: profile.map(String::from),
            cpus: numbers.0,
            counters: numbers.1,
            width_bits: numbers.2,
            fixed,
            constrained,
            overflow,
            callers,
            sharing,
            breakpoints,
            tick: tick.map(Nanos),
            seed: numbers.3,
            place: SourceSpan::NOWHERE,
        }
    })
}

fn requires() -> impl Strategy<Value = Vec<Required>> {
    let all = (1..=u32::MAX, 1..=u32::MAX, 1..=MAX_CPUS, any::<bool>()).prop_map(|(counters, slots, cpus, number)| {
        let breakpoints = if number { Requirement::BreakpointSlots(slots) } else { Requirement::Breakpoints };
        let counted = [Requirement::Pmu, Requirement::Counters(counters), breakpoints, Requirement::Cpus(cpus)];
        let plain = [Requirement::Root, Requirement::Hotplug, Requirement::Kernel, Requirement::Lab];
        counted.into_iter().chain(plain).collect::<Vec<_>>()
    });
    all.prop_flat_map(|all| subsequence(all, 0..=8)).prop_shuffle().prop_map(|requirements| {
        requirements.into_iter().map(|requirement| Required { requirement, place: SourceSpan::NOWHERE }).collect()
    })
}

fn header() -> impl Strategy<Value = Header> {
    let line = "[ -~é]{0,20}".prop_map(|line| line.trim_end().to_string());
    let reason = "[!$-~é][ !$-~é;]{0,20}".prop_map(|reason| reason.trim_end().to_string());
    let sim_only = option::of(reason.prop_map(|reason| SimOnly { reason, place: SourceSpan::NOWHERE }));
    (vec(line, 0..3), machine(), requires(), sim_only).prop_map(|(about, machine, requires, sim_only)| Header {
        about,
        machine,
        requires,
        sim_only,
    })
}

pub(in super::super) fn scenario() -> impl Strategy<Value = Scenario> {
    (header(), vec(step(), 0..12)).prop_map(|(header, steps)| Scenario { header, steps })
}

/// Many statements on a machine of four CPUs; what makes sense of them is left to who uses them.
pub(in super::super) fn many_steps() -> impl Strategy<Value = (Header, Vec<Step>)> {
    let machine = MachineSpec { cpus: Some(4), ..MachineSpec::default() };
    vec(step(), 20..80).prop_map(move |steps| (Header { machine: machine.clone(), ..Header::default() }, steps))
}
